#include "kv/part.hpp"

#include "kv/kv.hpp"

namespace memlith::core::kv {

KvPart::KvPart(Transaction& transaction)
    : transaction_(&transaction), kv_(*transaction.kv().alone()), region_(kv_.region()) {
  transaction.set_part(this);
}

KvPart::~KvPart() {
  if (transaction_ != nullptr) transaction_->set_part(nullptr);
}

Result<FrameNeed> KvPart::prepare() {
  if (transaction_ == nullptr) {
    return fail(Errc::invalid, Detail::kv,
                "a transaction of kv store \"{}\" was freed; abort the transaction that it is a part of",
                region_.shown_name());
  }
  MEMLITH_TRY(transaction_->need_active());
  writes_ = transaction_->writes();
  removes_ = transaction_->locks().removed.size() > 0;
  FrameNeed need;
  if (!writes_) return need;
  MEMLITH_TRY(transaction_->keep_locks());
  const Result<std::uint64_t> ready = kv_.prepare_joint(transaction_->locks());
  if (!ready.ok()) transaction_->keep_locks_no_more();
  MEMLITH_TRY(ready.status());
  need.bytes = *ready;
  return need;
}

Status KvPart::add_to(JointFrame& frame) {
  if (!writes_) return kOk;
  MEMLITH_ASSERT(transaction_ != nullptr && front_.cuts == 0);  // between prepare() and finish() it is not freed
  MEMLITH_TRY_ASSIGN(front_, kv_.apply_joint(transaction_->locks(), frame));
  frame.extents.insert(frame.extents.end(), front_.extents.begin(), front_.extents.end());
  frame.sources.insert(frame.sources.end(), front_.sources.begin(), front_.sources.end());
  return kOk;
}

void KvPart::finish(Lsn end) noexcept {
  if (writes_) kv_.end_joint(front_, end);
  transaction_->end();
}

void KvPart::cancel() noexcept {
  if (!writes_) return;
  kv_.cancel_joint();
  transaction_->keep_locks_no_more();
}

void KvPart::give_up() noexcept {
  if (writes_) kv_.give_up_joint();
  transaction_->end();
}

void KvPart::settle() noexcept {
  if (removes_) kv_.free_removed_later();
}

void KvPart::abort() noexcept {
  if (transaction_ != nullptr) transaction_->abort();
}

}  // namespace memlith::core::kv
