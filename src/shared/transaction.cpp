// Transactions of a shared region, in the process that makes them. Floor: shared.
#include <algorithm>

#include "shared/client.hpp"
#include "shm/words.hpp"

namespace memlith::core::shared {

bool SharedTransaction::has(Range range) const {
  return std::any_of(touched_.begin(), touched_.end(), [range](const Touched& each) {
    return each.range.offset <= range.offset && range.offset + range.bytes <= each.range.offset + each.range.bytes;
  });
}

Status SharedTransaction::touch_before(const void* address, std::uint64_t bytes, std::chrono::milliseconds timeout) {
  MEMLITH_TRY(client_.check());
  const auto offset = static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - client_.address());
  if (offset > client_.size() || bytes > client_.size() - offset) {
    return fail(Errc::invalid, Detail::argument, "{} bytes at {} do not lie in the shared region \"{}\"", bytes,
                address, client_.name_);
  }
  const Range range{offset, bytes};
  if (bytes == 0 || has(range)) return kOk;
  // Before the range is taken: memory may be lacking.
  const std::size_t image = images_.size();
  images_.resize(image + bytes);
  touched_.push_back({range, image});
  const Status taken =
      client_.control_.take({client_.number_, number_}, range, SteadyClock::now() + timeout, touched_.size() == 1);
  if (!taken.ok()) {
    touched_.pop_back();
    images_.resize(image);
    return taken.category == Errc::poisoned ? client_.poisoned() : taken;
  }
  MEMLITH_ASSERT(images_.size() == image + bytes && touched_.back().image == image);
  shm::copy_bytes(images_.data() + image, client_.address() + offset, bytes);
  return kOk;
}

void SharedTransaction::restore() const {
  for (auto each = touched_.rbegin(); each != touched_.rend(); ++each) {
    MEMLITH_ASSERT(each->image + each->range.bytes <= images_.size());
    shm::copy_bytes(client_.address() + each->range.offset, images_.data() + each->image, each->range.bytes);
  }
}

Result<SharedTransaction*> Client::begin() {
  MEMLITH_TRY(check_process());
  const LockGuard lock(mutex_);
  if (!check().ok()) MEMLITH_TRY(go_on());
  transactions_.push_back(std::make_unique<SharedTransaction>(*this, ++transactions_ever_));
  return transactions_.back().get();
}

void Client::end(const SharedTransaction& tx, std::uint64_t ticket, bool durable) {
  const LockGuard lock(mutex_);
  std::uint64_t& newest = durable ? durable_ : weak_;
  newest = std::max(newest, ticket);
  const std::size_t ended = std::erase_if(transactions_, [&tx](const auto& each) { return each.get() == &tx; });
  MEMLITH_ASSERT(ended == 1);
}

Result<std::uint64_t> Client::commit(SharedTransaction& tx, bool waits) {
  MEMLITH_TRY(check());
  std::uint64_t ticket = 0;
  if (!tx.is_empty()) {
    Request request;
    request.ask = Ask::commit;
    request.tx = tx.number();
    request.waits = waits ? 1 : 0;
    MEMLITH_TRY_ASSIGN(const Answer answer, line_.ask(request));
    MEMLITH_TRY(answer.status());
    ticket = answer.ticket;
  }
  end(tx, ticket, waits);
  return ticket;
}

Status Client::abort(SharedTransaction& tx) {
  MEMLITH_TRY(check_process());
  // If the keeper has ended, the memory is unused; if it dropped this client, it has undone the transaction.
  if (check().ok()) {
    tx.restore();
    control_.release({number_, tx.number()});
  }
  end(tx, 0, true);
  return kOk;
}

}  // namespace memlith::core::shared
