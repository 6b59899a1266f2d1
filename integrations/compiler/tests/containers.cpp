// Standard containers of libstdc++ whose nodes, characters and buckets lie in a region; exceptions and coroutines.
#include <coroutine>
#include <cstdint>
#include <deque>
#include <forward_list>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "region.h"

namespace {

// Memory of the region from its start on, never used again.
char* next = nullptr;

template <class T>
struct Pool {
  using value_type = T;
  Pool() = default;
  template <class U>
  Pool(const Pool<U>&) {}  // NOLINT(google-explicit-constructor)
  T* allocate(std::size_t count) {
    next = reinterpret_cast<char*>((reinterpret_cast<std::uintptr_t>(next) + 15) / 16 * 16);
    T* const memory = reinterpret_cast<T*>(next);
    next += count * sizeof(T);
    return memory;
  }
  void deallocate(T*, std::size_t) {}
  bool operator==(const Pool&) const { return true; }
};

using String = std::basic_string<char, std::char_traits<char>, Pool<char>>;
template <class K, class V>
using Map = std::map<K, V, std::less<>, Pool<std::pair<const K, V>>>;

struct Everything {
  Map<int, int> numbers;
  Map<String, String> words;
  std::set<int, std::less<>, Pool<int>> set;
  std::list<int, Pool<int>> list, other;
  std::forward_list<int, Pool<int>> forward;
  std::vector<String, Pool<String>> vector;
  std::deque<int, Pool<int>> deque;
  std::unordered_map<int, String, std::hash<int>, std::equal_to<>, Pool<std::pair<const int, String>>> table;
  std::string text;  // short, so that its characters lie in the object
  std::function<int(int)> function;
  std::shared_ptr<int> shared;
  int caught = 0;
  int resumed = 0;
};

// The tree is as libstdc++ wants it.
template <class Tree>
bool is_sound(const Tree& tree) {
  std::size_t count = 0;
  const typename Tree::value_type* last = nullptr;
  for (const auto& each : tree) {
    if (last != nullptr && !(tree.value_comp()(*last, each))) return false;
    last = &each;
    ++count;
  }
  for (auto at = tree.rbegin(); at != tree.rend(); ++at) --count;
  return count == 0;
}

// Colours, heights and parents below a node; -1 if something is wrong.
int height(const std::_Rb_tree_node_base* node, const std::_Rb_tree_node_base* parent) {
  if (node == nullptr) return 1;
  if (node->_M_parent != parent) return -1;
  const int left = height(node->_M_left, node), right = height(node->_M_right, node);
  if (left < 0 || left != right) return -1;
  if (node->_M_color == std::_S_black) return left + 1;
  for (const auto* child : {node->_M_left, node->_M_right}) {
    if (child != nullptr && child->_M_color == std::_S_red) return -1;
  }
  return left;
}

std::uint32_t random_below(std::uint32_t bound) {
  static std::uint64_t state = 12345;
  state = state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<std::uint32_t>(state >> 33) % bound;
}

void trees(Everything& all) {
  Map<int, int>& map = all.numbers;
  std::vector<bool> there(400);
  for (int round = 0; round < 4000; ++round) {
    const int key = static_cast<int>(random_below(400));
    if (random_below(round < 2000 ? 3 : 2) != 0) {
      map[key] = round;
      there[static_cast<std::size_t>(key)] = true;
    } else {
      map.erase(key);
      there[static_cast<std::size_t>(key)] = false;
    }
    if (round % 50 != 0) continue;
    persist();
    const auto end = map.end();
    const std::_Rb_tree_node_base* const header = end._M_node;
    if (!is_sound(map) || height(header->_M_parent, header) < 0) throw std::logic_error("the tree is broken");
  }
  for (int key = 0; key < 400; ++key) {
    if (map.contains(key) != there[static_cast<std::size_t>(key)]) throw std::logic_error("the tree lost a key");
  }
  for (int key = 0; key < 400; key += 2) map.erase(key);
  map.clear();
  persist();
}

void texts(Everything& all) {
  for (int i = 0; i < 60; ++i) {
    String key = "a key that is longer than a short string, number ";
    key += std::to_string(i).c_str();
    all.words[key] = String(static_cast<std::size_t>(i), 'x');
    all.words[key].insert(0, "front ").append(3, '!').replace(1, 2, "R").push_back('.');
    all.vector.push_back(all.words[key]);
    all.table[i] = key.substr(0, 30);
    if (i % 7 == 0) persist();
  }
  for (int i = 0; i < 30; ++i) all.table.erase(i);
  all.vector.erase(all.vector.begin() + 3, all.vector.begin() + 9);
  all.text = "short";
  all.text.assign(3, 'z').resize(9, 'y');
  std::ostringstream made;
  made << 42 << ' ' << 1.5;
  all.vector.front() = made.str().c_str();
  persist();
}

void lists(Everything& all) {
  for (int i = 0; i < 50; ++i) {
    all.list.push_front(i * 7 % 13);
    all.list.push_back(i);
    all.forward.push_front(i);
    all.deque.push_front(i);
    all.deque.push_back(-i);
    all.set.insert(i * 37 % 50);
  }
  persist();
  all.list.sort();
  all.list.unique();
  persist();
  all.list.reverse();
  all.other.splice(all.other.begin(), all.list, all.list.begin(), std::next(all.list.begin(), 5));
  persist();
  all.other.swap(all.list);
  all.list.remove(3);
  all.other.clear();
  all.other.swap(all.list);
  all.forward.sort();
  all.forward.reverse();
  all.set.erase(all.set.begin(), std::next(all.set.begin(), 20));
  all.deque.erase(all.deque.begin() + 10);
  persist();
}

__attribute__((noinline)) void throws(Everything& all, int what) {
  all.caught += what;
  if (what % 2 == 1) throw what;
  all.caught += what;
}

void exceptions(Everything& all) {
  struct AtEnd {
    Everything& all;
    ~AtEnd() { all.caught += 1000; }
  };
  for (int i = 0; i < 5; ++i) {
    try {
      const AtEnd end{all};
      throws(all, i);
    } catch (int what) {
      all.caught += what * 10;
    }
    persist();
  }
  all.function = [&all](int x) { return all.caught + x; };
  all.shared = std::make_shared<int>(all.function(3));
  const std::shared_ptr<int> second = all.shared;
  persist();
}

struct Task {
  struct promise_type {
    Task get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() {}
    // The frame lies in the region.
    static void* operator new(std::size_t bytes) { return Pool<char>().allocate(bytes); }
    static void operator delete(void*) {}
  };
  std::coroutine_handle<promise_type> handle;
};
Task count(int& target, int to) {
  for (int i = 0; i < to; ++i) {
    target += i;
    co_await std::suspend_always();
  }
}
void coroutines(Everything& all) {
  const Task task = count(all.resumed, 5);
  while (!task.handle.done()) {
    task.handle.resume();
    persist();
  }
  task.handle.destroy();
  persist();
}

}  // namespace

int main(int argc, char** argv) {
  char* const base = open_region(argc, argv, 4 << 20);
  if (!first_run) {
    auto& all = *reinterpret_cast<Everything*>(base);
    const bool same = all.numbers.empty() && all.words.size() == 60 && all.table.size() == 30 && all.set.size() == 30 &&
                      all.text == "zzzyyyyyy" && all.resumed == 10 && is_sound(all.words) && is_sound(all.set);
    close_region();
    return same ? 0 : 6;
  }
  next = base + sizeof(Everything);
  auto& all = *new (base) Everything;
  persist();
  trees(all);
  texts(all);
  lists(all);
  exceptions(all);
  coroutines(all);
  all.shared.reset();
  all.function = nullptr;
  persist();
  close_region();
  return 0;
}
