// Linked into the tests under ThreadSanitizer. A persist copies memory that other threads may be storing to: that is its
// contract (memlith.h: a store that races with the call may land on either side), and the one race that is meant.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() { return "race:memlith::core::FrameWriter::put\n"; }
