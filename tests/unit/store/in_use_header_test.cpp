// docs/format.md, "The in-use header": a file is marked as its log says, and a clean close takes the header away,
// whatever happened to the call that put it. The laboratory crashes more of it (used-file and guarded-file).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "sim/power_cuts.hpp"
#include "support/store_words.hpp"

namespace memlith::test {
namespace {

using namespace core;

constexpr std::uint64_t kMagic = 0x0123456789abcdef;

StoreOptions file_options(InUse in_use) {
  StoreOptions options = tiny_options();
  options.kind = StoreKind::one_file;
  options.file_name = "data";
  options.in_use = in_use;
  return options;
}

SimImage image_of(const Bytes& bytes) {
  SimImage image;
  image.files["data"] = std::make_shared<const Bytes>(bytes);
  return image;
}

// As a structure leaves its file when it is closed.
Bytes structure_bytes() {
  Bytes bytes = filled(5000, 's');
  std::memset(bytes.data(), 0, kInUseHeaderBytes);
  std::memcpy(bytes.data() + kInUseHeaderBytes, &kMagic, sizeof kMagic);
  return bytes;
}

std::uint64_t kind_in(const SimImage& image) {
  InUseHeader header;
  std::memcpy(&header, image.files.at("data")->data(), sizeof header);
  return header.kind;
}

// The nth read of the call lacks memory, and then the store is closed. False: there is no nth read.
bool lack_at_read(InUse in_use, std::uint64_t nth, bool tries_again) {
  const Bytes bytes = in_use == InUse::guard ? filled(5000, 'u') : structure_bytes();
  SimVolume volume(image_of(bytes), true);
  const std::unique_ptr<Store> store =
      must(Store::open(volume, file_options(in_use == InUse::guard ? in_use : InUse::none)));
  const auto put = [&] {
    return in_use == InUse::guard ? store->put_guard() : store->put_in_use_header(kMagic, false);
  };
  volume.faults().plan(SimFaults::Kind::no_memory, nth);
  const Status status = put();
  const bool fired = volume.faults().fired() != 0;
  EXPECT_EQ(status.ok(), !fired) << nth;
  volume.faults().clear();
  if (tries_again) {
    EXPECT_OK(put());
    EXPECT_EQ(kind_in(volume.image()), kind_of(in_use)) << nth;
  }
  EXPECT_OK(store->close());
  EXPECT_TRUE(*volume.image().files.at("data") == bytes) << "after the lack of read " << nth;
  return fired;
}

TEST(InUseHeaderOf, AStoreThatLackedMemoryIsTakenAwayByTheClose) {
  for (const InUse in_use : {InUse::guard, InUse::structure}) {
    for (const bool tries_again : {false, true}) {
      std::uint64_t reads = 0;
      while (lack_at_read(in_use, reads, tries_again)) ++reads;
      EXPECT_GE(reads, 2U) << "or this test tests nothing";
    }
  }
}

// The moment is torn, so it says nothing; but this log has never marked a file, and its frames are another file's.
TEST(InUseHeaderOf, AnotherFileIsRefused) {
  SimVolume volume(image_of(filled(5000, 'u')));
  {
    const std::unique_ptr<Store> store = must(Store::open(volume, file_options(InUse::none)));
    ASSERT_OK(commit(*store, {{kFile, 3000, filled(50, 'c')}}));
  }
  for (const std::uint64_t kind : {kGuardInUse, kStructureInUse}) {
    SimImage image = volume.image();
    Bytes bytes = filled(5000, 'o');
    const InUseHeader header{kind, kNoMoment};
    std::memcpy(bytes.data(), &header, sizeof header);
    image.files["data"] = std::make_shared<const Bytes>(bytes);
    SimVolume put_back(image);
    for (const bool read_only : {true, false}) {
      StoreOptions options = file_options(InUse::none);
      options.read_only = read_only;
      options.create = !read_only;
      EXPECT_ERROR(Errc::corrupt, Store::open(put_back, options).status());
      EXPECT_NE(last_error_text().find("was taken while the file was in use"), std::string::npos) << last_error_text();
    }
    EXPECT_TRUE(*put_back.image().files.at("data") == bytes);
  }
}

// ---- power cuts ----------------------------------------------------------------------------------------------------

// A life of a file with an in-use header: the bytes behind it after each of its commits, which `done` counts.
constexpr int kCommits = 3;
Bytes after(InUse in_use, int commits) {
  Bytes bytes = in_use == InUse::guard ? filled(5000, 'u') : structure_bytes();
  for (int i = 0; i < commits; ++i)
    std::fill_n(bytes.begin() + 3000 + 100 * i, 300, std::byte{static_cast<unsigned char>('a' + i)});
  // Commits change the guarded file's first bytes in the log.
  if (in_use == InUse::guard && commits > 0) bytes[3] = static_cast<std::byte>('a' + commits - 1);
  return bytes;
}
Status commit_one(Store& store, InUse in_use, int number) {
  std::vector<Piece> pieces{{kFile, 3000 + 100 * static_cast<std::uint64_t>(number), filled(300, 'a' + number)}};
  if (in_use == InUse::guard) pieces.push_back({kDirectory, kOwnBytesOffset + 3, filled(1, 'a' + number)});
  return commit(store, pieces);
}
void live(SimVolume& volume, InUse in_use, std::vector<std::size_t>& done) {
  const std::unique_ptr<Store> store =
      must(Store::open(volume, file_options(in_use == InUse::guard ? in_use : InUse::none)));
  ASSERT_OK(in_use == InUse::guard ? store->put_guard() : store->put_in_use_header(kMagic, false));
  for (int i = 0; i < kCommits; ++i) {
    ASSERT_OK(commit_one(*store, in_use, i));
    done.push_back(volume.operations());
    if (i == 1) {
      ASSERT_OK(store->checkpoint());
    }
  }
  ASSERT_OK(store->close());
}

// The file alone is marked and refused, or is a state that was committed, whole.
void judge_alone(const SimImage& image, InUse in_use, int least, std::size_t at) {
  const Bytes& bytes = *image.files.at("data");
  if (kind_in(image) != kind_of(in_use)) {
    bool is_state = false;
    for (int i = least; i <= kCommits; ++i) is_state = is_state || bytes == after(in_use, i);
    EXPECT_TRUE(is_state) << "a copy of the file alone is no state, after operation " << at;
    return;
  }
  SimVolume volume(image_of(bytes));
  EXPECT_ERROR(Errc::corrupt, Store::open(volume, file_options(InUse::none)).status());
}

TEST(InUseHeaderOf, AFileAfterAPowerCutAtAnyOperation) {
  for (const InUse in_use : {InUse::guard, InUse::structure}) {
    SimVolume volume(image_of(after(in_use, 0)), true);
    std::vector<std::size_t> done;
    live(volume, in_use, done);
    Random random(1);
    const CutsTried tried{4, 6};
    std::size_t cuts_tried = 0;
    for (CrashPoints points(volume.trace()); points.next();) {
      int least = 0;
      while (least < kCommits && done[static_cast<std::size_t>(least)] <= points.at()) ++least;
      for (PowerCuts cuts(points.medium(), tried, random); cuts.next(); ++cuts_tried) {
        SimImage image = cuts.image();
        if (!image.files.contains("data")) continue;
        judge_alone(image, in_use, least, points.at());
        SimVolume cut(std::move(image));
        auto opened = Store::open(cut, file_options(InUse::none));
        ASSERT_TRUE(opened.ok()) << "after operation " << points.at() << ": " << last_error_text();
        ASSERT_OK((*opened)->close());
        const Bytes& bytes = *cut.image().files.at("data");
        bool is_state = false;
        for (int i = least; i <= kCommits; ++i) is_state = is_state || bytes == after(in_use, i);
        ASSERT_TRUE(is_state) << "recovered to no state, after operation " << points.at();
      }
    }
    EXPECT_GE(cuts_tried, 100U) << "or this test tests nothing";
  }
}

// A commit makes the file shorter, and the next recovery cuts it. Then it grows again, by zeros that no commit has.
TEST(InUseHeaderOf, ACopyFromBeforeTheCutOfARecoveryIsRefused) {
  const auto commit_length = [](Store& store, std::uint64_t bytes) {
    ASSERT_OK(store.reserve_home(kFile, bytes));
    ASSERT_OK(commit(store, {}, {{kFile, bytes}}));
  };
  SimVolume volume(image_of(filled(5000, 'u')));
  {
    const std::unique_ptr<Store> store = must(Store::open(volume, file_options(InUse::guard)));
    ASSERT_OK(store->put_guard());
    commit_length(*store, 2000);
    ASSERT_OK(store->checkpoint());
  }
  const SimImage before = volume.image();
  ASSERT_EQ(before.files.at("data")->size(), 5000U);
  {
    const std::unique_ptr<Store> store = must(Store::open(volume, file_options(InUse::guard)));
    EXPECT_EQ(volume.image().files.at("data")->size(), 2000U);
    commit_length(*store, 5000);
  }
  SimImage mixed = volume.image();
  mixed.files["data"] = before.files.at("data");
  SimVolume put_back(std::move(mixed));
  EXPECT_ERROR(Errc::corrupt, Store::open(put_back, file_options(InUse::guard)).status());

  const std::unique_ptr<Store> store = must(Store::open(volume, file_options(InUse::guard)));
  ASSERT_OK(store->close());
  Bytes expected = filled(5000, 'u');
  std::fill(expected.begin() + 2000, expected.end(), std::byte{0});
  EXPECT_TRUE(*volume.image().files.at("data") == expected);
}

// An ordinary file may begin with the bytes of any in-use header that is not the store's.
TEST(InUseHeaderOf, ACallerIsNotSeenInAFileWithoutOne) {
  Bytes bytes = filled(5000, 'u');
  const InUseHeader header{0x0a4c51534d454d89, 0x1234};
  ASSERT_EQ(in_use_of(header.kind), InUse::caller);
  SimVolume volume(image_of(filled(5000, 'u')));
  {
    const std::unique_ptr<Store> store = must(Store::open(volume, file_options(InUse::none)));
    std::memcpy(bytes.data(), &header, sizeof header);
    ASSERT_OK(commit(*store, {{kFile, 0, Bytes(bytes.begin(), bytes.begin() + 100)}}));
  }
  const std::unique_ptr<Store> store = must(Store::open(volume, file_options(InUse::none)));
  ASSERT_OK(store->close());
  EXPECT_TRUE(*volume.image().files.at("data") == bytes);
}

// `memlith run --guard` opens what a structure left when its program was killed.
TEST(InUseHeaderOf, AStructureGivesWayToTheGuard) {
  SimVolume volume(image_of(structure_bytes()));
  {
    const std::unique_ptr<Store> store = must(Store::open(volume, file_options(InUse::none)));
    ASSERT_OK(store->put_in_use_header(kMagic, false));
    EXPECT_EQ(kind_in(volume.image()), kStructureInUse);
  }
  const std::unique_ptr<Store> store = must(Store::open(volume, file_options(InUse::guard)));
  EXPECT_EQ(kind_in(volume.image()), 0U);
  ASSERT_OK(store->put_guard());
  EXPECT_EQ(kind_in(volume.image()), kGuardInUse);
  ASSERT_OK(store->close());
  EXPECT_TRUE(*volume.image().files.at("data") == structure_bytes());
}

}  // namespace
}  // namespace memlith::test
