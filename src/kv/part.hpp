// A transaction of a kv store as a part of a transaction of the whole store (region/participant.hpp). Floor: kv.
//
// Commits that wait for the log go there first, in frames of their own. So the frame of the whole store holds this
// commit alone, and a crash still leaves a prefix of the commits.
#pragma once

#include "kv/batch.hpp"
#include "region/participant.hpp"

namespace memlith::core::kv {

class Kv;
class Transaction;

class KvPart final : public Participant {
 public:
  explicit KvPart(Transaction& transaction);  // of a Kv, not of a client
  ~KvPart() override;
  KvPart(const KvPart&) = delete;
  KvPart& operator=(const KvPart&) = delete;

  [[nodiscard]] Kind kind() const override { return Kind::kv; }
  [[nodiscard]] Region& region() const override { return region_; }
  Result<FrameNeed> prepare() override;
  Status add_to(JointFrame& frame) override;
  void finish(Lsn end) noexcept override;
  void cancel() noexcept override;
  void give_up() noexcept override;
  void abort() noexcept override;
  void settle() noexcept override;

  // The program has freed the transaction, whose changes are dropped.
  void lose_transaction() { transaction_ = nullptr; }

 private:
  Transaction* transaction_;
  Kv& kv_;
  Region& region_;
  bool writes_ = false;
  bool removes_ = false;  // ranges
  Batch::Front front_;
};

}  // namespace memlith::core::kv
