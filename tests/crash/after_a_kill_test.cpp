// A program is killed between a change and its flush. The kernel keeps the change, so the next program finds it and
// builds on it; then the power fails, and everything unflushed is lost. docs/guarantees.md, "After a crash";
// docs/architecture.md, crash case 9. [crash/killed]
//
// Each test is one fault that the crash laboratory or the power rig found, at its smallest: the operation after which
// the program dies, what the next one does, and the one cut that showed it.
#include <gtest/gtest.h>

#include <functional>

#include "sim/power_cuts.hpp"
#include "support/store_words.hpp"

namespace memlith::test {
namespace {

using namespace core;

constexpr std::uint64_t kAddress = 0x550000000000;

StoreOptions file_options() {
  StoreOptions options = tiny_options();
  options.kind = StoreKind::one_file;
  options.file_name = "data";
  return options;
}

using Matches = std::function<bool(const SimRecord&)>;

Matches flush_of(const std::string& what) {
  return [what](const SimRecord& record) {
    return (record.op == SimOp::flush && what == "file") || (record.op == SimOp::sync_folder && what == "folder");
  };
}

// A disk, one program after another on it, and a power cut at the end.
class AfterAKill : public ::testing::Test {
 protected:
  // The program dies before the first operation that matches, counted from the `from`-th; the next one finds its files.
  void kill_before(std::size_t from, const Matches& matches) {
    const auto& records = volume_->trace().records;
    std::size_t at = from;
    while (at < records.size() && !matches(records[at])) ++at;
    ASSERT_LT(at, records.size()) << "nothing of the kind was done:\n" << volume_->trace().describe(records.size());
    volume_ = std::make_unique<SimVolume>(volume_->trace(), at);
  }
  // The disk after a power cut behind `count` operations. `kept` says what was not flushed and made it nevertheless.
  SimImage cut(std::size_t count, const std::function<bool(const SimMedium&, const SimMedium::Item&)>& kept) const {
    const SimMedium medium(volume_->trace(), count);
    return medium.cut([&](std::size_t item) { return kept(medium, medium.pending(item)); });
  }
  [[nodiscard]] SimImage cut_with_all_lost() const {
    return SimMedium(volume_->trace(), volume_->operations()).durable();
  }
  std::unique_ptr<Store> open(const StoreOptions& options = tiny_options()) {
    return must(Store::open(*volume_, options));
  }

  std::unique_ptr<SimVolume> volume_ = std::make_unique<SimVolume>(SimImage{}, true);
};

// Found by the power rig, on ext4, XFS and Btrfs. A commit's frame was written; the program died before its flush. The
// next opening read the frame, took it for durable, and wrote its bytes home. A power cut in the middle of that left a
// part of them at home, and of the frame nothing. The log is flushed before anything of it goes home.
TEST_F(AfterAKill, FramesAreFlushedBeforeTheyGoHome) {
  auto store = open();
  const ObjectId a = create_object(*store, "a", 4096);
  ASSERT_OK(store->checkpoint());
  const std::size_t begin = volume_->operations();
  ASSERT_OK(commit(*store, {{a, 0, filled(1500, 1)}}));  // three sectors at home
  store = nullptr;
  kill_before(begin, flush_of("file"));
  const std::size_t opened_at = volume_->operations();
  store = open();
  ASSERT_EQ(store->counters().replayed_commits, 1u);
  store = nullptr;

  // Wherever the power goes: of what is unflushed, the medium gets the first sector of what was on its way home.
  std::size_t halves = 0;
  for (std::size_t count = opened_at; count <= volume_->operations(); ++count) {
    SimVolume rest(cut(count, [&](const SimMedium& medium, const SimMedium::Item& item) {
      const bool first = item.op == SimOp::write && item.skip == 0 && medium.name_of_file(item.file) == "objects/1";
      halves += first ? 1 : 0;
      return first;
    }));
    auto again = must(Store::open(rest, tiny_options()));
    const Bytes found = content_of(*again, a);
    EXPECT_TRUE(found[0] == found[600] && found[600] == found[1400])
        << "half a commit after operation " << count << ":\n"
        << volume_->trace().describe(count);
  }
  EXPECT_GE(halves, 1u) << "no cut struck between a write home and its flush";
}

// A reader changes nothing, but what it has shown must not be taken back by a power cut: it flushes the log before it
// looks.
TEST_F(AfterAKill, FramesAreFlushedBeforeAReaderSeesThem) {
  auto store = open();
  const ObjectId a = create_object(*store, "a", 4096);
  ASSERT_OK(store->checkpoint());
  const std::size_t begin = volume_->operations();
  ASSERT_OK(commit(*store, {{a, 0, filled(1500, 1)}}));
  store = nullptr;
  kill_before(begin, flush_of("file"));
  StoreOptions reading = tiny_options();
  reading.create = false;
  reading.read_only = true;
  store = open(reading);
  const Bytes seen = content_of(*store, a);
  ASSERT_EQ(seen[0], filled(1, 1)[0]) << "the frame was not there to be seen";
  store = nullptr;

  SimVolume rest(cut_with_all_lost());
  auto again = must(Store::open(rest, tiny_options()));
  EXPECT_EQ(content_of(*again, a), seen);
}

// Found by the laboratory, when it had power fail while the disk was at several writes. The last copy of the superblock
// was written; the program died before its flush. The next one read that copy as the newest and wrote the other. A
// power cut left both torn, and the whole store was lost. The log is flushed before an opening writes a superblock.
TEST_F(AfterAKill, TheNewestSuperblockIsFlushedBeforeTheOtherIsWritten) {
  auto store = open();
  const ObjectId a = create_object(*store, "a", 4096);
  ASSERT_OK(commit(*store, {{a, 0, filled(100, 1)}}));
  ASSERT_OK(store->close());
  store = nullptr;
  const auto& records = volume_->trace().records;
  std::size_t last_write = records.size() - 1;
  while (records[last_write].op != SimOp::write) --last_write;
  ASSERT_LT(records[last_write].offset, kSlotsOffset) << "not a superblock";
  kill_before(last_write, flush_of("file"));
  const std::size_t opened_at = volume_->operations();
  store = open();
  store = nullptr;

  std::size_t torn = 0;
  for (std::size_t count = opened_at; count <= volume_->operations(); ++count) {
    const SimMedium medium(volume_->trace(), count);
    std::vector<SimChoice> choices(medium.pending_count());
    for (std::size_t i = 0; i < choices.size(); ++i) {
      const SimMedium::Item& item = medium.pending(i);
      const bool superblock = item.op == SimOp::write && medium.name_of_file(item.file) == "log" &&
                              medium.record_of(item).offset < kSlotsOffset;
      choices[i].fate = superblock ? SimFate::garbage : SimFate::kept;
      torn += superblock ? 1 : 0;
    }
    SimVolume rest(medium.cut(choices, 1));
    auto again = Store::open(rest, tiny_options());
    ASSERT_OK(again) << "after operation " << count << ":\n" << volume_->trace().describe(count);
    EXPECT_EQ(content_of(**again, a)[99], std::byte{1});
  }
  EXPECT_GE(torn, 1u) << "no cut struck between the write of a superblock and its flush";
}

// A new store was renamed into its place; the program died before the folder was flushed. The next one found the store,
// used it, and had commits acknowledged, but nothing ever flushed the name: all of it was gone after a power cut. The
// first opening that finds a store which was never opened flushes its folder.
TEST_F(AfterAKill, TheNameOfANewStoreIsFlushedBeforeItIsUsed) {
  (void)open();
  std::size_t renamed = 0;
  while (volume_->trace().records[renamed].op != SimOp::rename) ++renamed;
  kill_before(renamed, flush_of("folder"));
  auto store = open();
  const ObjectId a = create_object(*store, "a", 4096);
  ASSERT_OK(commit(*store, {{a, 0, filled(10, 1)}}));
  store = nullptr;

  SimVolume rest(cut_with_all_lost());
  StoreOptions options = tiny_options();
  options.create = false;
  auto again = Store::open(rest, options);
  ASSERT_OK(again);
  EXPECT_EQ(content_of(**again, a)[9], std::byte{1});
}

// The same for the file of a one-file store: it was made, and the program died before the folder was flushed. The next
// one found the file and made the log beside it. A power cut that kept the log's name and lost the file's left a log
// that belonged to no file: CORRUPT. The file's name is flushed before the log gets one.
TEST_F(AfterAKill, TheNameOfAFileIsFlushedBeforeItsLogHasOne) {
  (void)open(file_options());
  ASSERT_EQ(volume_->trace().records[0].op, SimOp::create);
  ASSERT_EQ(volume_->trace().records[0].name, "data");
  kill_before(0, flush_of("folder"));
  (void)open(file_options());
  const auto& records = volume_->trace().records;
  std::size_t renamed = 0;
  while (records[renamed].op != SimOp::rename) ++renamed;

  SimVolume rest(cut(renamed + 1, [&](const SimMedium&, const SimMedium::Item& item) {
    return item.op != SimOp::create || records[item.record].name != "data";
  }));
  EXPECT_OK(Store::open(rest, file_options()));
}

// A file had grown, and no persist had made that part of its state. The next opening cut it to its length and died
// before the flush; the one after found the length right and closed the file cleanly. When a power failure undid the
// cut, the file was longer than ever committed and, because it had been closed cleanly, that was now its length. An
// opening after an unclean end flushes the length, whichever program set it.
TEST_F(AfterAKill, ALengthThatIsRightIsFlushedAllTheSame) {
  auto store = open(file_options());
  ASSERT_OK(store->create("file", 4096, kAddress, 1 * kMiB));
  ASSERT_OK(store->reserve_home(ObjectId{1}, 8192));
  store = nullptr;
  const std::size_t begin = volume_->operations();
  (void)open(file_options());
  std::size_t truncated = begin;
  while (volume_->trace().records[truncated].op != SimOp::truncate) ++truncated;
  kill_before(truncated + 1, flush_of("file"));
  store = open(file_options());
  ASSERT_OK(store->close());

  EXPECT_EQ(cut_with_all_lost().files.at("data")->size(), 4096u);
}

// The directory was full and had been made longer; the program died before the flush. The next one found it long enough
// and committed an entry in the new part. A power cut took the length: the log then named bytes beyond the directory's
// end, and the store was CORRUPT. The directory is flushed when it is loaded after anything but a clean close.
TEST_F(AfterAKill, TheDirectorysLengthIsFlushedBeforeEntriesStandThere) {
  auto store = open();
  for (int i = 0; i < 63; ++i) (void)create_object(*store, std::to_string(i), 4096);
  ASSERT_OK(store->checkpoint());  // or replaying them would flush the directory
  const std::size_t begin = volume_->operations();
  (void)create_object(*store, "64th", 4096);
  store = nullptr;
  ASSERT_EQ(volume_->trace().records[begin].op, SimOp::reserve);
  kill_before(begin, flush_of("file"));
  store = open();
  ASSERT_EQ(store->objects().size(), 63u);
  (void)create_object(*store, "64th", 4096);
  store = nullptr;

  SimVolume rest(cut_with_all_lost());
  auto again = Store::open(rest, tiny_options());
  ASSERT_OK(again);
  EXPECT_EQ((*again)->objects().size(), 64u);
}

// A home had been made longer for a region that was about to grow; the program died before the flush. The next one
// found it long enough and committed the new size with bytes in the new part. A power cut took the length: the log then
// named bytes beyond the file's end, and the store was CORRUPT. Only a length that the directory says is taken for
// durable.
TEST_F(AfterAKill, AHomeThatIsLongEnoughIsFlushedBeforeItsSizeIsCommitted) {
  auto store = open();
  const ObjectId a = create_object(*store, "a", 4096);
  const std::size_t begin = volume_->operations();
  ASSERT_OK(store->reserve_home(a, 8192));
  store = nullptr;
  kill_before(begin, flush_of("file"));
  store = open();
  ASSERT_OK(store->reserve_home(a, 8192));
  ASSERT_OK(commit(*store, {{a, 5000, filled(10, 1)}}, {{a, 8192}}));
  store = nullptr;

  SimVolume rest(cut_with_all_lost());
  auto again = Store::open(rest, tiny_options());
  ASSERT_OK(again);
  EXPECT_EQ(content_of(**again, a)[5009], std::byte{1});
}

// Between two uses a one-file store's file is the user's own. He made it longer and did not flush it; the next opening
// took the new length, and a commit to the new part was acknowledged. A power cut took the length back: the log named
// bytes beyond the file's end, CORRUPT. The same when a file was put there, and a log made beside it, before it was
// flushed. An opening flushes the file.
TEST_F(AfterAKill, WhatTheUserDidToAFileIsFlushedBeforeItIsBuiltUpon) {
  for (const bool used_before : {true, false}) {
    volume_ = std::make_unique<SimVolume>(SimImage{}, true);
    std::unique_ptr<Store> store;
    if (used_before) {
      store = open(file_options());
      ASSERT_OK(store->create("file", 4096, kAddress, 1 * kMiB));
      ASSERT_OK(store->close());
    }
    store = nullptr;
    {
      auto file = must(volume_->open("data", used_before ? OpenMode::read_write : OpenMode::create, Caching::buffered));
      ASSERT_OK(file->write(0, filled(8192, 5)));
    }
    const std::size_t opened_at = volume_->operations();
    store = open(file_options());
    EXPECT_EQ(store->find("file")->size_bytes, 8192u);
    ASSERT_OK(commit(*store, {{kFile, 8000, filled(10, 1)}}));
    store = nullptr;

    for (std::size_t count = opened_at; count <= volume_->operations(); ++count) {
      SimVolume early(cut(count, [](const SimMedium& medium, const SimMedium::Item& item) {
        return item.op != SimOp::write || medium.name_of_file(item.file) != "data";
      }));
      EXPECT_OK(Store::open(early, file_options())) << "after operation " << count;
    }
    SimVolume rest(cut_with_all_lost());
    auto again = Store::open(rest, file_options());
    ASSERT_OK(again) << (used_before ? "used before" : "new");
    EXPECT_EQ(content_of(**again, kFile)[7999], std::byte{5});
    EXPECT_EQ(content_of(**again, kFile)[8000], std::byte{1});
  }
}

// After a kill the user moved the file and its log, together, and did not flush that. The next opening recovered them
// and acknowledged a commit; a power cut kept the file's new name and not the log's: a fresh log was made, without the
// commit. An opening flushes the names, whether the store was closed or not.
TEST_F(AfterAKill, NamesThatTheUserGaveAreFlushedBeforeCommits) {
  for (const bool closed : {false, true}) {
    volume_ = std::make_unique<SimVolume>(SimImage{}, true);
    StoreOptions options = file_options();
    options.file_name = "old";
    auto store = open(options);
    ASSERT_OK(store->create("file", 4096, kAddress, 1 * kMiB));
    ASSERT_OK(commit(*store, {{kFile, 64, filled(8, 1)}}));
    if (closed) {
      ASSERT_OK(store->close());
    }
    store = nullptr;
    ASSERT_OK(volume_->rename("old", "data"));
    ASSERT_OK(volume_->rename(file_log_name("old"), file_log_name("data")));
    store = open(file_options());
    ASSERT_OK(commit(*store, {{kFile, 8, filled(8, 2)}}));
    store = nullptr;

    const SimMedium medium(volume_->trace(), volume_->operations());
    for (std::size_t kept = 0; kept < (std::size_t{1} << std::min<std::size_t>(medium.pending_count(), 8)); ++kept) {
      SimVolume rest(medium.cut([kept](std::size_t item) { return item >= 8 || (kept >> item & 1) != 0; }));
      auto again = Store::open(rest, file_options());
      ASSERT_OK(again) << (closed ? "closed, " : "killed, ") << kept;
      EXPECT_EQ(content_of(**again, kFile)[8], std::byte{2}) << (closed ? "closed, " : "killed, ") << kept;
    }
  }
}

// A file that begins with a caller's in-use header, which stays in it over a clean close.
class AfterAKillOfACaller : public AfterAKill {
 protected:
  AfterAKillOfACaller() { options_.in_use = InUse::caller; }
  // A new disk; the header and then `more` are committed and home, and the store is open.
  std::unique_ptr<Store> begin(const std::vector<Piece>& more = {}) {
    const InUseHeader header{0x0a4c51534d454d89, kNoMoment};
    EXPECT_EQ(in_use_of(header.kind), InUse::caller);
    Bytes first = filled(sizeof header, 0);
    std::memcpy(first.data(), &header, sizeof header);
    SimImage image;
    image.files["data"] = std::make_shared<const Bytes>(filled(200'000, 'u'));
    volume_ = std::make_unique<SimVolume>(image, true);
    auto store = open(options_);
    EXPECT_OK(commit(*store, {{kFile, 0, first}}));
    if (!more.empty()) {
      EXPECT_OK(commit(*store, more));
    }
    EXPECT_OK(store->checkpoint());
    return store;
  }

  StoreOptions options_ = file_options();
};

// Found by the laboratory. A log that has grown continues in a new segment after a clean close. The superblock that
// says so was written; the program died before its flush. The next opening gave the file a moment of the new segment. A
// power cut kept the moment and lost the superblock, and the two were no pair any more.
TEST_F(AfterAKillOfACaller, TheEndOfALogIsNotInItsFileBeforeItIsOnTheMedium) {
  auto store = begin({{kFile, 5000, filled(100'000, 'c')}});
  ASSERT_GT(store->log().capacity_bytes(), options_.log_bytes) << "the log had no need to grow";
  ASSERT_OK(commit(*store, {{kFile, 1000, filled(600, 'c')}}));
  const std::size_t closing_at = volume_->operations();
  ASSERT_OK(store->close());
  store = nullptr;
  const SimMedium closed(volume_->trace(), volume_->operations());
  kill_before(closing_at, [&](const SimRecord& record) {
    return record.op == SimOp::flush && closed.name_of_file(record.file) == "data.memlith";
  });
  const std::size_t opened_at = volume_->operations();
  store = open(options_);
  ASSERT_TRUE(store->was_clean());
  store = nullptr;

  for (std::size_t count = opened_at; count <= volume_->operations(); ++count) {
    SimVolume rest(cut(count, [&](const SimMedium& medium, const SimMedium::Item& item) {
      return medium.name_of_file(item.file) == "data";
    }));
    const auto again = Store::open(rest, options_);
    ASSERT_TRUE(again.ok()) << "after operation " << count << ": " << last_error_text() << "\n"
                            << volume_->trace().describe(count);
    EXPECT_EQ(content_of(**again, kFile)[1000], filled(1, 'c')[0]);
  }
}

// Found by the laboratory. A flush of a recovery failed, and the page cache alone had a superblock, or the moment in
// the file, from then on; later flushes passed them by. The next recovery counted on them, and gave the file a moment
// of which the log on the medium knew nothing. Whichever flush fails, a power cut in the next recovery leaves a pair.
TEST_F(AfterAKillOfACaller, ARecoveryDoesNotCountOnWhatAFailedFlushLeft) {
  std::uint64_t flushes = 0;
  for (;; ++flushes) {
    begin().reset();
    volume_->faults().plan(SimFaults::Kind::forget_flush, flushes);
    (void)Store::open(*volume_, options_);
    if (volume_->faults().fired() == 0) break;
    volume_->faults().clear();
    const std::size_t opened_at = volume_->operations();
    (void)open(options_);
    for (CrashPoints points(volume_->trace(), opened_at); points.next();) {
      const SimMedium& medium = points.medium();
      for (const SimFate fate : {SimFate::kept, SimFate::lost, SimFate::garbage}) {
        std::vector<SimChoice> choices(medium.pending_count());
        for (std::size_t i = 0; i < choices.size(); ++i) {
          const bool is_write = medium.pending(i).op == SimOp::write;
          choices[i].fate = fate != SimFate::garbage || is_write ? fate : SimFate::kept;
        }
        SimVolume rest(medium.cut(choices, 1));
        const auto again = Store::open(rest, options_);
        ASSERT_TRUE(again.ok()) << "flush " << flushes << ", after operation " << points.at() << ": "
                                << last_error_text() << "\n"
                                << volume_->trace().describe(points.at());
      }
    }
  }
  EXPECT_GT(flushes, 5u);
}

}  // namespace
}  // namespace memlith::test
