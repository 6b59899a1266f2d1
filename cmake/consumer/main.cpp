// Stores a number through the installed C++ interface, and finds it again:   consumer_cpp FOLDER
// FOLDER must exist; the store is made in it.
#include <cstdint>
#include <iostream>
#include <memlith/memlith.hpp>
#include <string>

namespace {

struct Root {
  std::uint64_t number = 0;
};

// Opens the store, adds one to the number in it, persists, and returns what it is now.
memlith::Result<std::uint64_t> add_one(const std::string& path) {
  auto store = memlith::Store::open(path, {.create = true});
  if (!store) return store.error();
  auto region = store->region("number", {.create = true, .size = 1 << 16});
  if (!region) return region.error();
  auto root = region->root<Root>();
  if (!root) return root.error();
  const std::uint64_t number = ++(*root)->number;
  if (auto persisted = region->persist(); !persisted) return persisted.error();
  if (auto closed = region->close(); !closed) return closed.error();
  if (auto closed = store->close(); !closed) return closed.error();
  return number;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: consumer_cpp FOLDER\n";
    return 2;
  }
  for (const std::uint64_t expected : {1u, 2u}) {
    auto number = add_one(std::string(argv[1]) + "/store");
    if (!number) {
      std::cerr << "consumer: " << number.error().message() << '\n';
      return 1;
    }
    if (*number != expected) {
      std::cerr << "consumer: expected " << expected << ", found " << *number << '\n';
      return 1;
    }
  }
  std::cout << "memlith " << memlith_version() << ": stored, persisted, reopened\n";
  return 0;
}
