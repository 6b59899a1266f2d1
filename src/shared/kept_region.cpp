#include "shared/kept_region.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "shm/words.hpp"

namespace memlith::core::shared {

namespace {

bool is_zeros(const std::byte* page) {
  static constexpr std::array<std::byte, kPageBytes> kZeros{};
  return std::memcmp(page, kZeros.data(), kPageBytes) == 0;
}

}  // namespace

Result<std::unique_ptr<KeptRegion>> KeptRegion::open(Session& session, const Request& request) {
  RegionOptions options;
  options.create = request.creates != 0;
  options.tracker = TrackerKind::touched;
  options.size_bytes = request.bytes;
  options.address = request.address;
  const std::string_view name(request.name.data(), ::strnlen(request.name.data(), request.name.size()));
  MEMLITH_TRY_ASSIGN(OpenRegion* const open, session.open_region(name, options));
  auto kept = std::unique_ptr<KeptRegion>(new KeptRegion(*open));
  const Status shared = kept->share();
  if (shared.ok()) return kept;
  const KeptSentence sentence;
  kept = nullptr;
  (void)session.close_region(*open);
  return shared;
}

Status KeptRegion::share() {
  MEMLITH_ASSERT(shared_.data() == nullptr && bytes_ == open_.region->size());
  MEMLITH_TRY(open_.region->load({0, bytes_}));
  MEMLITH_TRY_ASSIGN(memory_, shm::make_memory("memlith-shared", bytes_));
  MEMLITH_TRY_ASSIGN(shared_, shm::Mapping::map(memory_.get(), bytes_, {}));
  fill();
  MEMLITH_TRY_ASSIGN(control_, Control::make());
  return kOk;
}

// Pages of zeros take no memory.
void KeptRegion::fill() const {
  MEMLITH_ASSERT(bytes_ % kPageBytes == 0);
  const std::byte* const own = open_.region->address();
  for (std::uint64_t at = 0; at < bytes_; at += kPageBytes) {
    if (!is_zeros(own + at)) std::memcpy(shared_.data() + at, own + at, kPageBytes);
  }
}

// The log and the keeper's memory get the same bytes, even if a client stores to them meanwhile without a range.
Status KeptRegion::stage(const std::vector<Range>& ranges) {
  std::uint64_t total = 0;
  for (const Range& range : ranges) {
    if (!has(range)) {
      return fail(Errc::invalid, Detail::object, "region \"{}\": the table of ranges was written over by a program",
                  open_.region->name());
    }
    total += range.bytes;
  }
  staged_.resize(total);
  extents_.clear();
  sources_.clear();
  std::byte* target = staged_.data();
  for (const Range& range : ranges) {
    shm::copy_bytes(target, shared_.data() + range.offset, range.bytes);
    extents_.push_back({open_.region->object(), range.offset, range.bytes});
    sources_.push_back(target);
    target += range.bytes;
  }
  MEMLITH_ASSERT(target == staged_.data() + total && extents_.size() == sources_.size());
  return kOk;
}

Result<Lsn> KeptRegion::commit(Owner owner, bool waits) {
  const std::vector<Range> ranges = control_.collect(owner);
  MEMLITH_TRY(stage(ranges));
  MEMLITH_ASSERT(extents_.size() == ranges.size());
  MEMLITH_TRY_ASSIGN(const Lsn ticket, open_.region->commit_bytes(extents_, sources_, waits));
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    std::memcpy(open_.region->address() + ranges[i].offset, sources_[i], ranges[i].bytes);
  }
  // ORDER capture-before-release: what the next owner of a range reads there and commits has a later ticket, so a crash
  // that takes this commit back takes that one back, too. [mutant capture_after_release]
  control_.release(owner);
  if (!waits) open_.session.store().flush_soon(ticket);
  return ticket;
}

void KeptRegion::undo(std::uint32_t client) {
  MEMLITH_ASSERT(client != 0);
  const Owner owner{client, kEveryTx};
  const std::vector<Range> ranges = control_.collect(owner);
  for (const Range& range : ranges) {
    if (!has(range)) continue;
    shm::copy_bytes(shared_.data() + range.offset, open_.region->address() + range.offset, range.bytes);
  }
  // ORDER undo-before-release: the next owner of a range would read, and commit, what was never committed.
  // [mutant release_before_undo]
  control_.release(owner);
}

}  // namespace memlith::core::shared
