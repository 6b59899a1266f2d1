// docs/guarantees.md, "Trust in files": kv stores whose pages were made to do harm - cycles, pages that are used twice,
// numbers at the ends of their ranges, long values over other pages - give records or errors to every call and command,
// with a small stack and few addresses. Nothing crashes, and nothing runs for ever.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "kv/page.hpp"
#include "memlith/kv.hpp"
#include "support/child.hpp"
#include "support/sanitizers.hpp"
#include "support/slowness.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::hostile_kv_test {
namespace {

namespace fs = std::filesystem;
using core::kPageBytes;
using core::kv::CellHeader;
using core::kv::OverflowReference;
using core::kv::PageHeader;
using core::kv::PageKind;
using core::kv::RunHeader;
using core::kv::StoreHeader;
using Page = std::uint32_t;

constexpr int kRecords = 1200;
constexpr std::size_t kStackBytes = 256 * 1024;

// Long keys, so that a few hundred leaves have parents of two levels.
std::string key_of(int i) { return std::string(300, 'k') + std::to_string(10'000 + i); }

// The region of a kv store as it lies in its file.
class Bytes {
 public:
  explicit Bytes(const std::string& file) : file_(file), bytes_(read_file(file)) {}
  void write() const { write_file(file_, bytes_); }
  template <class T>
  T get(Page page, std::size_t offset = 0) const {
    T value;
    std::memcpy(&value, bytes_.data() + page * kPageBytes + offset, sizeof value);
    return value;
  }
  template <class T>
  void put(Page page, const T& value, std::size_t offset = 0) {
    std::memcpy(bytes_.data() + page * kPageBytes + offset, &value, sizeof value);
  }
  [[nodiscard]] StoreHeader header() const { return get<StoreHeader>(0, core::kv::kHeaderOffset); }
  void put_header(const std::function<void(StoreHeader&)>& change) {
    StoreHeader header = this->header();
    change(header);
    put(0, header, core::kv::kHeaderOffset);
  }
  [[nodiscard]] std::vector<Page> pages(const std::function<bool(const PageHeader&)>& wanted) const {
    std::vector<Page> found;
    for (Page page = 1; page < header().pages; ++page) {
      if (wanted(get<PageHeader>(page))) found.push_back(page);
    }
    return found;
  }
  // Where the value of a cell begins, in the page.
  [[nodiscard]] std::size_t value_at(Page page, std::uint32_t index) const {
    const auto cell = get<std::uint16_t>(page, sizeof(PageHeader) + 2 * index);
    const auto header = get<CellHeader>(page, cell);
    return cell + sizeof header + (header.key_bytes & ~core::kv::kOverflowFlag);
  }
  [[nodiscard]] Page child(Page page, std::uint32_t index) const { return get<Page>(page, value_at(page, index)); }
  void put_child(Page page, std::uint32_t index, Page child) { put(page, child, value_at(page, index)); }
  // Cells whose values are in overflow pages.
  [[nodiscard]] std::vector<std::pair<Page, std::size_t>> references() const {
    std::vector<std::pair<Page, std::size_t>> found;
    for (const Page page : pages([](const PageHeader& each) { return each.kind == PageKind::leaf; })) {
      for (std::uint32_t i = 0; i < get<PageHeader>(page).count; ++i) {
        const auto cell = get<CellHeader>(page, get<std::uint16_t>(page, sizeof(PageHeader) + 2 * i));
        if ((cell.key_bytes & core::kv::kOverflowFlag) != 0) found.emplace_back(page, value_at(page, i));
      }
    }
    return found;
  }
  // The cell's value is one of a run there, which says so, too.
  void put_run(Page page, std::size_t at, Page first, std::uint32_t bytes) {
    put(page, OverflowReference{first, bytes}, at);
    put(first, RunHeader{first, PageKind::overflow, 0, 0, 0, bytes});
  }
  // The root of a map, by its place in the catalogue.
  [[nodiscard]] Page root(std::uint32_t index) const { return child(core::kv::kCatalogue, index); }
  [[nodiscard]] std::vector<Page> inner(int level) const {
    return pages([level](const PageHeader& each) { return each.kind == PageKind::inner && each.level == level; });
  }

 private:
  std::string file_;
  std::string bytes_;
};

struct Hostile {
  std::string name;
  std::function<void(Bytes&)> make;
};

Hostile header_with(const std::string& name, std::function<void(StoreHeader&)> change) {
  return {name, [change = std::move(change)](Bytes& bytes) { bytes.put_header(change); }};
}

// The map in the catalogue at `index` has this root.
Hostile map_with_root(std::uint32_t index, const std::string& name, std::function<Page(const Bytes&)> root) {
  return {"a map whose root is " + name,
          [index, root = std::move(root)](Bytes& bytes) { bytes.put_child(core::kv::kCatalogue, index, root(bytes)); }};
}

void tie_free_list(Bytes& bytes, std::uint32_t length) {
  Page last = bytes.header().free_head;
  for (std::uint32_t i = 1; i < length; ++i) last = bytes.get<RunHeader>(last).next;
  RunHeader run = bytes.get<RunHeader>(last);
  run.next = bytes.header().free_head;
  bytes.put(last, run);
}

// As deep as a tree may be, with one leaf.
void stretch(Bytes& bytes) {
  const Page root = bytes.root(1);
  Page next = bytes.header().pages;
  std::string leaf(kPageBytes, '\0');
  for (std::size_t i = 0; i < kPageBytes; ++i) leaf[i] = bytes.get<char>(root, i);
  for (Page level = core::kv::kLevelsMax; level-- > 0;) {
    const Page page = level + 1 == core::kv::kLevelsMax ? root : next++;
    if (level == 0) {
      for (std::size_t i = 0; i < kPageBytes; ++i) bytes.put(page, leaf[i], i);
      bytes.put(page, page);
      break;
    }
    constexpr std::uint16_t kCell = kPageBytes - sizeof(CellHeader) - sizeof(Page);
    bytes.put(page, PageHeader{page, PageKind::inner, static_cast<std::uint8_t>(level), 1, kCell, 0, root});
    bytes.put(page, kCell, sizeof(PageHeader));
    bytes.put(page, CellHeader{0, sizeof(Page)}, kCell);
    bytes.put(page, next, kCell + sizeof(CellHeader));
  }
  bytes.put_header([next](StoreHeader& header) { header.pages = next; });
}

std::vector<Hostile> all_hostile() {
  std::vector<Hostile> all = {
      {"a page that is its own child", [](Bytes& b) { b.put_child(b.inner(1)[0], 1, b.inner(1)[0]); }},
      {"a page that is its parent's parent", [](Bytes& b) { b.put_child(b.inner(1)[0], 1, b.inner(2)[0]); }},
      {"leaves that are one",
       [](Bytes& b) {
         for (const Page page : b.inner(1)) {
           for (std::uint32_t i = 0; i < b.get<PageHeader>(page).count; ++i) b.put_child(page, i, b.child(page, 0));
         }
       }},
      {"inner pages that are one",
       [](Bytes& b) {
         const Page root = b.inner(2)[0];
         for (std::uint32_t i = 0; i < b.get<PageHeader>(root).count; ++i) b.put_child(root, i, b.child(root, 0));
       }},
      {"values that go on to the end, over all that lies there",
       [](Bytes& b) {
         for (const auto& [page, at] : b.references()) {
           const Page first = b.get<OverflowReference>(page, at).first;
           b.put_run(page, at, first, static_cast<std::uint32_t>((b.header().pages - first) * kPageBytes - 16));
         }
       }},
      {"a value that goes on behind the end",
       [](Bytes& b) {
         const auto [page, at] = b.references()[0];
         const Page first = b.get<OverflowReference>(page, at).first;
         b.put_run(page, at, first, static_cast<std::uint32_t>((b.header().pages - first) * kPageBytes));
       }},
      {"values that begin within others",
       [](Bytes& b) {
         for (const auto& [page, at] : b.references()) {
           b.put_run(page, at, b.get<OverflowReference>(page, at).first + 1, 5000);
         }
       }},
      {"values that lie in their trees",
       [](Bytes& b) {
         for (const auto& [page, at] : b.references()) b.put(page, OverflowReference{b.inner(1)[0], 5000}, at);
       }},
      {"values of nearly 4 GiB",
       [](Bytes& b) {
         for (const auto& [page, at] : b.references()) {
           b.put(page, OverflowReference{b.get<OverflowReference>(page, at).first, ~std::uint32_t{0}}, at);
         }
       }},
      {"one run of all long values",
       [](Bytes& b) {
         const auto first = b.get<OverflowReference>(b.references()[0].first, b.references()[0].second);
         for (const auto& [page, at] : b.references()) b.put(page, first, at);
       }},
      {"a free list of one run, again and again", [](Bytes& b) { tie_free_list(b, 1); }},
      {"a free list of three runs, again and again", [](Bytes& b) { tie_free_list(b, 3); }},
      {"a free list that leads to a page in use",
       [](Bytes& b) {
         RunHeader run = b.get<RunHeader>(b.header().free_head);
         run.next = b.root(0);
         b.put(b.header().free_head, run);
       }},
      {"a free run over pages in use",
       [](Bytes& b) {
         RunHeader run = b.get<RunHeader>(b.header().free_head);
         const Page more = b.header().pages - b.header().free_head - run.size;
         run.size += more;
         b.put(b.header().free_head, run);
         b.put_header([more](StoreHeader& header) { header.free_pages += more; });
       }},
      {"the deepest tree", stretch},
      map_with_root(1, "the catalogue", [](const Bytes&) { return core::kv::kCatalogue; }),
      map_with_root(1, "that of another map", [](const Bytes& b) { return b.root(0); }),
      map_with_root(1, "the header", [](const Bytes&) { return Page{0}; }),
      map_with_root(1, "a page that is not there", [](const Bytes&) { return ~Page{0}; }),
      map_with_root(1, "a page in a tree", [](const Bytes& b) { return b.inner(1)[0]; }),
  };
  for (const std::uint64_t number : {(std::uint64_t{1} << 62) + 1, (std::uint64_t{1} << 63) - 1, std::uint64_t{1} << 63,
                                     ~std::uint64_t{0} - 1, ~std::uint64_t{0}}) {
    const std::string text = std::to_string(number);
    all.push_back(header_with(text + " commits", [number](StoreHeader& header) { header.commits = number; }));
    all.push_back(header_with(text + " records", [number](StoreHeader& header) { header.records = number; }));
  }
  for (const Page number : {Page{0}, Page{1}, Page{1} << 31, ~Page{0}}) {
    const std::string text = std::to_string(number);
    all.push_back(header_with(text + " pages", [number](StoreHeader& header) { header.pages = number; }));
    all.push_back(header_with(text + " free pages", [number](StoreHeader& header) { header.free_pages = number; }));
    all.push_back(header_with(text + " as the first free page",
                              [number](StoreHeader& header) { header.free_head = number; }));
  }
  for (const int which : {0, 1, 2, 3}) {
    all.push_back({"a removal that goes on, of page " + std::to_string(which), [which](Bytes& b) {
                     const Page root = which == 0   ? b.root(0)
                                       : which == 1 ? b.inner(1)[0]
                                       : which == 2 ? core::kv::kCatalogue
                                                    : b.header().free_head;
                     b.put_header([root](StoreHeader& header) { header.removing = root; });
                   }});
  }
  return all;
}

// Each call answers by a success, or an error that is one of these. Else the text of the error is kept.
class Answers {
 public:
  template <class T>
  bool fine(const memlith::Result<T>& result, const char* call) {
    if (result.ok()) return true;
    switch (result.error().category()) {
      case MEMLITH_CORRUPT:
      case MEMLITH_INCOMPATIBLE:
      case MEMLITH_NO_SPACE:
      case MEMLITH_NO_MEMORY:
      case MEMLITH_FULL:
      case MEMLITH_INVALID:
      case MEMLITH_NOT_FOUND:
      case MEMLITH_CONFLICT: break;
      default: wrong += std::string(call) + ": " + result.error().message() + "\n";
    }
    return false;
  }
  std::string wrong;
};

void read_all(const Kv& kv, KvMap map, Answers& answers) {
  auto reader = kv.begin({.read_only = true});
  if (!answers.fine(reader, "begin")) return;
  for (int i = 0; i < kRecords; i += 7) (void)answers.fine(reader->find(map, key_of(i)), "find");
  (void)answers.fine(reader->estimate(map, {}, {}), "estimate");
  std::uint64_t left = 5'000;
  (void)answers.fine(reader->get_range(map, {}, {}, [&](std::string_view, std::string_view) { return --left > 0; }),
                     "get_range");
  for (const bool forward : {true, false}) {
    auto cursor = reader->cursor(map);
    if (!answers.fine(cursor, "cursor")) return;
    for (int steps = 0; steps < 5'000; ++steps) {
      const auto more = forward ? cursor->next() : cursor->prev();
      if (!answers.fine(more, "step") || !*more) break;
      if (steps % 64 == 0) (void)answers.fine(cursor->current(), "current");
    }
  }
  (void)answers.fine(reader->commit(), "commit");
}

void change_some(const Kv& kv, KvMap map, std::mt19937_64& draw, Answers& answers) {
  for (int round = 0; round < 40; ++round) {
    auto txn = kv.begin();
    if (!answers.fine(txn, "begin")) return;
    for (std::uint64_t left = 1 + draw() % 20; left > 0 && txn->active(); --left) {
      const std::string key = key_of(static_cast<int>(draw() % kRecords));
      if (draw() % 3 != 0) {
        (void)answers.fine(txn->put(map, key, std::string(draw() % (draw() % 9 == 0 ? 20'000 : 900), 'w')), "put");
      } else {
        (void)answers.fine(txn->remove(map, key), "remove");
      }
    }
    if (txn->active()) (void)answers.fine(txn->commit(Durability::weak), "commit");
  }
}

// Every call, on the store at `path`.
std::string use(const std::string& path, std::uint64_t seed) {
  Answers answers;
  std::mt19937_64 draw(seed);
  for (int life = 0; life < 2; ++life) {
    auto store = Store::open(path);
    if (!answers.fine(store, "open the store")) break;
    auto kv = Kv::open(*store, "kv");
    if (!answers.fine(kv, "open the kv store")) break;
    (void)answers.fine(kv->verify(), "verify");
    (void)answers.fine(kv->info(), "info");
    for (const char* name : {"a", "b", "fresh"}) {
      const auto map = kv->map(name, {.create = true});
      if (!answers.fine(map, "map")) continue;
      read_all(*kv, *map, answers);
      change_some(*kv, *map, draw, answers);
      int next = 0;
      std::string key;
      (void)answers.fine(kv->append(*map,
                                    [&]() -> std::optional<KvRecord> {
                                      key = "z" + std::to_string(1000 * (life + 1) + next);
                                      if (++next == 30) return std::nullopt;
                                      return KvRecord{key, key};
                                    }),
                         "append");
      auto txn = kv->begin();
      if (!answers.fine(txn, "begin")) continue;
      (void)answers.fine(txn->remove_range(*map, key_of(200), key_of(260)), "remove_range");
      if (txn->active()) (void)answers.fine(txn->commit(), "commit");
    }
    (void)answers.fine(kv->remove_map("a"), "remove_map");
    (void)answers.fine(kv->persist(), "persist");
    (void)answers.fine(kv->verify(), "verify");
    (void)answers.fine(kv->close(), "close the kv store");
    (void)answers.fine(store->close(), "close the store");
  }
  return answers.wrong;
}

void limit(int resource, rlim_t most) {
  const rlimit given{most, most};
  ::setrlimit(static_cast<__rlimit_resource>(resource), &given);
}

// As under `ulimit -s 256 -v 4194304`. What never ends is ended.
void limit_all() {
  if (!kSanitized) limit(RLIMIT_AS, rlim_t{4} << 30);
  limit(RLIMIT_STACK, kStackBytes);
  limit(RLIMIT_CPU, 60 * slowness());
  limit(RLIMIT_CORE, 0);
}

// Runs the body in a thread with such a stack.
std::string with_small_stack(const std::function<std::string()>& body) {
  struct Task {
    const std::function<std::string()>& body;
    std::string told;
  } task{body, {}};
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, kSanitized ? 8 * kStackBytes : kStackBytes);
  pthread_t thread{};
  const auto run = [](void* given) -> void* {
    auto& own = *static_cast<Task*>(given);
    own.told = own.body();
    return nullptr;
  };
  if (::pthread_create(&thread, &attributes, run, &task) != 0) return "no thread";
  ::pthread_join(thread, nullptr);
  return task.told;
}

// The command, as users call it. Empty: it has ended by itself.
std::string run_command(std::vector<std::string> words) {
  const fs::path program = fs::read_symlink("/proc/self/exe").parent_path() / "memlith";
  if (!fs::exists(program)) return "there is no " + program.string();
  const pid_t child = ::fork();
  if (child == 0) {
    limit_all();
    words.insert(words.begin(), program.string());
    std::vector<char*> plain;
    for (std::string& word : words) plain.push_back(word.data());
    plain.push_back(nullptr);
    if (std::freopen("/dev/null", "w", stdout) == nullptr || std::freopen("/dev/null", "w", stderr) == nullptr) {
      ::_exit(99);
    }
    ::execv(program.c_str(), plain.data());
    ::_exit(99);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) != 99) return "";
  std::string text;
  for (const std::string& word : words) text += word + " ";
  return text + "ended with status " + std::to_string(status);
}

class HostileKv : public ::testing::Test {
 protected:
  static constexpr const char* kFile = "objects/1";
  void SetUp() override {
    const std::string path = folder_ / "sound";
    auto store = Store::open(path, {.create = true});
    ASSERT_TRUE(store) << store.error().message();
    auto kv = Kv::open(*store, "kv", {.create = true});
    ASSERT_TRUE(kv) << kv.error().message();
    for (const char* name : {"a", "b"}) {
      const KvMap map = *kv->map(name, {.create = true});
      const int records = *name == 'a' ? kRecords : 8;
      for (int i = 0; i < records; ++i) {
        ASSERT_TRUE(kv->transact(
            [&](KvTransaction& txn) { return txn.put(map, key_of(i), std::string(i % 100 == 7 ? 9'000 : 200, 'v')); },
            Durability::weak));
      }
      auto txn = kv->begin();
      ASSERT_TRUE(txn->remove_range(map, key_of(900), key_of(1100)));
      ASSERT_TRUE(txn->commit());
    }
    ASSERT_TRUE(kv->verify());
    ASSERT_TRUE(kv->close());
    ASSERT_TRUE(store->close());
  }
  std::string planted(const Hostile& hostile) {
    const std::string path = folder_ / "hostile";
    fs::remove_all(path);
    fs::copy(folder_ / "sound", path, fs::copy_options::recursive);
    Bytes bytes(path + "/" + kFile);
    hostile.make(bytes);
    bytes.write();
    return path;
  }
  TempFolder folder_;
};

TEST_F(HostileKv, EveryCallAnswers) {
  for (const Hostile& hostile : all_hostile()) {
    SCOPED_TRACE(hostile.name);
    for (const std::uint64_t seed : {1, 2, 3}) {
      const std::string path = planted(hostile);
      EXPECT_IN_CHILD([&] {
        limit_all();
        return with_small_stack([&] { return use(path, seed); });
      });
    }
  }
}

TEST_F(HostileKv, EveryCommandEnds) {
  const std::string out = folder_ / "out";
  for (const Hostile& hostile : all_hostile()) {
    SCOPED_TRACE(hostile.name);
    const std::string path = planted(hostile);
    EXPECT_EQ(run_command({"verify", path}), "");
    EXPECT_EQ(run_command({"info", path}), "");
    EXPECT_EQ(run_command({"kv", "stats", path}), "");
    EXPECT_EQ(run_command({"kv", "scan", path, "a", "--limit", "500"}), "");
    EXPECT_EQ(run_command({"kv", "get", path, "a", key_of(7)}), "");
    EXPECT_EQ(run_command({"kv", "put", path, "b", "more", "1"}), "");
  }
}

// The stores are what this file says: verify sees the harm in all of them, but not in the deepest tree, nor where an
// opening for writing has given up a list of what was removed that is none. (The catalogue is refused as one before.)
TEST_F(HostileKv, VerifyNoticesAllHarm) {
  const auto verified = [&](const Hostile& hostile) {
    auto store = Store::open(planted(hostile));
    if (!store) return false;
    auto kv = Kv::open(*store, "kv");
    return kv && kv->verify();
  };
  EXPECT_TRUE(verified({"", [](Bytes&) {}}));
  for (const Hostile& hostile : all_hostile()) {
    const bool given_up = hostile.name.starts_with("a removal that goes on") && !hostile.name.ends_with(" 2");
    EXPECT_EQ(verified(hostile), given_up || hostile.name == "the deepest tree") << hostile.name;
  }
}

}  // namespace
}  // namespace memlith::test::hostile_kv_test
