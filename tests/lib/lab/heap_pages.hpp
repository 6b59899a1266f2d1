// Containers made for pages (memlith/btree.hpp, memlith/flat_hash.hpp) in a heap of the laboratory, and a model. Their
// text says what they hold, and how much of it a search finds.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace memlith::lab {

struct PagesModel {
  std::map<std::uint32_t, std::uint32_t> tree;
  std::map<std::uint32_t, std::uint32_t> table;

  // One operation on one of them, drawn by a number.
  void change(std::uint64_t draw);
  [[nodiscard]] std::string text() const;
  [[nodiscard]] static std::uint64_t blocks() { return 0; }
};

// In the heap. The containers themselves are of the public interface, whose names are those of the engine's, too; so
// only heap_pages.cpp knows them.
class PagesInHeap {
 public:
  PagesInHeap();
  ~PagesInHeap();
  PagesInHeap(const PagesInHeap&) = delete;
  PagesInHeap& operator=(const PagesInHeap&) = delete;

  void change(std::uint64_t draw);
  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::uint64_t blocks() const;  // that they own
  [[nodiscard]] PagesModel model() const;

 private:
  void* tree_[1];
  void* table_[1];
};

}  // namespace memlith::lab
