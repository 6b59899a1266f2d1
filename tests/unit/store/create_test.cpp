// docs/guarantees.md, "memlith_store_open": a store or an object exists completely or not at all; a full disk is an
// error that changes nothing; of several simultaneous creators one wins, and the others get BUSY.
#include <gtest/gtest.h>

#include <barrier>
#include <thread>

#include "sim/decorators.hpp"
#include "sim/power_cuts.hpp"
#include "support/store_words.hpp"

namespace memlith::test {
namespace {

using namespace core;
using Kind = SimFaults::Kind;

class CreateStore : public ::testing::Test {
 protected:
  std::unique_ptr<Store> open() { return must(Store::open(volume_, tiny_options())); }
  SimVolume volume_;
};

// A disk that is full at any step of an object's creation: no_space, the store goes on, and later there is room again.
TEST_F(CreateStore, FullDiskLeavesTheStoreUsable) {
  auto store = open();
  const ObjectId first = create_object(*store, "first", 4096);
  std::uint64_t fired = 0;
  for (std::uint64_t nth = 0; nth < 10; ++nth) {
    volume_.faults().plan(Kind::no_space, nth);
    const auto made = store->create("n" + std::to_string(nth), 4096, 0x510000000000, 1 * kGiB);
    volume_.faults().clear();
    if (volume_.faults().fired(Kind::no_space) == fired) break;  // beyond the last step
    fired = volume_.faults().fired(Kind::no_space);
    EXPECT_ERROR(Errc::no_space, made);
    EXPECT_EQ(store->objects().size(), 1u);
    EXPECT_EQ(volume_.image().files.size(), 3u) << "the file of the failed creation is still there";
    ASSERT_OK(commit(*store, {{first, 0, filled(10, static_cast<int>(nth) + 1)}}));
  }
  EXPECT_GE(fired, 2u);
  EXPECT_OK(store->create("later", 4096, 0x510000000000, 1 * kGiB));
  store = nullptr;
  store = open();
  EXPECT_EQ(content_of(*store, first)[0], static_cast<std::byte>(fired));
}

// A disk that fails where an object grows ends the store there and then, and not at the next checkpoint.
TEST_F(CreateStore, AFailedGrowthPoisons) {
  for (const Kind kind : {Kind::fail_flush, Kind::fail_resize}) {
    SimVolume volume;
    auto store = must(Store::open(volume, tiny_options()));
    const ObjectId object = create_object(*store, "a", 4096);
    volume.faults().plan(kind, 0);
    EXPECT_ERROR(Errc::io, store->reserve_home(object, 65536));
    EXPECT_TRUE(store->log().poisoned());
    EXPECT_ERROR(Errc::poisoned, commit(*store, {{object, 0, filled(8, 1)}}));
  }
}

// Disks have sectors of one size or another, and every transfer of the log's is made of whole ones: in creation,
// commits, growth, checkpoints, recovery and closing.
TEST_F(CreateStore, OnSectorsOfAnySize) {
  for (const std::uint32_t block_bytes : {512u, 1024u, 2048u, 4096u}) {
    SimVolume volume;
    volume.direct_block_bytes = block_bytes;
    ObjectId object;
    for (int round = 1; round <= 4; ++round) {
      auto opened = Store::open(volume, tiny_options());
      ASSERT_OK(opened) << block_bytes;
      Store& store = **opened;
      if (round == 1) object = create_object(store, "a", 256 * kKiB);
      if (round > 1) {
        EXPECT_EQ(content_of(store, object), filled(256 * kKiB, round - 1)) << block_bytes;
      }
      for (std::uint64_t i = 0; i < 20; ++i) ASSERT_OK(commit(store, {{object, i * 777, filled(3000, 99)}}));
      ASSERT_OK(commit(store, {{object, 0, filled(128 * kKiB, round)}}));  // larger than the log was made
      ASSERT_OK(commit(store, {{object, 128 * kKiB, filled(128 * kKiB, round)}}));
      EXPECT_EQ(store.log().superblock().block_bytes, block_bytes == 512 ? 512u : 4096u);
      if (round % 2 == 0) {
        ASSERT_OK(store.close());
      }
    }
  }
}

// The same on a byte-addressable medium: frames are padded to lines, and a store whose frames are is refused to writers
// that could tear a sector.
TEST_F(CreateStore, OnLines) {
  SimImage image;
  image.lines = true;
  ObjectId object;
  for (int round = 1; round <= 4; ++round) {
    SimVolume volume(image);
    auto store = must(Store::open(volume, tiny_options()));
    if (round == 1) object = create_object(*store, "a", 256 * kKiB);
    if (round > 1) {
      EXPECT_EQ(content_of(*store, object), filled(256 * kKiB, round - 1));
    }
    const Lsn before = store->durable_lsn();
    ASSERT_OK(commit(*store, {{object, 0, filled(8, 99)}}));
    EXPECT_LE(bytes_between(before, store->durable_lsn()), 128u);
    for (std::uint64_t i = 0; i < 20; ++i) ASSERT_OK(commit(*store, {{object, i * 777, filled(3000, 99)}}));
    ASSERT_OK(commit(*store, {{object, 0, filled(128 * kKiB, round)}}));  // larger than the log was made
    ASSERT_OK(commit(*store, {{object, 128 * kKiB, filled(128 * kKiB, round)}}));
    EXPECT_EQ(store->log().superblock().block_bytes, 64u);
    if (round % 2 == 0) {
      ASSERT_OK(store->close());
    }
    image = volume.image();
  }
  image.lines = false;
  SimVolume sectors(image);
  const auto refused = Store::open(sectors, tiny_options());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().category, Errc::unsupported);
  StoreOptions reading = tiny_options();
  reading.create = false;
  reading.read_only = true;
  EXPECT_OK(Store::open(sectors, reading).status());
}

// The log is no larger at first than it may ever become.
TEST_F(CreateStore, TheLogIsNotMadeLargerThanItMayGrow) {
  StoreOptions options = tiny_options();
  options.log_bytes = options.slot_bytes = 0;
  options.log_max_bytes = 1 * kMiB;
  auto store = must(Store::open(volume_, options));
  EXPECT_LE(store->log().capacity_bytes(), 1 * kMiB);
}

// The same where the directory itself has to grow.
TEST_F(CreateStore, FullDiskWhenTheDirectoryGrows) {
  auto store = open();
  for (int i = 0; i < 63; ++i) (void)create_object(*store, std::to_string(i), 4096);
  volume_.faults().plan(Kind::no_space, 0);
  EXPECT_ERROR(Errc::no_space, store->create("64th", 4096, 0x510000000000, 1 * kGiB));
  EXPECT_EQ(volume_.faults().fired(Kind::no_space), 1u);
  EXPECT_OK(store->create("64th", 4096, 0x510000000000, 1 * kGiB));
  store = nullptr;
  EXPECT_EQ(open()->objects().size(), 64u);
}

// A full disk while the store itself is created, at any step: no_space, and the next attempt succeeds.
TEST_F(CreateStore, FullDiskWhileTheStoreIsMade) {
  std::uint64_t nth = 0;
  for (;; ++nth) {
    SimVolume volume;
    volume.faults().plan(Kind::no_space, nth);
    const auto store = Store::open(volume, tiny_options());
    if (volume.faults().fired(Kind::no_space) == 0) break;
    EXPECT_ERROR(Errc::no_space, store) << nth;
    EXPECT_OK(Store::open(volume, tiny_options())) << nth;
  }
  EXPECT_GE(nth, 4u);
}

// A creation that failed after it had named its log takes back what it made, and the power may be cut meanwhile. The
// medium may then have one of the changed names only, or all but one. A path must then have no store or an empty one,
// and never a log without its directory.
TEST(CreateStoreInFolder, AFailureAndAPowerCutLeaveNoHalfStore) {
  std::uint64_t failed = 0;
  for (std::uint64_t nth = 0;; ++nth) {
    SimVolume volume({}, true);
    volume.faults().plan(Kind::no_memory, nth);
    auto store = Store::open(volume, tiny_options());
    if (volume.faults().fired(Kind::no_memory) == 0) break;
    if (store.ok()) continue;
    ++failed;
    for (CrashPoints points(volume.trace()); points.next();) {
      const SimMedium& medium = points.medium();
      for (std::size_t one = 0; one <= medium.pending_count(); ++one) {
        for (const bool kept : {false, true}) {
          SimVolume rest(medium.cut([&](std::size_t item) { return (item == one) == kept; }));
          EXPECT_OK(Store::open(rest, tiny_options())) << "read " << nth << ", operation " << medium.position() << ", "
                                                       << one << (kept ? " kept" : " lost") << ":\n"
                                                       << volume.trace().describe(medium.position());
        }
      }
    }
  }
  EXPECT_GE(failed, 2u);
}

// A log that cannot grow because the disk is full: no_space, nothing changed, smaller commits go on.
TEST_F(CreateStore, FullDiskWhenTheLogGrows) {
  auto store = open();
  const ObjectId a = create_object(*store, "a", 1 * kMiB);
  volume_.faults().plan(Kind::no_space, 0);
  EXPECT_ERROR(Errc::no_space, commit(*store, {{a, 0, filled(150 * kKiB, 1)}}));
  EXPECT_EQ(volume_.faults().fired(Kind::no_space), 1u);
  EXPECT_FALSE(store->log().poisoned());
  ASSERT_OK(commit(*store, {{a, 0, filled(1000, 2)}}));
  ASSERT_OK(commit(*store, {{a, 2000, filled(150 * kKiB, 3)}}));
  store = nullptr;
  store = open();
  EXPECT_EQ(content_of(*store, a)[999], std::byte{2});
  EXPECT_EQ(content_of(*store, a)[2000], std::byte{3});
}

// A folder with something else in it is not taken for a store's.
TEST(CreateStoreInFolder, NotAmongOtherFiles) {
  const TempFolder folder;
  write_file(folder / "precious", "x");
  auto volume = make_posix_volume(folder.path());
  EXPECT_ERROR(Errc::invalid, Store::open(*volume, tiny_options()));
  EXPECT_NE(last_error_text().find("precious"), std::string_view::npos) << last_error_text();
  EXPECT_EQ(read_folder(folder.path()).size(), 1u);
}

// A volume on which another program intervenes: before its n-th call it runs `intrusion`, once.
class IntrudedVolume final : public VolumeDecorator {
 public:
  IntrudedVolume(Volume& volume, std::uint64_t nth, std::function<void()> intrusion)
      : VolumeDecorator(volume), left_(nth), intrusion_(std::move(intrusion)) {}
  bool intruded() const { return intruded_; }

 private:
  void before(const char*) override {
    if (intruded_ || left_-- != 0) return;
    intruded_ = true;
    intrusion_();
  }
  std::uint64_t left_;
  std::function<void()> intrusion_;
  bool intruded_ = false;
};

// It cannot be read whether something of a store is left there.
class Unreadable final : public VolumeDecorator {
 public:
  using VolumeDecorator::VolumeDecorator;
  Result<std::vector<std::string>> list(std::string_view folder) override {
    if (folder == "objects") return fail_errno(EIO, Detail::open, "objects: cannot list it");
    return VolumeDecorator::list(folder);
  }
  Result<SeenNotice> look_at_notice(std::string_view, std::uint64_t) override {
    return fail_errno(EIO, Detail::read, "the page of counters: cannot read it");
  }
};

TEST(CreateStoreInFolder, NotWhereItCannotBeReadWhatIsLeft) {
  for (const StoreKind kind : {StoreKind::folder, StoreKind::one_file}) {
    SimVolume volume;
    if (kind == StoreKind::one_file) (void)must(volume.open("data", OpenMode::create, Caching::buffered));
    Unreadable unreadable(volume);
    StoreOptions options = tiny_options();
    options.kind = kind;
    options.file_name = "data";
    EXPECT_ERROR(Errc::io, Store::open(unreadable, options).status());
    EXPECT_EQ(volume.image().files.size(), kind == StoreKind::one_file ? 1U : 0U);
    EXPECT_OK(Store::open(volume, options).status());
  }
}

// Two create one store, the second in between any two steps of the first, keeping it or closing it at once: each has it
// or hears `busy`, never anything else, and no scaffolding is left.
TEST(CreateStoreInFolder, TwoInterleavedAtEveryStep) {
  for (const StoreKind kind : {StoreKind::folder, StoreKind::one_file}) {
    for (const bool keeps : {true, false}) {
      StoreOptions options = tiny_options();
      options.kind = kind;
      options.file_name = "data";
      for (std::uint64_t nth = 0;; ++nth) {
        const TempFolder folder;
        SCOPED_TRACE("before call " + std::to_string(nth) + (keeps ? ", kept" : ", closed") + ", kind " +
                     std::to_string(static_cast<int>(kind)));
        auto other_volume = make_posix_volume(folder.path());
        std::unique_ptr<Store> kept;
        auto inner = make_posix_volume(folder.path());
        IntrudedVolume volume(*inner, nth, [&] {
          auto other = Store::open(*other_volume, options);
          if (other.ok()) {
            kept = std::move(*other);
          } else {
            EXPECT_ERROR(Errc::busy, other) << "the second";
          }
          if (!keeps) kept = nullptr;
        });
        {
          auto store = Store::open(volume, options);
          if (!volume.intruded()) break;
          EXPECT_TRUE(store.ok() || is_error(store, Errc::busy)) << "the first: " << told(store.status());
          EXPECT_TRUE(store.ok() || kept != nullptr) << "neither has it: " << last_error_text();
          EXPECT_FALSE(store.ok() && kept != nullptr) << "both have it";
        }
        kept = nullptr;
        EXPECT_OK(Store::open(*other_volume, options));
        EXPECT_FALSE(std::filesystem::exists(folder / "log.new") ||
                     std::filesystem::exists(folder / "data.memlith.new"));
      }
    }
  }
}

// Eight openers create one store at the same moment, again and again: one of them has it, the others hear `busy`, and
// no scaffolding is left.
TEST(CreateStoreInFolder, ManyAtOnce) {
  for (int round = 0; round < 40; ++round) {
    const TempFolder folder;
    constexpr int kOpeners = 8;
    std::barrier together(kOpeners);
    std::barrier done(kOpeners);
    std::atomic<int> opened{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < kOpeners; ++i) {
      threads.emplace_back([&] {
        auto volume = make_posix_volume(folder / "store");
        together.arrive_and_wait();
        auto store = Store::open(*volume, tiny_options());
        if (store.ok()) {
          ++opened;
        } else {
          EXPECT_ERROR(Errc::busy, store) << "round " << round;
        }
        done.arrive_and_wait();
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_LE(opened.load(), 1);
    auto volume = make_posix_volume(folder / "store");
    EXPECT_OK(Store::open(*volume, tiny_options()));
    EXPECT_FALSE(std::filesystem::exists(folder / "store/log.new")) << "round " << round;
    if (::testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace memlith::test
