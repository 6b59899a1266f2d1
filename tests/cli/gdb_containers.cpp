// Looked at by gdb_test.py: a heap with containers, and results, in a function that it stops in.
#include <cstdio>
#include <memlith/heap.hpp>

namespace {

using Words = memlith::map<memlith::string, memlith::vector<int>>;

__attribute__((noinline)) void stop_here(const Words& words, const memlith::string& longest,
                                         const memlith::Result<int>& number, const memlith::Result<int>& failed,
                                         const memlith::Result<void>& done) {
  std::printf("%zu words, %zu bytes, %d %d %d\n", words.size(), longest.size(), number.ok(), failed.ok(), done.ok());
}

}  // namespace

int main(int, char** word) {
  auto heap = memlith::Heap::open_file(word[1], {.create = true});
  if (!heap) {
    std::puts(heap.error().message().c_str());
    return 1;
  }
  auto root = heap->root<Words>();
  if (!root) return 1;
  Words& words = **root;
  words["granite"] = {1, 2};
  words["marble, which is too long to lie in the string itself"].push_back(3);
  auto done = heap->persist();
  stop_here(words, words.rbegin()->first, 42, memlith::Error(MEMLITH_INVALID, "no such thing"), done);
  return done ? 0 : 1;
}
