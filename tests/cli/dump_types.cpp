// For dump_test.py: a heap with an object of each type that a dump describes; and the same objects, compared and
// changed by the containers themselves.
//
//   dump_types make|check FILE
#include <array>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "memlith/btree.hpp"
#include "memlith/heap.hpp"

namespace {

using Names = memlith::set<memlith::string>;
using Ages = memlith::map<memlith::string, memlith::vector<std::int16_t>>;
using Repeated = memlith::multimap<std::int32_t, double>;
using Marks = memlith::multiset<std::array<std::uint8_t, 3>>;
using Leaves = memlith::btree_map<memlith::string, memlith::vector<std::int16_t>>;
using Small = memlith::btree_set<std::uint16_t>;
using Jobs = memlith::list<memlith::string>;
using Cells = memlith::vector<std::pair<char, std::optional<memlith::string>>>;
struct Plain {
  bool is_set;
  std::int64_t number;
  float small;
  double numbers[2][2];
  Names names;
  std::optional<std::uint32_t> none;
};

constexpr const char* kLong = "a text that is too long to lie in the string itself";

template <class T>
T or_exit(memlith::Result<T> result) {
  if (result.ok()) return std::move(*result);
  std::fprintf(stderr, "dump_types: %s\n", result.error().message().c_str());
  std::exit(1);
}
void expect(bool is_right, const char* what) {
  if (is_right) return;
  std::fprintf(stderr, "dump_types: %s is not what was stored\n", what);
  std::exit(1);
}

void make(const char* path) {
  auto heap = or_exit(memlith::Heap::open_file(path, {.create = true}));
  const memlith::use_heap scope(heap);
  auto* names = or_exit(heap.construct<Names>("names"));
  auto* ages = or_exit(heap.root<Ages>());
  auto* repeated = or_exit(heap.construct<Repeated>("repeated"));
  auto* marks = or_exit(heap.construct<Marks>("marks"));
  auto* leaves = or_exit(heap.construct<Leaves>("leaves"));
  auto* small = or_exit(heap.construct<Small>("small"));
  auto* jobs = or_exit(heap.construct<Jobs>("jobs"));
  auto* cells = or_exit(heap.construct<Cells>("cells"));
  for (int i = 0; i < 1000; ++i) {
    names->insert("name " + std::to_string(i));
    (*ages)["age " + std::to_string(i)].assign(static_cast<std::size_t>(i % 7), static_cast<std::int16_t>(-i));
    (*leaves)["leaf " + std::to_string(i)].assign(static_cast<std::size_t>(i % 7), static_cast<std::int16_t>(-i));
    for (int each = 0; each < 5; ++each) small->insert(static_cast<std::uint16_t>(i * 5 + each));
    repeated->emplace(i % 10, i / 8.0);
    marks->insert({static_cast<std::uint8_t>(i % 3), static_cast<std::uint8_t>(i % 5), 255});
    jobs->emplace_back(i % 2 == 0 ? kLong : "short");
    cells->emplace_back(static_cast<char>(i), std::nullopt);
    if (i % 3 == 0) cells->back().second.emplace(kLong);
  }
  for (int i = 0; i < 1000; i += 3) {
    names->erase("name " + std::to_string(i));
    leaves->erase("leaf " + std::to_string(i));
  }
  auto* plain = or_exit(heap.construct<Plain>("plain"));
  plain->is_set = true;
  plain->number = std::numeric_limits<std::int64_t>::min();
  plain->small = 0.1F;
  plain->numbers[1][0] = std::numeric_limits<double>::infinity();
  plain->numbers[1][1] = 5e-324;
  plain->names.insert(kLong);
  (void)or_exit(heap.construct<memlith::string>("empty"));
  (void)or_exit(heap.construct<Small>("no leaves"));
  expect(heap.persist().ok() && heap.close().ok(), "the heap");
}

void check(const char* path) {
  auto heap = or_exit(memlith::Heap::open_file(path));
  const memlith::use_heap scope(heap);
  auto* names = or_exit(heap.find<Names>("names"));
  auto* ages = or_exit(heap.root<Ages>());
  auto* repeated = or_exit(heap.find<Repeated>("repeated"));
  auto* marks = or_exit(heap.find<Marks>("marks"));
  auto* leaves = or_exit(heap.find<Leaves>("leaves"));
  auto* small = or_exit(heap.find<Small>("small"));
  auto* jobs = or_exit(heap.find<Jobs>("jobs"));
  auto* cells = or_exit(heap.find<Cells>("cells"));
  expect(names->size() == 666 && ages->size() == 1000 && repeated->size() == 1000, "a size");
  expect(marks->size() == 1000 && jobs->size() == 1000 && cells->size() == 1000, "a size");
  expect(leaves->size() == 666 && small->size() == 5000 && leaves->verify().ok() && small->verify().ok(), "a btree");
  expect(small->contains(4999) && or_exit(heap.find<Small>("no leaves"))->empty(), "a btree of numbers");
  auto job = jobs->begin();
  for (int i = 0; i < 1000; ++i, ++job) {
    expect(names->contains("name " + std::to_string(i)) == (i % 3 != 0), "a name");
    const auto leaf = leaves->find("leaf " + std::to_string(i));
    expect((leaf != leaves->end()) == (i % 3 != 0) && (leaf == leaves->end() || leaf->second.size() == i % 7UL),
           "an element of a btree");
    const auto& age = ages->at("age " + std::to_string(i));
    expect(age == memlith::vector<std::int16_t>(static_cast<std::size_t>(i % 7), static_cast<std::int16_t>(-i)),
           "a vector");
    expect(*job == std::string_view(i % 2 == 0 ? kLong : "short"), "an element of the list");
    const auto& [first, second] = (*cells)[static_cast<std::size_t>(i)];
    expect(first == static_cast<char>(i) && second.has_value() == (i % 3 == 0) && (!second || *second == kLong),
           "a pair");
  }
  double before = -1;
  for (auto [at, end] = repeated->equal_range(4); at != end; ++at) {
    expect(at->second > before, "the order of equal keys");
    before = at->second;
  }
  expect(repeated->count(4) == 100 && marks->count({2, 4, 255}) == 66, "a count");
  auto* plain = or_exit(heap.find<Plain>("plain"));
  expect(plain->is_set && plain->number == std::numeric_limits<std::int64_t>::min() && plain->small == 0.1F &&
             plain->numbers[0][0] == 0 && plain->numbers[1][0] == std::numeric_limits<double>::infinity() &&
             plain->numbers[1][1] == 5e-324 && plain->names.contains(kLong) && !plain->none,
         "the struct");
  expect(or_exit(heap.find<memlith::string>("empty"))->empty(), "the empty string");

  // The containers go on with what a load has built.
  for (int i = 0; i < 1000; ++i) {
    names->insert("name " + std::to_string(i));
    ages->erase("age " + std::to_string(i));
    leaves->erase("leaf " + std::to_string(i));
    (*leaves)["new " + std::to_string(i)].assign(3, 7);
    for (int each = 0; each < 5; ++each) small->erase(static_cast<std::uint16_t>(i * 5 + each));
    repeated->erase(i % 10);
    jobs->pop_front();
    cells->pop_back();
    marks->insert({7, 7, static_cast<std::uint8_t>(i)});
  }
  expect(names->size() == 1000 && ages->empty() && repeated->empty() && jobs->empty() && cells->empty(), "a size");
  expect(leaves->size() == 1000 && small->empty() && leaves->verify().ok(), "a changed btree");
  plain->names.clear();
  or_exit(heap.find<memlith::string>("empty"))->assign(kLong);
  expect(heap.persist().ok() && heap.verify().ok() && heap.close().ok(), "the heap");
}

}  // namespace

int main(int count, char** words) {
  if (count != 3) return 2;
  std::string_view(words[1]) == "make" ? make(words[2]) : check(words[2]);
  return 0;
}
