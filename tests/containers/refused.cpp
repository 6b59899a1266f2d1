// Each line with construct<> must not compile: refused.py holds the compiler's messages against them.
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "memlith/heap.hpp"

struct Virtual {
  virtual ~Virtual() = default;
};
struct WithString {
  int number;
  std::string text;
};
struct WithFunction {
  int number;
  void (*function)();
};
struct Deep {
  memlith::map<int, memlith::vector<WithString>> map;
};
using Compare = bool (*)(int, int);
template <class T>
using In = memlith::allocator<T>;
using FlatMap =
    boost::unordered::unordered_flat_map<int, int, memlith::hash<int>, std::equal_to<>, In<std::pair<const int, int>>>;

void refused(const memlith::Heap& heap) {
  (void)heap.construct<std::string>("");
  (void)heap.construct<std::vector<int>>("");
  (void)heap.construct<std::map<int, int>>("");
  (void)heap.construct<std::unique_ptr<int>>("");
  (void)heap.construct<std::shared_ptr<int>>("");
  (void)heap.construct<std::function<void()>>("");
  (void)heap.construct<std::thread>("");
  (void)heap.construct<Virtual>("");
  (void)heap.construct<WithString>("");
  (void)heap.construct<WithFunction>("");
  (void)heap.construct<Deep>("");
  (void)heap.construct<memlith::vector<std::string>>("");
  (void)heap.construct<memlith::vector<Compare>>("");
  (void)heap.construct<memlith::map<int, int, Compare>>("");
  (void)heap.construct<memlith::unordered_map<int, int, std::function<std::size_t(int)>>>("");
  (void)heap.construct<std::optional<std::string>>("");
  (void)heap.construct<std::pair<int, std::string>>("");
  (void)heap.construct<std::array<std::string, 2>>("");
}
static_assert(!memlith::is_persistable_v<FlatMap>);
