// Looked at by gdb_test.py: a heap with containers, and results, in a function that it stops in.
#include <cstdio>
#include <memlith/btree.hpp>
#include <memlith/flat_hash.hpp>
#include <memlith/heap.hpp>

namespace {

using Words = memlith::map<memlith::string, memlith::vector<int>>;
using Tree = memlith::btree_map<memlith::string, int>;
using Numbers = memlith::btree_set<int>;
using Table = memlith::flat_hash_map<int, memlith::string>;

__attribute__((noinline)) void stop_here(const Words& words, const Tree& tree, const Numbers& numbers,
                                         const Table& table, const memlith::string& longest,
                                         const memlith::Result<int>& number, const memlith::Result<int>& failed,
                                         const memlith::Result<void>& done) {
  std::printf("%zu words, %zu, %zu, %zu, %zu bytes, %d %d %d\n", words.size(), tree.size(), numbers.size(),
              table.size(), longest.size(), number.ok(), failed.ok(), done.ok());
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
  Tree tree({{"granite", 1}, {"marble", 2}}, heap->get_allocator());
  Numbers numbers(heap->get_allocator());
  for (int i = 3000; i > 0; --i) numbers.insert(i);
  Table table(heap->get_allocator());
  for (int i = 0; i < 300; ++i) table[i] = std::to_string(i);
  auto done = heap->persist();
  stop_here(words, tree, numbers, table, words.rbegin()->first, 42, memlith::Error(MEMLITH_INVALID, "no such thing"),
            done);
  return done ? 0 : 1;
}
