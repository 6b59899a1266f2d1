// Which pages of a kv store are free, and the runs of pages that hold long values: a part of Writer. Floor: kv.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/no_throw.hpp"
#include "kv/writer.hpp"

namespace memlith::core::kv {

namespace {
constexpr std::uint64_t kGrowthBytesMax = 64 * kMiB;
constexpr std::uint64_t kRunsReadMin = 64;  // of the list of free runs, by a commit that needs pages
constexpr std::uint64_t kJoinsMax = 64;     // by a commit

// Bytes of a value are compared in blocks. Between two blocks that differ, one that does not is logged with them.
constexpr std::uint64_t kBlockBytes = 32;
constexpr std::uint64_t kRangesMax = 16;  // of a value; the last one has all the rest
}  // namespace

// ---- room ------------------------------------------------------------------------------------------------------

std::uint64_t Writer::pages_behind() const {
  const std::uint64_t all = region().size() / kPageBytes;
  return all - std::min<std::uint64_t>(all, header().pages);
}

// More of the list than is needed, so that all of it is known some time.
Status Writer::read_free_runs(std::uint64_t pages) {
  const StoreHeader now = header();
  for (std::uint64_t n = 0; free_runs_.unread() != 0; ++n) {
    if (n >= kRunsReadMin && free_runs_.usable_pages() >= pages) return kOk;
    const PageNumber page = free_runs_.unread();
    MEMLITH_TRY_ASSIGN(const RunHeader run, words_.sound_free(page));
    if (free_runs_.pages() + run.size > now.free_pages) {
      return words_.corrupt(page, "the list of free pages has more than the header counts");
    }
    if (!free_runs_.add_read(run.size, run.next, words_.own_word(page) >> 1)) {
      return words_.corrupt(page, "it is in the list of free pages twice");
    }
  }
  if (free_runs_.pages() == now.free_pages) return kOk;
  return words_.corrupt(kHeaderPage, "it counts more free pages than are in their list");
}

Status Writer::make_room(const Need& need, bool for_runs) {
  reserved_ = need.pages;
  if (need.pages + need.run_pages == 0) return kOk;
  if (read_partly_) free_runs_.begin(header().free_head);
  read_partly_ = true;  // unless all of this succeeds
  free_runs_.use_up_to(kept_.oldest_snapshot());
  MEMLITH_TRY(read_free_runs(need.pages));
  read_partly_ = false;
  if (for_runs && need.run_pages > 0 && !free_runs_.fitting(need.pages + need.run_pages).has_value()) {
    return grow_to(header().pages + need.pages + need.run_pages);
  }
  return grow_to(header().pages + need.pages - std::min(need.pages, free_runs_.usable_pages()));
}

Status Writer::grow_to(std::uint64_t pages) {
  const std::uint64_t needed = pages * kPageBytes;
  if (needed <= region().size()) return kOk;
  if (needed > region().most() || pages > ~PageNumber{0}) {
    return fail(Errc::no_space, Detail::kv,
                "region \"{}\": the kv store needs {} bytes and its region may have {}; copy the records to one with a "
                "larger max_size",
                region().shown_name(), needed, region().most());
  }
  if (needed > region().reserve()) return region().grow(needed);  // which says why that is not possible
  const std::uint64_t step = std::min(region().size() / 2, kGrowthBytesMax);
  const std::uint64_t wanted = std::min(std::max(needed, region().size() + step), region().reserve());
  Status grown = region().grow(wanted);
  if (!grown.ok() && wanted != needed) grown = region().grow(needed);
  return needed <= region().size() ? kOk : grown;  // grow_ahead() may have been faster
}

void Writer::grow_ahead() {
  const std::uint64_t size = region().size();
  const std::uint64_t step = std::min(size / 2, kGrowthBytesMax);
  if (size - std::min(size, words_.count() * kPageBytes) >= step / 2 || size == region().reserve()) return;
  const KeptSentence sentence;  // a commit that needs the pages tries again, and tells
  (void)region().grow(std::min(size + step, region().reserve()));
}

// ---- free runs -------------------------------------------------------------------------------------------------

void Writer::set_run_size(PageNumber run, std::uint32_t pages) {
  std::memcpy(change(run, false) + offsetof(RunHeader, size), &pages, sizeof pages);
  note(run, offsetof(RunHeader, size), sizeof pages);
  free_runs_.resize(run, pages);
}

void Writer::unlink(PageNumber run) {
  const FreeRuns::Run known = free_runs_.at(run);
  if (known.before == 0) {
    MEMLITH_ASSERT(own_header().free_head == run);
    own_header().free_head = known.next;
  } else {
    std::memcpy(change(known.before, false) + offsetof(RunHeader, next), &known.next, sizeof known.next);
    note(known.before, offsetof(RunHeader, next), sizeof known.next);
  }
  free_runs_.remove(run);
}

// The run gets the one behind it.
void Writer::join(PageNumber run) {
  const std::uint32_t pages = free_runs_.at(run).pages;
  const PageNumber behind = run + pages;
  const std::uint32_t more = free_runs_.at(behind).pages;
  (void)change(behind, false);  // so that undo() finds the free run
  unlink(behind);
  set_run_size(run, pages + more);
}

// Pages at the end of a free run, or, without one, behind all pages.
Result<PageNumber> Writer::take(std::uint32_t pages, std::optional<PageNumber> run) {
  StoreHeader& header = own_header();
  const std::uint32_t of_run = run.has_value() ? free_runs_.at(*run).pages : 0;
  const PageNumber first = run.has_value() ? *run + of_run - pages : header.pages;
  for (std::uint32_t i = 0; i < pages; ++i) {
    if (words_.use(first + i) != PageUse::other) {
      return words_.corrupt(first + i, "it is in the list of free pages, and in use");
    }
  }
  MEMLITH_TRY(words_.load_to_fill(first, pages));
  note_use({first, pages, PageUse::other});
  if (!run.has_value()) {
    header.pages += pages;
    MEMLITH_ASSERT(header.pages * kPageBytes <= region().size());
  } else {
    of_run > pages ? set_run_size(*run, of_run - pages) : unlink(*run);
    header.free_pages -= pages;
  }
  words_.set_use(first, 1, PageUse::own);
  words_.set_use(first + 1, pages - 1, PageUse::inside);
  return first;
}

void Writer::note_use(const Use& use) {
  if (!undoable_) return;
  make_room_in(uses_);
  uses_.push_back(use);
}

// A tree of a damaged file may need more pages than were reserved. Readers find a page at the end after its first
// change.
Result<PageNumber> Writer::allocate() {
  reserved_ -= std::min<std::uint64_t>(reserved_, 1);
  const auto run = read_partly_ ? std::nullopt : free_runs_.fitting(1);
  if (!run.has_value()) MEMLITH_TRY(grow_to(header().pages + 1));
  MEMLITH_TRY_ASSIGN(const PageNumber page, take(1, run));
  (void)change(page, false);
  words_.set_count(own_header().pages);
  return page;
}

// `of_snapshots`: the page is one of a tree, which they look at. What lies in a run they look at without its header.
void Writer::free_pages(PageNumber first, std::uint32_t pages, bool of_snapshots) {
  MEMLITH_ASSERT(first > kCatalogue);               // the header and the catalogue stay
  if (words_.use(first) == PageUse::other) return;  // two trees or values of a damaged file have it
  StoreHeader& header = own_header();
  note_use({first, pages, words_.use(first)});
  const RunHeader run{first, PageKind::free, 0, 0, header.free_head, pages};
  std::memcpy(change(first, of_snapshots), &run, sizeof run);
  note(first, 0, sizeof run);
  header.free_head = first;
  header.free_pages += pages;
  words_.set_use(first, pages, PageUse::other);
  if (read_partly_) return;
  if (undoable_) return free_runs_.add_first(first, pages, stamp_);
  // A commit that cannot be undone goes on without memory for this: the list is read anew then.
  const Status added = no_throw([&]() MEMLITH_REQUIRES(writing) -> Status {
    free_runs_.add_first(first, pages, stamp_);
    return kOk;
  });
  read_partly_ = !added.ok();
}

void Writer::free(PageNumber page) { free_pages(page, 1, true); }

// ---- runs with values ------------------------------------------------------------------------------------------

Result<PageNumber> Writer::write_run(std::string_view value) {
  MEMLITH_ASSERT(!read_partly_ && !value.empty() && value.size() <= kValueBytesMax);
  const auto pages = static_cast<std::uint32_t>(pages_of_value(value.size()));
  std::optional<PageNumber> free_run = free_runs_.fitting(pages);
  for (; !free_run.has_value() && joins_ < kJoinsMax; ++joins_) {
    const std::optional<PageNumber> pair = free_runs_.next_pair();
    if (!pair.has_value()) break;
    join(*pair);
    free_run = free_runs_.fitting(pages);
  }
  const std::uint64_t usable = free_runs_.usable_pages();
  if (free_run.has_value() && usable - pages + pages_behind() < reserved_) free_run.reset();
  if (!free_run.has_value()) {
    MEMLITH_TRY(grow_to(header().pages + pages + reserved_ - std::min(reserved_, usable)));
  }
  MEMLITH_TRY_ASSIGN(const PageNumber first, take(pages, free_run));
  (void)change(first, false);  // also so that undo() finds the free run
  for (std::uint32_t i = 1; i < pages; ++i) {
    if ((words_.own_word(first + i) & 1) != 0) continue;
    make_room_in(changing_);
    words_.begin_change(first + i, stamp_);
    changing_.push_back(first + i);
  }
  note_copied(first, pages);
  std::atomic_thread_fence(std::memory_order_release);  // as in change()
  for (std::uint32_t i = 0; i < pages; ++i) kept_.put_in_region(first + i);
  const RunHeader run{first, PageKind::overflow, 0, 0, 0, static_cast<std::uint32_t>(value.size())};
  std::memcpy(words_.at(first), &run, sizeof run);
  std::memcpy(words_.at(first) + sizeof run, value.data(), value.size());
  note(first, 0, sizeof run + value.size());
  words_.set_count(own_header().pages);
  return first;
}

// ORDER own-before-overwrite: an active snapshot that may look at the value has it as long as the snapshot is active.
// [mutant kv_run_overwritten_under_a_view]
void Writer::overwrite_run(const OverflowReference& old, std::string_view value) {
  MEMLITH_ASSERT(is_own_run(old.first) && pages_of_value(value.size()) <= pages_of_value(old.bytes));
  const auto change_bytes = [&](std::uint64_t begin, std::uint64_t end) MEMLITH_REQUIRES(writing) {  // of the value
    const std::uint64_t from = sizeof(RunHeader) + begin;
    const std::uint64_t to = sizeof(RunHeader) + end;
    for (std::uint64_t page = from / kPageBytes; page * kPageBytes < to; ++page) {
      (void)change(static_cast<PageNumber>(old.first + page), false);
    }
    std::memcpy(words_.at(old.first) + from, value.data() + begin, end - begin);
    note(static_cast<PageNumber>(old.first + from / kPageBytes), from % kPageBytes, end - begin);
  };
  (void)change(old.first, false);  // readers look at the word of this page
  if (value.size() != old.bytes) {
    const auto size = static_cast<std::uint32_t>(value.size());
    std::memcpy(words_.at(old.first) + offsetof(RunHeader, size), &size, sizeof size);
    note(old.first, offsetof(RunHeader, size), sizeof size);
  }
  const char* const before = words_.value_of(old).data();
  const std::uint64_t both = std::min<std::uint64_t>(value.size(), old.bytes);
  const auto differs = [&](std::uint64_t at) {
    if (at + kBlockBytes <= both) return std::memcmp(before + at, value.data() + at, kBlockBytes) != 0;
    return value.size() > both || std::memcmp(before + at, value.data() + at, value.size() - at) != 0;
  };
  std::uint64_t ranges = 0;
  for (std::uint64_t at = 0; at < value.size(); at += kBlockBytes) {
    if (!differs(at)) continue;
    const std::uint64_t begin = at;
    std::uint64_t end = value.size();
    if (++ranges < kRangesMax) {
      for (at += kBlockBytes; at < value.size(); at += kBlockBytes) {
        const std::uint64_t next = at + kBlockBytes;
        if (!differs(at) && (next >= value.size() || !differs(next))) break;
      }
      end = std::min<std::uint64_t>(at, value.size());
    } else {
      at = end;
    }
    change_bytes(begin, end);
  }
  const std::uint64_t pages = pages_of_value(value.size());
  const std::uint64_t before_pages = pages_of_value(old.bytes);
  if (pages < before_pages) {
    free_pages(static_cast<PageNumber>(old.first + pages), static_cast<std::uint32_t>(before_pages - pages), false);
  }
}

}  // namespace memlith::core::kv
