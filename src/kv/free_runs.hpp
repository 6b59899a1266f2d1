// The free pages of a kv store, as far as the writer has read their list. Floor: kv.
//
// The list in the pages (kv/page.hpp) leads from each free run to the next one. It is read from the beginning, a
// part at a time; so a run that was read can be taken out of the middle, because the run before it is known.
//
// A run can be used again when no active snapshot is older than the commit that freed the run: a program may look at a
// value that lies there until then. [mutant kv_run_freed_too_early]
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "kv/page.hpp"
#include "kv/snapshots.hpp"

namespace memlith::core::kv {

// Threads: the writer's.
class FreeRuns {
 public:
  struct Run {
    std::uint32_t pages = 0;
    PageNumber before = 0;  // in the list; 0: it is the first
    PageNumber next = 0;    // 0: it is the last
    Stamp freed = 0;        // by the commit with that stamp
  };
  // Nothing is read of a list that begins there.
  void begin(PageNumber head) {
    *this = {};
    head_ = unread_ = head;
  }
  // The first run that was not read; 0: there is none.
  [[nodiscard]] PageNumber unread() const { return unread_; }
  // The run at unread() was read. False: it lies over another one.
  bool add_read(std::uint32_t pages, PageNumber next, Stamp freed);
  // A run that a commit has freed, as the first of the list.
  void add_first(PageNumber page, std::uint32_t pages, Stamp freed);
  void remove(PageNumber page);
  void resize(PageNumber page, std::uint32_t pages);
  [[nodiscard]] const Run& at(PageNumber page) const { return runs_.at(page); }
  // The oldest active snapshot has that stamp.
  void use_up_to(Stamp oldest);
  // The shortest usable run with as many pages.
  [[nodiscard]] std::optional<PageNumber> fitting(std::uint64_t pages) const;
  // The first of two usable runs of which one ends where the other begins. Each pair is told once.
  std::optional<PageNumber> next_pair();
  [[nodiscard]] std::uint64_t usable_pages() const { return usable_pages_; }
  [[nodiscard]] std::uint64_t pages() const { return pages_; }  // of all that were read

 private:
  void make_usable(PageNumber page, const Run& run);
  [[nodiscard]] bool is_usable(PageNumber page, const Run& run) const { return usable_.contains({run.pages, page}); }

  std::map<PageNumber, Run> runs_;
  std::set<std::pair<std::uint32_t, PageNumber>> usable_;  // by length
  std::set<std::pair<Stamp, PageNumber>> waiting_;         // for snapshots to end
  std::set<PageNumber> pairs_;                             // where two usable runs meet, maybe
  PageNumber head_ = 0;                                    // of the list
  PageNumber unread_ = 0;
  PageNumber last_read_ = 0;
  Stamp oldest_ = 0;
  std::uint64_t usable_pages_ = 0;
  std::uint64_t pages_ = 0;
};

}  // namespace memlith::core::kv
