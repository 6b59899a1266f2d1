// docs/guarantees.md, "MEMLITH_OPEN_FOLLOW" and "Followers": a reader of another process, at every device operation of
// the writer and at every point of its own reading, sees the state after exactly one commit, which a power cut at that
// moment keeps, and never an older one than before. And the tests notice each mistake that is planted.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "base/sync.hpp"
#include "mutants/mutants.hpp"
#include "readers/world.hpp"
#include "store/follower.hpp"
#include "store/store.hpp"

namespace memlith::test::reader_test {
namespace {

using namespace core;

// The memory of an object that a reader has open.
class Shown final : public ShownObject {
 public:
  explicit Shown(ObjectId id) : id_(id) {}
  [[nodiscard]] ObjectId object() const override { return id_; }
  Result<std::span<std::byte>> begin_copy(std::uint64_t bytes) override {
    copy_.emplace(bytes);
    return std::span(*copy_);
  }
  Result<std::span<std::byte>> begin_change(std::uint64_t bytes) override {
    if (!copy_.has_value()) copy_ = bytes_;
    copy_->resize(bytes);
    return std::span(*copy_);
  }
  Status end_change() override {
    bytes_ = std::move(*copy_);
    copy_.reset();
    return kOk;
  }
  void drop_copy() override { copy_.reset(); }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  ObjectId id_;
  std::vector<std::byte> bytes_;
  std::optional<std::vector<std::byte>> copy_;
};

class Reader {
 public:
  Reader(Volume& volume, const StoreOptions& options) : volume_(volume), options_(reading(options)) {}

  // Opens or refreshes; empty if there is no store yet.
  std::optional<Content> look(Faults& faults) {
    Status status = kOk;
    if (store_ == nullptr) {
      auto opened = Store::open(volume_, options_);
      if (!opened.ok()) {
        if (opened.error().category != Errc::not_found)
          faults.add("it could not be opened: " + std::string(last_error_text()));
        return std::nullopt;
      }
      store_ = std::move(*opened);
    } else {
      status = store_->view()->refresh();
    }
    for (const ObjectInfo& info : store_->objects()) {
      auto& shown = shown_[info.id.value];
      if (shown != nullptr || !status.ok()) continue;
      shown = std::make_unique<Shown>(info.id);
      status = store_->view()->show(*shown);
    }
    EXPECT_TRUE(status.ok()) << last_error_text();
    if (!status.ok()) return std::nullopt;
    Content content;
    for (const ObjectInfo& info : store_->objects()) {
      const auto& shown = shown_[info.id.value];
      if (shown != nullptr) content[info.name] = shown->bytes();
    }
    EXPECT_GE(store_->view()->lsn(), lsn_) << "the view went back";
    lsn_ = store_->view()->lsn();
    return content;
  }

 private:
  Volume& volume_;
  StoreOptions options_;
  std::map<std::uint32_t, std::unique_ptr<Shown>> shown_;  // outlives the store's view
  std::unique_ptr<Store> store_;
  Lsn lsn_;
};

// Three readers: one moves on at every operation of the writer, one now and then, and one is opened anew each time.
void read_at_every_operation(StoreKind kind, std::uint64_t seed, Faults& faults) {
  World world(kind, seed);
  PageVolume readers_volume(world.volume, world.pages);
  Reader steady(readers_volume, world.options);
  Reader seldom(readers_volume, world.options);
  std::vector<Seen> seen;
  std::int64_t newest = 0;
  std::uint64_t operations = 0;
  bool inside = false;
  const auto note = [&](std::optional<Content> content, const char* who) {
    if (!content.has_value() || content->empty()) return;
    const std::int64_t state = world.state_of(*content);
    if (state < 0) {
      std::string sizes;
      for (const auto& [name, bytes] : *content) sizes += " " + name + " of " + std::to_string(bytes.size()) + " bytes";
      faults.add(std::string(who) + " saw a content that no commit left, after operation " +
                 std::to_string(world.volume.operations()) + ", of state " + std::to_string(world.states.size()) + ":" +
                 sizes);
    }
    seen.push_back({world.volume.operations(), state});
    newest = std::max(newest, state);
  };
  const auto read = [&] {
    if (inside) return;
    inside = true;
    note(steady.look(faults), "the steady reader");
    if (++operations % 23 == 0) note(seldom.look(faults), "the reader that looks seldom");
    if (operations % 7 == 0) note(Reader(readers_volume, world.options).look(faults), "a new reader");
    inside = false;
  };
  world.volume.before_transfer = read;
  world.volume.after_write = read;
  run_writer(world);
  world.volume.before_transfer = world.volume.after_write = nullptr;
  if (::testing::Test::HasFatalFailure()) return;
  note(steady.look(faults), "the steady reader");
  EXPECT_GT(seen.size(), 200u);
  if (!faults.planted) {
    EXPECT_EQ(newest, static_cast<std::int64_t>(world.states.size()) - 1);
  }
  check_durable(world, seen, faults);
}

// The writer commits and writes home while the reader copies a home file, at each of the reader's reads in turn.
void write_at_every_read(StoreKind kind, std::uint64_t seed, Faults& faults) {
  for (std::uint64_t strike = 0;; ++strike) {
    World world(kind, seed);
    world.open();
    world.create(kind == StoreKind::folder ? "a" : "file", 4 * kPageBytes);
    world.commit();
    world.checkpoint();
    world.commit();
    if (strike % 2 == 0) world.show();
    PageVolume readers_volume(world.volume, world.pages);
    std::uint64_t reads = 0;
    bool inside = false;
    readers_volume.before_read = [&] {
      if (inside || reads++ != strike) return;
      inside = true;
      world.commit();
      if (strike % 3 == 0) world.show();
      strike % 5 == 0 ? world.write_home() : world.checkpoint();
      // Enough to overwrite the slots that the reader has yet to read, now and then.
      for (int i = 0; strike % 4 == 3 && i < 40; ++i) {
        world.commit();
        if (i % 8 == 7) world.checkpoint();
      }
      inside = false;
    };
    Reader reader(readers_volume, world.options);
    const auto first = reader.look(faults);
    std::vector<Seen> seen;
    if (first.has_value()) seen.push_back({world.volume.operations(), world.state_of(*first)});
    const auto second = reader.look(faults);
    if (second.has_value()) seen.push_back({world.volume.operations(), world.state_of(*second)});
    for (const Seen& each : seen) {
      if (each.state < 0) faults.add("the reader saw a content that no commit left, strike " + std::to_string(strike));
    }
    check_durable(world, seen, faults);
    if (reads <= strike) break;
    if (::testing::Test::HasFatalFailure() || faults.found > 0) break;
  }
}

// The writer is killed after each operation; a reader that comes then sees only what a power cut keeps afterwards.
void read_after_a_kill(StoreKind kind, std::uint64_t seed, Faults& faults) {
  World world(kind, seed);
  world.open();
  world.create(kind == StoreKind::folder ? "a" : "file", 2 * kPageBytes);
  for (int i = 0; i < 4; ++i) {
    world.commit();
    if (i == 2) world.checkpoint();
  }
  const SimTrace& trace = world.volume.trace();
  for (std::size_t count = trace.records.size() / 3; count <= trace.records.size(); ++count) {
    SimVolume found(trace, count);
    Reader reader(found, world.options);
    const auto content = reader.look(faults);
    if (!content.has_value()) continue;
    const std::int64_t state = world.state_of(*content);
    if (state < 0) faults.add("the reader saw a content that no commit left");
    const Content kept = recovered(SimMedium(found.trace(), found.operations()).durable(), world.options);
    if (world.state_of(kept) < state) faults.add("after a kill a reader saw what a power cut loses");
  }
}

class Follow : public OfBothKinds {};
INSTANTIATE_TEST_SUITE_P(Of, Follow, kBothKinds, name_of_kind);

TEST_P(Follow, AtEveryOperationOfTheWriter) { expect_sound(read_at_every_operation, GetParam()); }

TEST_P(Follow, WhileTheWriterActsAtEveryRead) { expect_sound(write_at_every_read, GetParam()); }

TEST_P(Follow, ShowsOnlyWhatAPowerCutKeeps) { expect_sound(read_after_a_kill, GetParam()); }

// Each time that the reader reads, the writer is killed and comes back, more often than the reader has tries.
TEST_P(Follow, GoesOnForItsPatienceBesideAWriterThatComesBackAgainAndAgain) {
  constexpr int kEnough = 100 * Follower::kTries;  // an attempt reads less than a hundred times
  for (const bool patient : {true, false}) {
    World world(GetParam(), 1);
    world.open();
    world.create(GetParam() == StoreKind::folder ? "a" : "file", 2 * kPageBytes);
    world.commit();
    PageVolume readers_volume(world.volume, world.pages);
    int lives = 0;
    come_back_at_each_read(world, readers_volume, lives, patient ? kEnough : INT_MAX);
    StoreOptions options = reading(world.options);
    if (patient) options.follow_patience = std::chrono::hours(1);
    const auto store = Store::open(readers_volume, options);
    if (!patient) {
      ASSERT_FALSE(store.ok());
      EXPECT_TRUE(store.error().category == Errc::busy || store.error().category == Errc::corrupt) << last_error_text();
      EXPECT_LT(lives, kEnough) << "an attempt reads more often than the other half of this test believes";
      continue;
    }
    ASSERT_TRUE(store.ok()) << last_error_text();
    EXPECT_EQ(lives, kEnough);
    Shown shown((*store)->objects().front().id);
    ASSERT_TRUE((*store)->view()->show(shown).ok()) << last_error_text();
    EXPECT_EQ(shown.bytes(), world.states.back().begin()->second);
  }
}

TEST_P(Follow, NoticesUndurableFramesThatAreBelieved) {
  expect_noticed(Mutant::view_believes_all, read_at_every_operation, GetParam());
}

TEST_P(Follow, NoticesHomesThatAreCopiedAfterTheLog) {
  expect_noticed(Mutant::view_copies_late, write_at_every_read, GetParam());
}

TEST_P(Follow, NoticesACheckpointThatDoesNotShowWhatIsDurable) {
  expect_noticed(Mutant::durable_not_shown, read_at_every_operation, GetParam());
}

TEST_P(Follow, NoticesAReaderThatDoesNotFlush) {
  expect_noticed(Mutant::view_of_unflushed_log, read_after_a_kill, GetParam());
}

}  // namespace
}  // namespace memlith::test::reader_test
