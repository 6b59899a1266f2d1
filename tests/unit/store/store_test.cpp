// docs/guarantees.md, "After a crash": what was committed is there after reopening, whether the store was closed
// or dropped; a commit too large changes nothing; a log that is full makes room or says so.
#include "store/store.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <set>
#include <thread>

#include "device/raw_hosts.hpp"
#include "sim/nvme_host.hpp"
#include "store/place.hpp"
#include "support/loop_device.hpp"
#include "support/store_words.hpp"

namespace memlith::test {
namespace {

using namespace core;

enum class VolumeKind { simulated, folder, raw, nvme, loop };
enum class Leave { closed, dropped };  // dropped: as a kill -9 would

class StoreTest : public ::testing::TestWithParam<VolumeKind> {
 protected:
  StoreTest() {
    if (GetParam() == VolumeKind::simulated) {
      volume_ = std::make_unique<SimVolume>();
    } else if (GetParam() == VolumeKind::folder) {
      volume_ = make_posix_volume(folder_ / "store");
    } else if (GetParam() == VolumeKind::raw) {
      disk_ = std::make_unique<SimVolume>(formatted_sim_device(8 * kMiB, {4 * kKiB, kRawMapBytesMin}));
      volume_ = std::make_unique<RawVolume>(std::make_unique<SimRawHost>(*disk_));
    } else if (GetParam() == VolumeKind::nvme) {
      disk_ =
          std::make_unique<SimVolume>(as_sim_namespace(formatted_sim_device(8 * kMiB, {4 * kKiB, kRawMapBytesMin})));
      volume_ = std::make_unique<RawVolume>(make_sim_nvme_host(*disk_));
    }
  }
  void SetUp() override {
    if (GetParam() == VolumeKind::loop) {
      device_ = std::make_unique<LoopDevice>(64 * kMiB);
      MEMLITH_SKIP_WITHOUT(*device_);
      ASSERT_OK(format_raw_device(device_->path(), false));
      volume_ = std::move(must(place_of_store(device_->path(), StoreKind::folder)).volume);
    }
    open();
  }
  void open(const StoreOptions& options = tiny_options()) { store_ = must(Store::open(*volume_, options)); }
  void leave(Leave how) {
    if (how == Leave::closed) {
      EXPECT_OK(store_->close());
    }
    store_ = nullptr;
  }
  void reopen(Leave how, const StoreOptions& options = tiny_options()) {
    leave(how);
    open(options);
  }
  std::set<std::string> names() const {
    std::set<std::string> result;
    for (const ObjectInfo& info : store_->objects()) result.insert(info.name);
    return result;
  }

  TempFolder folder_;
  std::unique_ptr<LoopDevice> device_;
  std::unique_ptr<SimVolume> disk_;
  std::unique_ptr<Volume> volume_;
  std::unique_ptr<Store> store_;
};
std::string name_of_volume(const ::testing::TestParamInfo<VolumeKind>& given) {
  constexpr const char* kNames[] = {"Simulated", "Folder", "RawSimulated", "NvmeSimulated", "RawLoop"};
  return kNames[static_cast<int>(given.param)];
}
INSTANTIATE_TEST_SUITE_P(On, StoreTest,
                         ::testing::Values(VolumeKind::simulated, VolumeKind::folder, VolumeKind::raw, VolumeKind::nvme,
                                           VolumeKind::loop),
                         name_of_volume);

// Objects keep name, size, address and reserve over reopening, clean or not.
TEST_P(StoreTest, ObjectsAreFoundAgain) {
  const ObjectInfo a = must(store_->create("a", 8192, 0x510000000000, 1 * kGiB));
  const ObjectInfo b = must(store_->create("b", 4096, 0x520000000000, 2 * kGiB));
  EXPECT_NE(a.id, b.id);
  for (const Leave how : {Leave::dropped, Leave::closed, Leave::closed}) {
    reopen(how);
    ASSERT_EQ(names(), (std::set<std::string>{"a", "b"}));
    const ObjectInfo found = *store_->find("b");
    EXPECT_EQ(found.id, b.id);
    EXPECT_EQ(found.size_bytes, 4096u);
    EXPECT_EQ(found.address, 0x520000000000u);
    EXPECT_EQ(found.reserve_bytes, 2 * kGiB);
    EXPECT_FALSE(store_->find("c").has_value());
  }
}

// A new object holds zeros, also where a removed one has been.
TEST_P(StoreTest, NewObjectsAreZero) {
  const ObjectId old = create_object(*store_, "a", 8192);
  ASSERT_OK(commit(*store_, {{old, 0, filled(8192, 5)}}));
  ASSERT_OK(store_->remove(old));
  const ObjectId fresh = create_object(*store_, "a", 8192);
  EXPECT_NE(fresh, old) << "numbers are never used again";
  EXPECT_EQ(content_of(*store_, fresh), filled(8192, 0));
  reopen(Leave::dropped);
  EXPECT_EQ(content_of(*store_, fresh), filled(8192, 0));
}

// A removed object is gone, with its file, after any reopening; removing it again is not_found.
TEST_P(StoreTest, RemovedObjectsStayAway) {
  const ObjectId a = create_object(*store_, "a", 4096);
  const ObjectId b = create_object(*store_, "b", 4096);
  ASSERT_OK(commit(*store_, {{a, 0, filled(10, 1)}, {b, 0, filled(10, 2)}}));
  ASSERT_OK(store_->remove(a));
  EXPECT_ERROR(Errc::not_found, store_->remove(a));
  for (const Leave how : {Leave::dropped, Leave::closed}) {
    reopen(how);
    EXPECT_EQ(names(), std::set<std::string>{"b"});
    EXPECT_FALSE(must(volume_->exists("objects/" + std::to_string(a.value))));
    EXPECT_EQ(content_of(*store_, b)[0], std::byte{2});
  }
}

// A committed byte is there after reopening, however the store was left, and however often.
TEST_P(StoreTest, CommitsAreThereAfterReopening) {
  const ObjectId a = create_object(*store_, "a", 4096);
  Bytes expected = filled(4096, 0);
  int value = 0;
  for (const Leave how : {Leave::closed, Leave::dropped, Leave::dropped, Leave::closed, Leave::dropped}) {
    ++value;
    const std::uint64_t offset = static_cast<std::uint64_t>(value) * 100 + 1;
    ASSERT_OK(commit(*store_, {{a, offset, filled(101, value)}, {a, 4000, filled(96, value)}}));
    std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(offset), 101, static_cast<std::byte>(value));
    std::fill_n(expected.begin() + 4000, 96, static_cast<std::byte>(value));
    reopen(how);
    ASSERT_EQ(content_of(*store_, a), expected) << "after opening " << value;
  }
}

// Before a checkpoint the home is untouched (invariant 1); after it the home has everything and the log is empty.
TEST_P(StoreTest, OnlyCheckpointsWriteHome) {
  const ObjectId a = create_object(*store_, "a", 4096);
  ASSERT_OK(store_->checkpoint());
  ASSERT_OK(commit(*store_, {{a, 0, filled(4096, 1)}}));
  EXPECT_EQ(must(store_->read_home(a)), filled(4096, 0));
  EXPECT_GT(store_->log().used_bytes(), 0u);
  ASSERT_OK(store_->checkpoint());
  EXPECT_EQ(must(store_->read_home(a)), filled(4096, 1));
  EXPECT_EQ(store_->log().used_bytes(), 0u);
  EXPECT_OK(store_->checkpoint()) << "with nothing to do";
}

// A page committed a hundred times is written home once.
TEST_P(StoreTest, CheckpointsCoalesce) {
  const ObjectId a = create_object(*store_, "a", 4096);
  ASSERT_OK(store_->checkpoint());
  const std::uint64_t before = store_->counters().home_bytes.load();
  for (int i = 0; i < 30; ++i) ASSERT_OK(commit(*store_, {{a, 0, filled(512, i)}}));
  ASSERT_OK(store_->checkpoint());
  EXPECT_EQ(store_->counters().home_bytes.load() - before, 512u);
}

// Opening a dropped store replays its frames and reports progress that ends where it said it would; a closed one
// replays nothing.
TEST_P(StoreTest, OpeningReplaysWhatWasNotCheckpointed) {
  const ObjectId a = create_object(*store_, "a", 4096);
  for (int i = 0; i < 5; ++i) ASSERT_OK(commit(*store_, {{a, 0, filled(512, i)}}));
  leave(Leave::dropped);
  StoreOptions options = tiny_options();
  std::uint64_t last = 0;
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    EXPECT_GT(done, last);
    EXPECT_LE(done, total);
    last = done;
  };
  open(options);
  EXPECT_FALSE(store_->was_clean());
  EXPECT_EQ(store_->counters().replayed_commits, 6u);  // the creation is one
  EXPECT_EQ(store_->counters().replayed_bytes, last);
  reopen(Leave::closed);
  EXPECT_TRUE(store_->was_clean());
  EXPECT_EQ(store_->counters().replayed_commits, 0u);
}

// An empty commit, one without bytes, and one of the last byte of an object are commits like others.
TEST_P(StoreTest, SmallestCommits) {
  const ObjectId a = create_object(*store_, "a", 4096);
  EXPECT_OK(commit(*store_, {}));
  EXPECT_OK(commit(*store_, {{a, 0, {}}}));
  EXPECT_OK(commit(*store_, {{a, 4095, filled(1, 9)}}));
  reopen(Leave::dropped);
  EXPECT_EQ(content_of(*store_, a)[4095], std::byte{9});
}

// A commit of many extents, overlapping ones among them, applies them in their order.
TEST_P(StoreTest, ExtentsApplyInOrder) {
  const ObjectId a = create_object(*store_, "a", 64 * kKiB);
  std::vector<Piece> pieces;
  Bytes expected = filled(64 * kKiB, 0);
  Random random(3);
  for (int i = 0; i < 500; ++i) {
    const std::uint64_t offset = random.below(60'000);
    const std::uint64_t count = random.below(64);
    pieces.push_back({a, offset, filled(count, i)});
    std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(offset), count, static_cast<std::byte>(i));
  }
  ASSERT_OK(commit(*store_, pieces));
  reopen(Leave::dropped);
  EXPECT_TRUE(content_of(*store_, a) == expected);
}

// A commit larger than the log makes it grow, up to the limit, for good.
TEST_P(StoreTest, LargeCommitsGrowTheLog) {
  const ObjectId a = create_object(*store_, "a", 1 * kMiB);
  const std::uint64_t before = store_->log().capacity_bytes();
  ASSERT_OK(commit(*store_, {{a, 0, filled(150 * kKiB, 1)}}));
  const std::uint64_t after = store_->log().capacity_bytes();
  EXPECT_GT(after, before);
  reopen(Leave::dropped);
  // Nothing behind the large commit proves it durable, so opening wrote it once more, beside itself.
  const std::uint64_t reopened = store_->log().capacity_bytes();
  EXPECT_LE(reopened, 2 * after);
  EXPECT_EQ(content_of(*store_, a)[150 * kKiB - 1], std::byte{1});
  ASSERT_OK(commit(*store_, {{a, 0, filled(150 * kKiB, 2)}}));
  EXPECT_EQ(store_->log().capacity_bytes(), reopened) << "it fits now";
}

// Past the limit a commit is `full`, in words; nothing changed, and smaller commits go on.
TEST_P(StoreTest, CommitsPastTheLimitAreFull) {
  const ObjectId a = create_object(*store_, "a", 1 * kMiB);
  ASSERT_OK(commit(*store_, {{a, 0, filled(4096, 1)}}));
  const Lsn head = store_->log().head();
  for (int round = 0; round < 3; ++round) {
    EXPECT_ERROR(Errc::full, commit(*store_, {{a, 0, filled(300 * kKiB, 2)}}));
    EXPECT_NE(last_error_text().find("split the transaction"), std::string::npos) << last_error_text();
    EXPECT_EQ(store_->log().head(), head);
  }
  EXPECT_FALSE(store_->log().poisoned());
  ASSERT_OK(commit(*store_, {{a, 8192, filled(4096, 3)}}));
  reopen(Leave::dropped);
  const Bytes content = content_of(*store_, a);
  EXPECT_EQ(content[0], std::byte{1});
  EXPECT_EQ(content[8192], std::byte{3});
}

// A commit that fits the empty log fits it wherever its head stands: commits just under the capacity go on for ever.
TEST_P(StoreTest, CommitsNearTheCapacityAlwaysFit) {
  const ObjectId a = create_object(*store_, "a", 1 * kMiB);
  StoreOptions options = tiny_options();
  options.log_max_bytes = options.log_bytes;  // may not grow
  reopen(Leave::closed, options);
  const std::uint64_t bytes = store_->log().capacity_bytes() - store_->log().geometry().segment_bytes() - 4096;
  for (int i = 0; i < 40; ++i) {
    ASSERT_OK(commit(*store_, {{a, 0, filled(bytes, i)}})) << i;
    ASSERT_OK(commit(*store_, {{a, 512, filled(1000, i + 1)}})) << i;
  }
  reopen(Leave::dropped, options);
  const Bytes content = content_of(*store_, a);
  EXPECT_EQ(content[0], std::byte{39});
  EXPECT_EQ(content[512], std::byte{40});
}

struct Counted {
  bool manual;
  std::uint32_t in_flight;
};

// Hundreds of commits go through a log that holds a few, with checkpoints in the way or in the background.
TEST_P(StoreTest, ManyCommitsThroughATinyLog) {
  for (const bool manual : {true, false}) {
    StoreOptions options = tiny_options();
    options.manual_checkpoint = manual;
    options.log_max_bytes = options.log_bytes;
    reopen(Leave::closed, options);
    const std::string name = manual ? "manual" : "background";
    const ObjectId a = create_object(*store_, name, 64 * kKiB);
    Bytes expected = filled(64 * kKiB, 0);
    Random random(5);
    for (int i = 0; i < 600; ++i) {
      const std::uint64_t offset = random.below(50'000);
      const std::uint64_t count = random.below(9'000);
      ASSERT_OK(commit(*store_, {{a, offset, filled(count, i)}})) << i;
      std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(offset), count, static_cast<std::byte>(i));
    }
    EXPECT_GT(store_->counters().checkpoints.load(), 5u);
    reopen(Leave::dropped, options);
    ASSERT_TRUE(content_of(*store_, a) == expected) << name;
  }
}

// Threads that commit to objects of their own through a tiny log: each finds its last commit, whatever the others did.
TEST_P(StoreTest, ThreadsThroughATinyLog) {
  for (const auto& [manual, in_flight] : {Counted{true, 1}, Counted{true, 3}, Counted{false, 1}, Counted{false, 2}}) {
    StoreOptions options = tiny_options();
    options.manual_checkpoint = manual;
    options.log.in_flight_max = in_flight;
    options.log.batch_bytes = 16 * kKiB;
    options.log.stream_chunk_bytes = 4 * kKiB;
    reopen(Leave::dropped, options);
    constexpr int kThreads = 4;
    std::vector<ObjectId> objects;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      objects.push_back(create_object(*store_, std::to_string(t) + (manual ? "m" : "t") + std::to_string(in_flight),
                                      64 * kKiB));
    }
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 1; i <= 60; ++i) {
          const std::uint64_t count = i % 7 == 0 ? 20'000 : 700;  // some are streamed
          ASSERT_OK(commit(*store_, {{objects[static_cast<std::size_t>(t)], 0, filled(count, i)}}));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    reopen(Leave::dropped, options);
    for (const ObjectId id : objects) {
      const Bytes content = content_of(*store_, id);
      ASSERT_EQ(content[0], std::byte{60});
      ASSERT_EQ(content[699], std::byte{60});
      ASSERT_EQ(content[700], std::byte{56});
    }
  }
}

// Directory changes, commits and checkpoints side by side leave the directory and the bytes right.
TEST_P(StoreTest, CreatingAndCommittingSideBySide) {
  StoreOptions options = tiny_options();
  options.manual_checkpoint = false;
  reopen(Leave::closed, options);
  const ObjectId steady = create_object(*store_, "steady", 8192);
  std::thread other([&] {
    for (int i = 0; i < 200; ++i) ASSERT_OK(commit(*store_, {{steady, 0, filled(2000, i)}}));
  });
  for (int i = 0; i < 20; ++i) {
    const ObjectId id = create_object(*store_, "n" + std::to_string(i), 4096);
    ASSERT_OK(commit(*store_, {{id, 0, filled(4096, i)}}));
    if (i % 2 == 0) {
      ASSERT_OK(store_->remove(id));
    }
    ASSERT_OK(store_->checkpoint());
  }
  other.join();
  reopen(Leave::dropped, options);
  EXPECT_EQ(names().size(), 11u);
  EXPECT_EQ(content_of(*store_, steady)[0], std::byte{199});
  EXPECT_EQ(content_of(*store_, store_->find("n7")->id), filled(4096, 7));
}

// The directory grows beyond its first 63 entries, frees entries, and uses them again.
TEST_P(StoreTest, DirectoryGrows) {
  std::set<std::string> expected;
  for (int i = 0; i < 150; ++i) {
    (void)create_object(*store_, "object " + std::to_string(i), 4096);
    expected.insert("object " + std::to_string(i));
  }
  reopen(Leave::dropped);
  ASSERT_EQ(names(), expected);
  for (int i = 0; i < 150; i += 2) {
    const std::string name = "object " + std::to_string(i);
    ASSERT_OK(store_->remove(store_->find(name)->id));
    expected.erase(name);
  }
  const std::uint64_t bytes = must(store_->read_home(store_->find("object 1")->id)).size();
  EXPECT_EQ(bytes, 4096u);
  for (int i = 0; i < 70; ++i) {
    (void)create_object(*store_, "again " + std::to_string(i), 4096);
    expected.insert("again " + std::to_string(i));
  }
  reopen(Leave::closed);
  EXPECT_EQ(names(), expected);
}

// Names of one byte and of 199 bytes, of any bytes but zero, come back as they were.
TEST_P(StoreTest, NamesAtTheirLimits) {
  const std::set<std::string> wanted = {"x", std::string(kNameBytesMax, 'n'), "with / and \n and \xff", "..", "0"};
  for (const std::string& name : wanted) (void)create_object(*store_, name, 4096);
  reopen(Leave::dropped);
  EXPECT_EQ(names(), wanted);
}

// A committed size is there after a crash; one that was only reserved is not.
TEST_P(StoreTest, SizesAreCommitted) {
  const ObjectId a = create_object(*store_, "a", 4096);
  ASSERT_OK(store_->reserve_home(a, 8192));
  reopen(Leave::dropped);
  EXPECT_EQ(store_->find("a")->size_bytes, 4096u);
  ASSERT_OK(store_->reserve_home(a, 12288));
  ASSERT_OK(commit(*store_, {{a, 12000, filled(288, 3)}}, {{a, 12288}}));
  reopen(Leave::dropped);
  EXPECT_EQ(store_->find("a")->size_bytes, 12288u);
  const Bytes content = content_of(*store_, a);
  EXPECT_EQ(content[11999], std::byte{0});
  EXPECT_EQ(content[12287], std::byte{3});
}

// A store that is open is busy for every second opener, writer or reader, and the message names the holder.
TEST_P(StoreTest, SecondOpenIsBusy) {
  StoreOptions reading = tiny_options();
  reading.create = false;
  reading.read_only = true;
  for (const StoreOptions& options : {tiny_options(), reading}) {
    EXPECT_ERROR(Errc::busy, Store::open(*volume_, options));
    EXPECT_NE(last_error_text().find("this very process, process " + std::to_string(::getpid()) + " ("),
              std::string::npos)
        << last_error_text();
  }
  leave(Leave::dropped);
  EXPECT_OK(Store::open(*volume_, tiny_options()));
}

// Opening without create does not make a store, and exclusive creation does not take one that is there.
TEST_P(StoreTest, OpenModes) {
  leave(Leave::closed);
  StoreOptions options = tiny_options();
  options.exclusive = true;
  EXPECT_ERROR(Errc::exists, Store::open(*volume_, options));
  options.read_only = true;
  EXPECT_ERROR(Errc::invalid, Store::open(*volume_, options));
  SimVolume empty;
  options = tiny_options();
  options.create = false;
  EXPECT_ERROR(Errc::not_found, Store::open(empty, options));
  EXPECT_TRUE(empty.image().files.empty());
  options.kind = StoreKind::one_file;
  options.file_name = "file";
  EXPECT_ERROR(Errc::not_found, Store::open(empty, options));
  EXPECT_TRUE(empty.image().files.empty());
}

// Closing twice over, with and without commits between, keeps the log's place.
TEST_P(StoreTest, OpeningAndClosingForALongTime) {
  const ObjectId a = create_object(*store_, "a", 4096);
  for (int i = 1; i <= 30; ++i) {
    if (i % 3 != 0) {
      ASSERT_OK(commit(*store_, {{a, 0, filled(3000, i)}}));
    }
    reopen(i % 4 == 0 ? Leave::dropped : Leave::closed);
    ASSERT_EQ(content_of(*store_, a)[0], static_cast<std::byte>(i % 3 != 0 ? i : i - 1));
  }
}

}  // namespace
}  // namespace memlith::test
