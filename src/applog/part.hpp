// An application log as a part of a transaction of its store (region/participant.hpp): entries that are appended, and
// the read position. Floor: applog.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "applog/applog.hpp"
#include "region/participant.hpp"

namespace memlith::core::applog {

class AppLogPart final : public Participant {
 public:
  explicit AppLogPart(AppLog& log) : log_(log) {}

  // The transaction appends these entries, too, which are copied. Errors: full - they are larger than a frame may be.
  Status append(std::span<const AppLog::Content> entries);
  // The transaction consumes everything up to entry `number`. Errors: invalid - the entry was not read.
  Status consume(std::uint64_t number);

  [[nodiscard]] Kind kind() const override { return Kind::applog; }
  [[nodiscard]] Region& region() const override { return log_.region(); }
  Status make_ready() override;
  Result<FrameNeed> prepare() override;
  Status add_to(JointFrame& frame) override;
  void finish(Lsn end) noexcept override;
  void cancel() noexcept override;

 private:
  AppLog& log_;
  AppLog::Entries entries_;
  std::vector<std::vector<std::byte>> contents_;  // of entries_
  std::uint64_t consumed_number_ = 0;             // 0: nothing is consumed
  std::optional<Position> consumed_;              // as it is logged
  AppLog::Changes changes_;
  EntryHeader mark_{};
};

}  // namespace memlith::core::applog
