// docs/guarantees.md, the C++ interface: the same promises with handles that close themselves, in any order, and a
// typed root that is found again or refused, never guessed at.
#include "memlith/memlith.hpp"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "support/temp_folder.hpp"

namespace memlith::test {
namespace {

template <class T>
::testing::AssertionResult fine(const T& result) {
  return result.ok() ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << result.error().message();
}
template <class T>
::testing::AssertionResult refused(const T& result, std::int32_t category) {
  if (result.ok()) return ::testing::AssertionFailure() << "ok";
  if (result.error().category() == category && !result.error().message().empty()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << result.error().code() << ": " << result.error().message();
}

struct Notes {
  std::uint64_t count = 100;
  std::uint64_t extra = 7;
};
struct LargerNotes : Notes {
  std::uint64_t more = 1;
};

// A class with a destructor that keeps what it owns in the region.
struct OwnsInsideTheRegion {
  ~OwnsInsideTheRegion() { number = 0; }
  std::uint64_t number = 3;
};
}  // namespace
}  // namespace memlith::test

template <>
struct memlith::is_persistable<memlith::test::OwnsInsideTheRegion> : std::true_type {};

namespace memlith::test {
namespace {

class CppInterface : public ::testing::Test {
 protected:
  Store open() {
    StoreOptions options;
    options.create = true;
    options.log_bytes = 1 << 20;
    auto store = Store::open(folder_ / "store", options);
    EXPECT_TRUE(fine(store));
    return std::move(*store);
  }
  static Region open(const Store& store, const std::string& name = "main", Tracker tracker = Tracker::automatic) {
    RegionOptions options;
    options.create = true;
    options.size = 1 << 16;
    options.tracker = tracker;
    auto region = store.region(name, options);
    EXPECT_TRUE(fine(region));
    return std::move(*region);
  }
  TempFolder folder_;
};

// A root is constructed once, found again with what was persisted, and is at the same address.
TEST_F(CppInterface, RootIsFoundAgain) {
  for (const Tracker tracker : {Tracker::automatic, Tracker::touched, Tracker::fault}) {
    const std::string name = std::to_string(static_cast<int>(tracker));
    const Notes* address = nullptr;
    for (std::uint64_t round = 0; round < 3; ++round) {
      Store store = open();
      Region region = open(store, name, tracker);
      Notes* const notes = *region.root<Notes>();
      if (round == 0) address = notes;
      EXPECT_EQ(notes, address);
      EXPECT_EQ(notes->count, 100 + round);
      EXPECT_EQ(notes->extra, 7u);
      ++notes->count;
      EXPECT_TRUE(fine(region.touch(notes)));
      EXPECT_TRUE(fine(region.persist()));
      ++notes->extra;  // not persisted
    }
  }
}

// A region that is opened again shows what was captured before, be it durable yet or not, and goes on from there.
TEST_F(CppInterface, ReopeningShowsWhatWasCaptured) {
  for (const Tracker tracker : {Tracker::automatic, Tracker::touched, Tracker::fault}) {
    Store store = open();
    EXPECT_TRUE(fine(store.set_window(60'000, 1 << 30)));  // nothing is flushed by itself
    const std::string name = std::to_string(static_cast<int>(tracker));
    {
      Region region = open(store, name, tracker);
      auto* const words = static_cast<std::uint64_t*>(region.address());
      words[0] = 7;
      EXPECT_TRUE(fine(region.touch(words, 8)));
      EXPECT_TRUE(fine(region.persist_async(Scope::process)));
      EXPECT_TRUE(fine(region.close()));
    }
    {
      Region region = open(store, name, tracker);
      auto* const words = static_cast<std::uint64_t*>(region.address());
      EXPECT_EQ(words[0], 7u) << name;
      words[1] = 8;  // in the same page
      EXPECT_TRUE(fine(region.touch(words + 1, 8)));
      EXPECT_TRUE(fine(region.persist()));
    }
    EXPECT_TRUE(fine(store.close()));
    store = open();
    Region region = open(store, name, tracker);
    EXPECT_EQ(static_cast<std::uint64_t*>(region.address())[0], 7u) << name;
    EXPECT_EQ(static_cast<std::uint64_t*>(region.address())[1], 8u) << name;
  }
}

// A commit counts in the statistics and in the eventfd; what was not persisted is counted.
TEST_F(CppInterface, StatisticsAndTheEventfdTellOfCommits) {
  Store store = open();
  Region region = open(store);
  const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  ASSERT_GE(fd, 0);
  EXPECT_TRUE(fine(store.set_eventfd(fd)));
  const auto before = store.stats();
  ASSERT_TRUE(fine(before));
  *static_cast<std::uint64_t*>(region.address()) = 1;
  EXPECT_GT(*region.unpersisted(), 0u);
  EXPECT_TRUE(fine(region.persist()));
  EXPECT_EQ(*region.unpersisted(), 0u);
  std::uint64_t count = 0;
  EXPECT_EQ(::read(fd, &count, sizeof count), 8);
  EXPECT_GT(count, 0u);
  EXPECT_EQ(store.stats()->persists, before->persists + 1);
  EXPECT_EQ(store.stats()->alive, 1u);
  EXPECT_TRUE(fine(store.set_eventfd(-1)));
  *static_cast<std::uint64_t*>(region.address()) = 2;
  EXPECT_TRUE(fine(region.persist()));
  EXPECT_EQ(::read(fd, &count, sizeof count), -1);
  ::close(fd);
  EXPECT_TRUE(fine(store.close()));
  StoreOptions reading;
  reading.read_only = true;
  const auto read_only = Store::open(folder_ / "store", reading);
  ASSERT_TRUE(fine(read_only));
  EXPECT_TRUE(refused(read_only->stats(), MEMLITH_READ_ONLY));
}

TEST_F(CppInterface, AStoreIsVerifiedFromOutside) {
  EXPECT_TRUE(refused(verify(folder_ / "store"), MEMLITH_NOT_FOUND));
  EXPECT_TRUE(refused(verify_pointers(folder_ / "store"), MEMLITH_NOT_FOUND));
  EXPECT_TRUE(refused(format_device(folder_ / "store"), MEMLITH_NOT_FOUND));
  {
    Store store = open();
    Region region = open(store);
    static_cast<std::uint64_t*>(region.address())[1] = 5;
    EXPECT_TRUE(fine(region.persist()));
  }
  const auto report = verify(folder_ / "store");
  ASSERT_TRUE(fine(report));
  EXPECT_EQ(report->regions, 1u);
  EXPECT_EQ(report->clean, 1u);
  EXPECT_TRUE(verify_pointers(folder_ / "store")->empty());
}

// A symbolic link leads to the file and to its log.
TEST_F(CppInterface, LinksLeadToTheFilesOwnLog) {
  StoreOptions options;
  options.create = true;
  options.log_bytes = 1 << 20;
  auto opened = Store::open_file(folder_ / "data", options);
  ASSERT_TRUE(fine(opened));
  Store store = std::move(*opened);
  ASSERT_EQ(::symlink("data", (folder_ / "link").c_str()), 0);
  EXPECT_TRUE(refused(Store::open_file(folder_ / "link", options), MEMLITH_BUSY));
  EXPECT_TRUE(fine(store.close()));
  EXPECT_TRUE(fine(Store::open_file(folder_ / "link", options)));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "link.memlith"));
}

// A forked child that closes what it inherited, be it by a destructor, is told so and goes on; the parent's store is
// none the worse.
TEST_F(CppInterface, AForkedChildMayCloseWhatItInherited) {
  Store store = open();
  Region region = open(store);
  EXPECT_TRUE(fine(open(store, "other").close()));
  *static_cast<std::uint64_t*>(region.address()) = 1;
  EXPECT_TRUE(fine(region.persist()));
  EXPECT_TRUE(fine(store.set_window(60'000, 1 << 30)));
  *static_cast<std::uint64_t*>(region.address()) = 2;
  EXPECT_TRUE(fine(region.persist_async(Scope::process)));  // in memory, to be written by the next leader
  const std::string log = read_file(folder_ / "store/log");
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    const bool opens = static_cast<bool>(refused(store.region("other"), MEMLITH_INVALID));
    const bool closes = static_cast<bool>(refused(region.close(), MEMLITH_INVALID));
    ::_exit(opens && closes && refused(store.close(), MEMLITH_INVALID) ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(read_file(folder_ / "store/log") == log) << "the child wrote to the parent's log";
  *static_cast<std::uint64_t*>(region.address()) = 2;
  EXPECT_TRUE(fine(region.persist()));
  EXPECT_TRUE(fine(store.close()));
}

// The first construction takes arguments, and is not durable before a persist.
TEST_F(CppInterface, RootIsConstructedUntilPersisted) {
  for (const std::uint64_t value : {5u, 6u, 7u}) {
    Store store = open();
    Region region = open(store);
    EXPECT_EQ(**region.root<std::uint64_t>(1, value), value == 7 ? 6 : value);
    if (value == 6) {
      EXPECT_TRUE(fine(region.persist()));
    }
  }
}

// A root of another version or type is refused with both in the sentence; a region too small for it too.
TEST_F(CppInterface, RootOfAnotherTypeIsRefused) {
  Store store = open();
  Region region = open(store);
  ASSERT_TRUE(fine(region.root<Notes>(3)));
  EXPECT_TRUE(fine(region.root<Notes>(3)));
  EXPECT_TRUE(refused(region.root<Notes>(4), MEMLITH_INCOMPATIBLE));
  const auto larger = region.root<LargerNotes>(3);
  EXPECT_TRUE(refused(larger, MEMLITH_INCOMPATIBLE));
  const std::string& said = larger.error().message();
  EXPECT_NE(said.find("the region has "), std::string::npos) << said;
  EXPECT_NE(said.find("Notes {unsigned long, unsigned long} of 16 bytes, aligned to 8, layout "), std::string::npos)
      << said;
  EXPECT_NE(said.find("LargerNotes of 24 bytes"), std::string::npos) << said;
  struct Huge {
    char bytes[1 << 20];
  };
  EXPECT_TRUE(refused(region.root<Huge>(), MEMLITH_INVALID));
  Region other = open(store, "other");
  static_cast<char*>(other.address())[0] = 'x';  // something that is no root
  EXPECT_TRUE(refused(other.root<Notes>(), MEMLITH_INCOMPATIBLE));
}

// Types of one size whose bytes mean something else.
template <class Made, class Asked>
void expect_refused_as(const Region& region, const std::string& made, const std::string& asked) {
  auto root = region.root<Made>();
  ASSERT_TRUE(fine(root));
  const Made before = **root;
  const auto other = region.root<Asked>();
  EXPECT_TRUE(refused(other, MEMLITH_INCOMPATIBLE));
  const std::string& said = other.error().message();
  EXPECT_NE(said.find("the region has " + made + " of "), std::string::npos) << said;
  EXPECT_NE(said.find("; the program expects " + asked + " of "), std::string::npos) << said;
  EXPECT_EQ(std::memcmp(&before, *region.root<Made>(), sizeof before), 0);
}

namespace same_size {
struct Price {
  std::int32_t cents;
};
struct Weight {
  float kilograms;
};
struct Renamed {
  std::int32_t cents;
};
template <class... T>
struct Many {
  std::uint64_t number;
};
}  // namespace same_size

TEST_F(CppInterface, RootOfAnotherTypeOfTheSameSizeIsRefused) {
  using namespace same_size;
  Store store = open();
  expect_refused_as<int, float>(open(store, "number"), "int", "float");
  expect_refused_as<std::int64_t, std::uint64_t>(open(store, "sign"), "long", "unsigned long");
  const std::string in = "memlith::test::(anonymous namespace)::same_size::";
  expect_refused_as<Price, Weight>(open(store, "member"), in + "Price {int}", in + "Weight {float}");
  expect_refused_as<Price, Renamed>(open(store, "name"), in + "Price {int}", in + "Renamed {int}");
  // A name that is longer than the header has room for: the beginning is kept, and a number for the rest.
  using Long = std::array<std::array<std::array<std::array<std::pair<Price, Weight>, 1>, 1>, 1>, 1>;
  using One = Many<Long, Long, Long, Long, Long, Long, Long, Long, Long, Long, Long, Long, Long, Long, Long, Price,
                   Price, Long, Weight>;
  using Other = Many<Long, Long, Long, Long, Long, Long, Long, Long, Long, Long, Long, Long, Long, Long, Long, Price,
                     Price, Long, Price>;
  Region region = open(store, "long");
  ASSERT_TRUE(fine(region.root<One>()));
  EXPECT_TRUE(refused(region.root<Other>(), MEMLITH_INCOMPATIBLE));
  EXPECT_TRUE(fine(region.root<One>()));
}

// A header that was stored over is refused, and the sentence has no bytes that a terminal would obey.
TEST_F(CppInterface, RootWithABrokenHeaderIsRefused) {
  Store store = open();
  Region region = open(store);
  ASSERT_TRUE(fine(region.root<Notes>()));
  std::memset(static_cast<char*>(region.address()) + 32, 0x1b, 480);
  const auto root = region.root<Notes>();
  EXPECT_TRUE(refused(root, MEMLITH_INCOMPATIBLE));
  EXPECT_EQ(root.error().message().find('\x1b'), std::string::npos);
}

// A root's type: bytes that mean the same in the next run.
TEST_F(CppInterface, RootsAreOfTypesThatMayLiveInARegion) {
  struct Plain {
    std::uint64_t numbers[4];
    std::pair<int, char> pair;
    Plain* next;
  };
  struct WithConstructor {
    explicit WithConstructor(int value) : number(value) {}
    int number;
  };
  static_assert(is_persistable_v<std::uint64_t> && is_persistable_v<char[64]> && is_persistable_v<Plain> &&
                is_persistable_v<WithConstructor> && is_persistable_v<std::atomic<std::uint64_t>> &&
                is_persistable_v<std::array<Plain, 3>> && is_persistable_v<std::optional<int>> &&
                is_persistable_v<std::tuple<int, char>> && is_persistable_v<Notes*>);
  struct WithString {
    std::string name;
  };
  struct Nested {
    int number;
    struct {
      WithString inner[2];
    } deep;
  };
  struct Virtual final {
    virtual int number() const { return 1; }
  };
  struct HoldsVirtual {
    Virtual object;
  };
  struct Destroyed {
    ~Destroyed() {}
  };
  static_assert(!is_persistable_v<std::string> && !is_persistable_v<std::vector<int>> &&
                !is_persistable_v<WithString> && !is_persistable_v<Nested> && !is_persistable_v<WithString[3]> &&
                !is_persistable_v<Virtual> && !is_persistable_v<HoldsVirtual> && !is_persistable_v<Destroyed> &&
                !is_persistable_v<std::unique_ptr<int>> && !is_persistable_v<std::map<int, int>> &&
                !is_persistable_v<std::function<void()>> && !is_persistable_v<Notes&> && !is_persistable_v<void> &&
                !is_persistable_v<void (*)()> && !is_persistable_v<int Notes::*>);
  // One that says so itself.
  Store store = open();
  Region region = open(store);
  auto own = region.root<OwnsInsideTheRegion>();
  ASSERT_TRUE(fine(own));
  EXPECT_EQ((*own)->number, 3u);
}

// Taking a failed result for a value ends the program with the sentence, in a build without assertions too.
TEST_F(CppInterface, TheValueOfAFailureEndsTheProgramWithItsSentence) {
  Store store = open();
  Region region = open(store);
  ASSERT_TRUE(fine(region.root<Notes>()));
  EXPECT_DEATH((*region.root<LargerNotes>())->more = 2, "its root object is of another type");
}

// A region that outlives its store, closed or destroyed, is harmless.
TEST_F(CppInterface, RegionMayOutliveItsStore) {
  {
    Store store = open();
    Region region = open(store);
    EXPECT_TRUE(fine(store.close()));
    EXPECT_TRUE(fine(store.close())) << "again";
    EXPECT_TRUE(fine(region.close()));
  }
  auto store = std::make_unique<Store>(open());
  Region region = open(*store);
  Region moved(std::move(region));
  store = nullptr;
  EXPECT_TRUE(fine(moved.close()));
}

// Closing a region twice, or one that was moved from, is nothing.
TEST_F(CppInterface, ClosingTwiceIsNothing) {
  Store store = open();
  Region region = open(store);
  Region moved(std::move(region));
  EXPECT_TRUE(fine(region.close()));
  EXPECT_TRUE(fine(moved.close()));
  EXPECT_TRUE(fine(moved.close()));
  EXPECT_TRUE(fine(store.region("main"))) << "it was really closed";
}

// Handles move: the new one works, the old one closes nothing, assignment closes what was there in the end.
TEST_F(CppInterface, HandlesMove) {
  Store first = open();
  Store store(std::move(first));
  Region a = open(store, "a");
  Region b = open(store, "b");
  static_cast<char*>(b.address())[0] = 'b';
  void* const address = b.address();
  {
    Region target = std::move(a);
    target = std::move(b);
    EXPECT_EQ(target.address(), address);
    EXPECT_TRUE(fine(target.persist()));
    EXPECT_EQ(target.info().name, std::string("b"));
    EXPECT_TRUE(refused(store.region("b"), MEMLITH_BUSY));
  }
  EXPECT_TRUE(fine(store.region("b")));
  Store other = std::move(store);
  EXPECT_EQ(other.regions().size(), 2u);
}

// Several regions in one, all regions, and one, with growth.
TEST_F(CppInterface, Persists) {
  {
    Store store = open();
    Region a = open(store, "a");
    Region b = open(store, "b");
    auto* const in_a = static_cast<char*>(a.address());
    auto* const in_b = static_cast<char*>(b.address());
    const std::uint64_t frames = store.info().frames;
    in_a[0] = in_b[0] = 1;
    EXPECT_TRUE(fine(Store::persist({&a, &b})));
    EXPECT_EQ(store.info().frames, frames + 1);
    EXPECT_TRUE(fine(b.grow(1 << 17)));
    in_a[1] = in_b[1 << 16] = 2;
    EXPECT_TRUE(fine(store.persist()));
    EXPECT_EQ(store.info().frames, frames + 2);
    EXPECT_TRUE(fine(Store::persist({})));
    EXPECT_TRUE(fine(store.checkpoint()));
    EXPECT_TRUE(refused(a.grow(1), MEMLITH_INVALID));
  }
  Store store = open();
  Region b = open(store, "b");
  EXPECT_EQ(b.size(), 1u << 17);
  EXPECT_EQ(static_cast<char*>(b.address())[1 << 16], 2);
  ASSERT_EQ(store.regions().size(), 2u);
  EXPECT_EQ(store.regions()[0].name, std::string("a"));
  EXPECT_TRUE(fine(store.remove("a")));
  EXPECT_TRUE(refused(store.remove("b"), MEMLITH_BUSY));
  EXPECT_EQ(store.regions().size(), 1u);
}

// Errors carry their code and the sentence of their own call, not of a later one.
TEST_F(CppInterface, ErrorsKeepTheirSentence) {
  const auto missing = Store::open(folder_ / "missing");
  const auto other = Store::open(folder_ / "other");
  EXPECT_TRUE(refused(missing, MEMLITH_NOT_FOUND));
  EXPECT_NE(missing.error().message().find("missing"), std::string::npos);
  EXPECT_NE(other.error().message().find("other"), std::string::npos);
  StoreOptions options;
  options.create = options.read_only = true;
  EXPECT_TRUE(refused(Store::open(folder_ / "store", options), MEMLITH_INVALID));
  Store store = open();
  EXPECT_TRUE(refused(store.region("none"), MEMLITH_NOT_FOUND));
}

// One ordinary file.
TEST_F(CppInterface, OpensFiles) {
  write_file(folder_ / "file", "0123456789");
  StoreOptions options;
  options.create = true;
  {
    auto store = Store::open_file(folder_ / "file", options);
    ASSERT_TRUE(fine(store));
    auto region = store->region("file");
    ASSERT_TRUE(fine(region));
    EXPECT_EQ(region->size(), 10u);
    static_cast<char*>(region->address())[9] = 'X';
    EXPECT_TRUE(fine(region->persist()));
    EXPECT_EQ(store->info().one_file, 1u);
  }
  EXPECT_EQ(read_file(folder_ / "file"), "012345678X");
}

}  // namespace
}  // namespace memlith::test
