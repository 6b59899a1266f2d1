// Linked into the tests under ThreadSanitizer. The races that are meant: a persist copies memory that other threads may
// be storing to (memlith.h: a store that races with the call may land on either side); the fault tracker copies pages
// that the kernel protects, and compares pages that may be stored to again, which then count as stored to; a capture
// compares hot pages, and the next one finds what this one missed; SQLite reads a database's header before it has any
// lock, and looks again under one. And a store that faults has been noted before it faults: one that waits until a
// chunk is mapped anew counts as made before that. And what is no race: liburing maps and unmaps its rings by system
// calls that ThreadSanitizer does not see, so one thread's ring seems to be another's that lay there before.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "race:memlith::core::FrameWriter::put\n"
         "race:add_difference\n"
         "race:copy_twin\n"
         "race:equals_twin\n"
         "race:sqlite3PagerReadFileheader\n"
         "race:ChunksAreMovedUnderStores\n"
         "race:UringQueue\n";
}
