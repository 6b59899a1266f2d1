// The pages of a kv store in memory. Floor: kv.
//
//   Words   whether a page was checked, and which commit changed it last: what readers look at
//   Kept    the newest state, the active snapshots, and copies of pages for them
//   Writer  the commit under way, and the bytes that commits leave for the log
//
// Each knows those before it only. Readers read beside the writer, without a lock.
#pragma once

#include "kv/ascending_runs.hpp"
#include "kv/kept.hpp"
#include "kv/words.hpp"
#include "kv/writer.hpp"

namespace memlith::core::kv {

// ThreadSanitizer cannot know that what is read beside a writer is confirmed afterwards: under it, readers take turns
// with the writer.
#if defined(__SANITIZE_THREAD__)
#define MEMLITH_KV_READERS_WAIT 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MEMLITH_KV_READERS_WAIT 1
#endif
#endif

struct Pages {
  Words words;
  Kept kept{words};
  Writer writer{words, kept};
  AscendingRuns runs MEMLITH_GUARDED_BY(writing);

  // Lives while a reader reads pages in place.
#ifdef MEMLITH_KV_READERS_WAIT
  class MEMLITH_SCOPED_CAPABILITY Reading {
   public:
    explicit Reading(Pages& pages) MEMLITH_NO_THREAD_SAFETY_ANALYSIS : guard_(pages.writer.mutex()) {}
    ~Reading() MEMLITH_NO_THREAD_SAFETY_ANALYSIS {}

   private:
    LockGuard guard_;
  };
#else
  struct Reading {
    explicit Reading(Pages&) {}
  };
#endif
  // The page as of `view`. Errors: corrupt, io.
  Result<PageView> look(PageNumber page, Stamp view);
  // A page that was looked at is of the tree with that root. To be confirmed, like its bytes.
  [[nodiscard]] static bool is_of_tree(const PageView& view, PageNumber map) {
    const PageHeader header = header_of(view.bytes);
    return header.map == map && (header.kind == PageKind::leaf || header.kind == PageKind::inner) &&
           view.use == PageUse::own;
  }
  // A snapshot is active until Kept drops it. Errors: as Kept::try_take(), and poisoned.
  Result<Snapshots::StampSlot> take_snapshot();

 private:
  Result<Snapshots::StampSlot> take_newest();
};

}  // namespace memlith::core::kv
