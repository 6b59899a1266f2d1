// Makes and checks the golden stores (tests/golden/README.md): small stores whose content is known, of each kind.
//
//   golden_store make KIND PATH [--crash]   makes one; with --crash the process kills itself when half of what it has
//                                           done is at home and the rest is in the log only
//   golden_store check KIND PATH            opens it, compares the content, changes something, and opens it again
//
// Never change what a kind holds: stores that earlier builds made are checked against it. Add a kind instead.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include <unistd.h>

#include "memlith/applog.hpp"
#include "memlith/heap.hpp"
#include "memlith/kv.hpp"

namespace {

template <class T>
T or_exit(memlith::Result<T> result) {
  if (result.ok()) return std::move(*result);
  std::fprintf(stderr, "golden_store: %s\n", result.error().message().c_str());
  std::exit(1);
}
void or_exit(const memlith::Result<void>& result) {
  if (result.ok()) return;
  std::fprintf(stderr, "golden_store: %s\n", result.error().message().c_str());
  std::exit(1);
}
void expect(bool is_as_it_was, const char* what) {
  if (is_as_it_was) return;
  std::fprintf(stderr, "golden_store: %s is not what was stored\n", what);
  std::exit(1);
}
[[noreturn]] void crash() {
  (void)kill(getpid(), SIGKILL);
  std::abort();
}

bool must_crash = false;

void half_done(const memlith::Store& store) {
  if (must_crash) or_exit(store.checkpoint());
}
void done() {
  if (must_crash) crash();
}

// ---- regions of a folder -------------------------------------------------------------------------------------------

struct Node {
  Node* next;
  std::uint64_t value;
};
struct Chain {
  std::uint64_t opened;  // by checks
  Node* first;
  Node nodes[10];
};
constexpr std::uint64_t kNumbers = 64 * 1024 / sizeof(std::uint64_t);

void make_regions(const std::string& path, std::uint32_t physical_block_bytes) {
  auto store =
      or_exit(memlith::Store::open(path,
                                   {.create = true, .exclusive = true, .physical_block_bytes = physical_block_bytes}));
  auto gone = or_exit(store.region("gone", {.create = true, .size = 4096}));
  or_exit(gone.persist());
  auto region = or_exit(store.region("chain", {.create = true, .size = 16384}));
  auto* chain = or_exit(region.root<Chain>(3U));
  auto numbers = or_exit(store.region("numbers", {.create = true, .size = 64 * 1024}));
  auto* number = static_cast<std::uint64_t*>(numbers.address());
  for (std::uint64_t i = 0; i < 10; ++i) {
    chain->nodes[i] = {chain->first, i * i};
    chain->first = &chain->nodes[i];
    for (std::uint64_t at = i; at < kNumbers; at += 10) number[at] = at % 1000 * 7;
    or_exit(store.persist());
    if (i == 4) half_done(store);
  }
  or_exit(gone.close());
  or_exit(store.remove("gone"));
  done();
  or_exit(store.close());
}

void check_regions(const std::string& path, std::uint64_t opened) {
  auto store = or_exit(memlith::Store::open(path));
  expect(!store.region("gone").ok(), "the region that was removed");
  auto region = or_exit(store.region("chain"));
  auto* chain = or_exit(region.root<Chain>(3U));
  std::uint64_t i = 10;
  for (const Node* at = chain->first; at != nullptr; at = at->next) {
    --i;
    expect(at->value == i * i, "the chain");
  }
  expect(i == 0 && chain->opened == opened, "the chain's length");
  auto numbers = or_exit(store.region("numbers"));
  const auto* number = static_cast<const std::uint64_t*>(numbers.address());
  for (std::uint64_t at = 0; at < kNumbers; ++at) expect(number[at] == at % 1000 * 7, "a number");
  ++chain->opened;
  or_exit(region.persist());
  or_exit(store.close());
}

// ---- one file ------------------------------------------------------------------------------------------------------

constexpr std::size_t kFileBytes = 100'000;  // no multiple of a page

char byte_at(std::size_t at) { return static_cast<char>('a' + at % 26); }

void make_file(const std::string& path) {
  auto store = or_exit(memlith::Store::open_file(path, {.create = true}));
  auto region = or_exit(store.region("file", {.create = true, .size = kFileBytes}));
  auto* bytes = static_cast<char*>(region.address());
  for (std::size_t at = 0; at < kFileBytes / 2; ++at) bytes[at] = byte_at(at);
  or_exit(region.persist());
  half_done(store);
  for (std::size_t at = kFileBytes / 2; at < kFileBytes; ++at) bytes[at] = byte_at(at);
  or_exit(region.persist());
  done();
  or_exit(store.close());
}

void check_file(const std::string& path, std::uint64_t opened) {
  auto store = or_exit(memlith::Store::open_file(path));
  auto region = or_exit(store.region("file"));
  expect(region.size() == kFileBytes, "the length of the file");
  auto* bytes = static_cast<char*>(region.address());
  for (std::size_t at = 1; at < kFileBytes; ++at) expect(bytes[at] == byte_at(at), "a byte of the file");
  expect(bytes[0] == byte_at(opened), "the first byte");
  bytes[0] = byte_at(opened + 1);
  or_exit(region.persist());
  or_exit(store.close());
}

// ---- a heap --------------------------------------------------------------------------------------------------------

struct Person {
  memlith::string name;
  std::int32_t height_mm;
};
using Lists = memlith::map<memlith::string, memlith::vector<std::int32_t>>;

void make_heap(const std::string& path) {
  auto store = or_exit(memlith::Store::open_file(path, {.create = true}));
  auto heap = or_exit(memlith::Heap::open(store, "file", {.create = true}));
  auto* lists = or_exit(heap.root<Lists>());
  for (std::int32_t i = 0; i < 200; ++i) {
    (*lists)["list " + std::to_string(i)].assign(static_cast<std::size_t>(i), i);
    if (i % 20 == 19) or_exit(heap.persist());
    if (i == 99) half_done(store);
  }
  for (std::int32_t i = 0; i < 200; i += 2) lists->erase("list " + std::to_string(i));
  (void)or_exit(heap.construct<Person>("ada", "Ada, whose name is too long to lie in the string itself", 1650));
  or_exit(heap.persist());
  done();
  or_exit(heap.close());
  or_exit(store.close());
}

void check_heap(const std::string& path, std::uint64_t opened) {
  auto heap = or_exit(memlith::Heap::open_file(path));
  auto* lists = or_exit(heap.root<Lists>());
  expect(lists->size() == 100 + opened, "the number of lists");
  for (std::int32_t i = 1; i < 200; i += 2) {
    const auto& list = lists->at("list " + std::to_string(i));
    expect(list == memlith::vector<std::int32_t>(static_cast<std::size_t>(i), i), "a list");
  }
  const auto* ada = or_exit(heap.find<Person>("ada"));
  expect(ada->name == "Ada, whose name is too long to lie in the string itself" && ada->height_mm == 1650, "Ada");
  (*lists)["opened " + std::to_string(opened)].push_back(1);
  or_exit(heap.persist());
  (void)or_exit(heap.verify());
  or_exit(heap.close());
}

// ---- a key-value store, and an application log beside it -----------------------------------------------------------

std::string key_of(int i) { return "key " + std::to_string(i); }
std::string value_of(int i) { return std::string(static_cast<std::size_t>(i % 50 == 7 ? 20'000 : i), 'v'); }

void make_kv(const std::string& path) {
  auto store = or_exit(memlith::Store::open(path, {.create = true, .exclusive = true}));
  auto kv = or_exit(memlith::Kv::open(store, "kv", {.create = true}));
  const auto records = or_exit(kv.map("records", {.create = true}));
  const auto numbers = or_exit(kv.map("numbers", {.create = true}));
  for (int i = 0; i < 400; ++i) {
    auto txn = or_exit(kv.begin());
    or_exit(txn.put(records, key_of(i), value_of(i)));
    or_exit(txn.put(numbers, memlith::IntegerKey(i), std::to_string(i)));
    if (i >= 100 && i % 4 == 0) or_exit(txn.remove(records, key_of(i - 100)));
    (void)or_exit(txn.commit(i % 50 == 49 ? memlith::Durability::sync : memlith::Durability::weak));
    if (i == 199) half_done(store);
  }
  done();
  or_exit(kv.close());
  or_exit(store.close());
}

void check_kv(const std::string& path, std::uint64_t opened) {
  auto store = or_exit(memlith::Store::open(path));
  auto kv = or_exit(memlith::Kv::open(store, "kv"));
  const auto records = or_exit(kv.map("records"));
  const auto numbers = or_exit(kv.map("numbers"));
  {
    auto txn = or_exit(kv.begin());
    for (int i = 0; i < 400; ++i) {
      const bool is_removed = i % 4 == 0 && i < 300;
      const auto value = or_exit(txn.find(records, key_of(i)));
      expect(is_removed ? !value : value && *value == value_of(i), "a record");
      expect(or_exit(txn.get(numbers, memlith::IntegerKey(i))) == std::to_string(i), "a number");
    }
    const auto before = or_exit(txn.find(records, "opened"));
    expect((before ? std::string(*before) : "0") == std::to_string(opened), "the openings");
    or_exit(txn.put(records, "opened", std::to_string(opened + 1)));
    (void)or_exit(txn.commit(memlith::Durability::sync));
  }
  (void)or_exit(kv.verify());
  or_exit(kv.close());
  or_exit(store.close());
}

constexpr std::uint64_t kEntries = 100;
constexpr std::uint64_t kConsumed = 40;

std::string entry_of(std::uint64_t number) { return "entry " + std::string(number * 3, 'e'); }

void make_applog(const std::string& path) {
  auto store = or_exit(memlith::Store::open(path, {.create = true, .exclusive = true}));
  auto log = or_exit(memlith::AppLog::open(store, "log", {.create = true, .size = 1 << 20}));
  auto kv = or_exit(memlith::Kv::open(store, "kv", {.create = true}));
  const auto sums = or_exit(kv.map("sums", {.create = true}));
  for (std::uint64_t number = 1; number <= kEntries; ++number) {
    (void)or_exit(log.append(entry_of(number)));
    if (number % 10 == 0) or_exit(log.write());
    if (number == 50) half_done(store);
  }
  for (std::uint64_t number = 1; number <= kConsumed; ++number) {
    const auto entry = or_exit(log.read());
    auto tx = or_exit(store.begin());
    auto txn = or_exit(kv.begin());
    or_exit(txn.put(sums, memlith::IntegerKey(number), entry->content));
    or_exit(txn.join(tx));
    or_exit(log.consume_in(tx, number));
    or_exit(tx.commit());
  }
  done();
  or_exit(log.close());
  or_exit(kv.close());
  or_exit(store.close());
}

void check_applog(const std::string& path, std::uint64_t opened) {
  auto store = or_exit(memlith::Store::open(path));
  auto log = or_exit(memlith::AppLog::open(store, "log"));
  auto kv = or_exit(memlith::Kv::open(store, "kv"));
  const auto sums = or_exit(kv.map("sums"));
  {
    auto txn = or_exit(kv.begin({.read_only = true}));
    for (std::uint64_t number = 1; number <= kConsumed; ++number) {
      expect(or_exit(txn.get(sums, memlith::IntegerKey(number))) == entry_of(number), "the effect of an entry");
    }
  }
  for (std::uint64_t number = kConsumed + 1; number <= kEntries; ++number) {
    const auto entry = or_exit(log.read());
    expect(entry && entry->number == number && entry->content == entry_of(number), "an entry");
  }
  for (std::uint64_t i = 0; i < opened; ++i) expect(or_exit(log.read())->content == "opened", "an entry of a check");
  expect(!or_exit(log.read()), "the end of the log");
  (void)or_exit(log.append("opened"));
  or_exit(log.write());
  or_exit(log.close());
  or_exit(kv.close());
  or_exit(store.close());
}

// ---- kinds ---------------------------------------------------------------------------------------------------------

struct Kind {
  const char* name;
  void (*make)(const std::string& path);
  void (*check)(const std::string& path, std::uint64_t opened);
};
const Kind kKinds[] = {
    {"folder", [](const std::string& path) { make_regions(path, 0); }, check_regions},
    {"blocks", [](const std::string& path) { make_regions(path, 4096); }, check_regions},
    {"raw", [](const std::string& path) { make_regions(path, 0); }, check_regions},
    {"file", make_file, check_file},
    {"heap", make_heap, check_heap},
    {"kv", make_kv, check_kv},
    {"applog", make_applog, check_applog},
};

}  // namespace

int main(int count, char** words) {
  const std::string_view command = count > 1 ? words[1] : "";
  must_crash = count == 5 && std::string_view(words[4]) == "--crash";
  for (const Kind& kind : kKinds) {
    if (count < 4 || std::strcmp(words[2], kind.name) != 0) continue;
    if (command == "make") {
      kind.make(words[3]);
      return 0;
    }
    if (command == "check") {
      for (std::uint64_t opened = 0; opened < 3; ++opened) kind.check(words[3], opened);
      return 0;
    }
  }
  std::fputs("golden_store make KIND PATH [--crash] | check KIND PATH\n", stderr);
  return 2;
}
