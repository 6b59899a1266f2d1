// The smallest memlith program in C++: a typed object in plain memory that outlives the process.
//
//   hello_cpp [FOLDER]      prints "run 1" the first time, "run 2" the next, and so on
#include <cstdint>
#include <iostream>
#include <string>
#include <string_view>

#include "memlith/memlith.hpp"

namespace {

struct Hello {
  std::uint64_t runs = 0;
};

int failed(const memlith::Error& error) {
  std::cerr << "hello: " << error.message() << "\n";
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view folder = argc > 1 ? argv[1] : "hello-store";
  if (folder.starts_with('-')) {
    std::cout << "usage: hello_cpp [FOLDER]\n";
    return folder == "--help" ? 0 : 1;
  }
  auto store = memlith::Store::open(std::string(folder), {.create = true});
  if (!store) return failed(store.error());
  auto region = store->region("hello_cpp", {.create = true, .size = 4096});
  if (!region) return failed(region.error());
  auto hello = region->root<Hello>();  // constructed once, then found again
  if (!hello) return failed(hello.error());

  (*hello)->runs++;  // a plain store into plain memory
  if (auto persisted = region->persist(); !persisted) return failed(persisted.error());
  std::cout << "run " << (*hello)->runs << "\n";  // from here on no crash can take it back
  return 0;
}
