// Halves of the last page of the write-ahead log are left out, and the log has all that was flushed: on the simulated
// disk, with the power cut after every operation, with a flush that fails, and with writers that die.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mutants/mutants.hpp"
#include "postgres/src/wal_tail.hpp"
#include "sim/power_cuts.hpp"
#include "support/crash_world.hpp"

namespace memlith_postgres::test {
namespace {

using memlith::core::active_mutant;
using memlith::core::CrashPoints;
using memlith::core::Mutant;
using memlith::core::PowerCuts;
using memlith::core::Random;
using memlith::core::SimFaults;
using memlith::core::SimImage;
using memlith::core::SimVolume;

constexpr std::size_t kLogPages = 4;

struct WriterDied {};

std::string segment_name(std::size_t number) { return "wal" + std::to_string(number); }

// Writes a log as PostgreSQL does: records one behind the other, and with each flush the pages from the one on in which
// the last flush ended, with zeros behind the end. Segments are recycled, so they have other bytes before.
class Writer {
 public:
  explicit Writer(Random& random)
      : random_(random),
        segment_bytes_((1 + random.below(2)) * kPageBytes),
        volume_(with_segments(segment_bytes_), true),
        log_(kLogPages * kPageBytes) {}

  // Writes records until the log is full, or something is wrong.
  void run() {
    for (std::size_t i = 0; i < log_.size() / segment_bytes_; ++i) files_.push_back(open(i));
    while (end_ < log_.size() && wrong_.empty()) {
      // Now and then the rest of a segment stays empty.
      if (random_.one_in(12)) end_ = std::min(log_.size(), (end_ / segment_bytes_ + 1) * segment_bytes_);
      const std::size_t bytes = std::min(1 + random_.below(random_.one_in(8) ? 9000 : 900), log_.size() - end_);
      for (std::size_t i = end_; i < end_ + bytes; ++i) log_[i] = static_cast<std::byte>(1 + random_.below(255));
      end_ += bytes;
      if (flush()) continue;
      // The next writer goes on behind what was flushed.
      end_ = begin_;
      std::fill(log_.begin() + static_cast<std::ptrdiff_t>(begin_), log_.end(), std::byte{0});
    }
  }
  [[nodiscard]] const SimVolume& volume() const { return volume_; }
  SimFaults& faults() { return volume_.faults(); }
  std::size_t dies_at = 0;  // the writer, in its write of that number; another one follows

  // A sentence on bytes of the file that are not those that were written; empty: there are none.
  [[nodiscard]] const std::string& wrong() const { return wrong_; }
  // The same of what was flushed and is not there after a cut at operation `at`.
  [[nodiscard]] std::string check(const SimImage& image, std::size_t at) const {
    std::size_t durable = 0;
    for (const auto& [operations, end] : flushed_) {
      if (operations <= at) durable = end;
    }
    for (std::size_t i = 0; i < durable; ++i) {
      if ((*image.files.at(segment_name(i / segment_bytes_)))[i % segment_bytes_] != log_[i]) {
        return "a cut at operation " + std::to_string(at) + ": byte " + std::to_string(i) + " of " +
               std::to_string(durable) + " that were flushed is another";
      }
    }
    return {};
  }

 private:
  static SimImage with_segments(std::size_t bytes) {
    SimVolume volume;
    for (std::size_t i = 0; i < kLogPages * kPageBytes / bytes; ++i) {
      auto file = volume.open(segment_name(i), memlith::core::OpenMode::create, memlith::core::Caching::buffered);
      const std::vector<std::byte> old(bytes, static_cast<std::byte>(0xee));
      EXPECT_TRUE((*file)->write(0, old).ok());
    }
    return volume.image();
  }

  std::unique_ptr<memlith::core::Device> open(std::size_t segment) {
    return std::move(*volume_.open(segment_name(segment), memlith::core::OpenMode::read_write,
                                   memlith::core::Caching::buffered));
  }
  // False: the writer has died.
  bool flush() {
    for (std::size_t at = begin_ / kPageBytes * kPageBytes; at < end_;) {
      const std::size_t segment = at / segment_bytes_;
      const std::size_t to =
          std::min((end_ + kPageBytes - 1) / kPageBytes * kPageBytes, (segment + 1) * segment_bytes_);
      if (!write(segment, at, to)) return false;
      if (!sync(segment)) {
        // A server that was started anew opens the file and goes on there.
        files_[segment] = open(segment);
        if (!write(segment, at, to)) return false;
        EXPECT_TRUE(sync(segment));
      }
      at = to;
    }
    begin_ = end_;
    flushed_.emplace_back(volume_.operations(), end_);
    return true;
  }
  bool write(std::size_t segment, std::size_t from, std::size_t to) {
    const auto write_really = [&](const std::byte* source, std::size_t bytes, std::uint64_t offset) -> ssize_t {
      EXPECT_EQ(bytes % 4096, 0u);
      const bool dies = ++writes_ == dies_at;
      if (dies) bytes -= 512;
      EXPECT_TRUE(files_[segment]->write(offset, {source, bytes}).ok());
      if (dies) throw WriterDied();
      return static_cast<ssize_t>(bytes);
    };
    const WalPlace place{1, segment, from % segment_bytes_};
    const std::size_t bytes = to - from;
    try {
      EXPECT_EQ(tail_.write(place, &log_[from], bytes, write_really), static_cast<ssize_t>(bytes));
    } catch (const WriterDied&) {
      return false;
    }
    std::vector<std::byte> found(bytes);
    EXPECT_TRUE(files_[segment]->read(place.offset, found).ok());
    if (!std::equal(found.begin(), found.end(), &log_[from])) wrong_ = "the file has other bytes than were written";
    return true;
  }
  bool sync(std::size_t segment) {
    if (files_[segment]->flush().ok()) return true;
    tail_.fail();
    return false;
  }

  Random& random_;
  const std::size_t segment_bytes_;
  SimVolume volume_;
  std::vector<std::unique_ptr<memlith::core::Device>> files_;
  WalTail tail_;
  std::vector<std::byte> log_;
  std::size_t begin_ = 0;  // everything before it is flushed
  std::size_t end_ = 0;
  std::vector<std::pair<std::size_t, std::size_t>> flushed_;  // operations of the disk, and the end
  std::size_t writes_ = 0;
  std::string wrong_;
};

struct Trouble {
  bool flush_fails = false;
  bool writer_dies = false;
};

// The first thing that is wrong.
std::string explore(const Trouble& trouble, std::uint64_t runs = 16) {
  const std::uint64_t seed = memlith::test::seed_for_this_run();
  for (std::uint64_t i = 0; i < runs; ++i) {
    Random random(seed + i);
    const std::string which = "seed " + std::to_string(seed + i) + ": ";
    Writer writer(random);
    if (trouble.flush_fails) writer.faults().plan(SimFaults::Kind::forget_flush, 3 + random.below(30));
    if (trouble.writer_dies) writer.dies_at = 3 + random.below(30);
    writer.run();
    if (!writer.wrong().empty()) return which + writer.wrong();
    for (CrashPoints points(writer.volume().trace()); points.next();) {
      for (PowerCuts cuts(points.medium(), {3, memlith::test::scaled(4)}, random); cuts.next();) {
        memlith::test::count_distinct_state();
        if (std::string wrong = writer.check(cuts.image(), points.at()); !wrong.empty()) return which + wrong;
      }
    }
  }
  return {};
}

// Bytes of the next write behind a writer that died while it wrote both halves of a page, of which only one has changed
// since the writer before.
std::size_t bytes_behind_a_dead_writer() {
  WalTail tail;
  std::vector<std::byte> page(kPageBytes);
  std::size_t written = 0;
  const auto write = [&](const std::byte*, std::size_t bytes, std::uint64_t) {
    written = bytes;
    return static_cast<ssize_t>(bytes);
  };
  const auto die = [](const std::byte*, std::size_t, std::uint64_t) -> ssize_t { throw WriterDied(); };
  tail.write({}, page.data(), kPageBytes, write);
  std::vector<std::byte> longer(kPageBytes, std::byte{1});
  EXPECT_THROW(tail.write({}, longer.data(), kPageBytes, die), WriterDied);
  page[0] = std::byte{1};
  tail.write({}, page.data(), kPageBytes, write);
  return written;
}

bool is_noticed(Mutant mutant, const Trouble& trouble) {
  active_mutant = mutant;
  const std::string wrong = explore(trouble, 100);
  active_mutant = Mutant::none;
  return !wrong.empty();
}

TEST(WalTailTest, TheLogHasWhatWasFlushed) { EXPECT_EQ(explore({}), ""); }
TEST(WalTailTest, AHalfIsWrittenAgainBehindAFlushThatFailed) { EXPECT_EQ(explore({.flush_fails = true}), ""); }
TEST(WalTailTest, APageIsWrittenWholeBehindAWriterThatDied) {
  EXPECT_EQ(bytes_behind_a_dead_writer(), kPageBytes);
  EXPECT_EQ(explore({.writer_dies = true}), "");
}

TEST(WalTailTest, ShowsMutants) {
  EXPECT_TRUE(is_noticed(Mutant::wal_failure_forgotten, {.flush_fails = true}));
  EXPECT_TRUE(is_noticed(Mutant::wal_of_any_file, {}));
  active_mutant = Mutant::wal_known_while_written;
  EXPECT_EQ(bytes_behind_a_dead_writer(), kPageBytes / 2);
  active_mutant = Mutant::none;
}

// The first write of a page is whole; of the later ones, those of records that cross its middle.
TEST(WalTailTest, HalvesAreLeftOut) {
  WalTail tail;
  std::vector<std::byte> page(kPageBytes);
  std::vector<std::pair<std::uint64_t, std::size_t>> written;
  const auto write = [&](const std::byte*, std::size_t bytes, std::uint64_t offset) {
    written.emplace_back(offset, bytes);
    return static_cast<ssize_t>(bytes);
  };
  const WalPlace place{1, 2, 3 * kPageBytes};
  for (const std::size_t changed : {0, 100, 4095, 4096, 8000}) {
    page[changed] = std::byte{1};
    EXPECT_EQ(tail.write(place, page.data(), kPageBytes, write), static_cast<ssize_t>(kPageBytes));
  }
  const std::uint64_t at = place.offset;
  const std::vector<std::pair<std::uint64_t, std::size_t>> halves{
      {at, kPageBytes}, {at, 4096}, {at, 4096}, {at + 4096, 4096}, {at + 4096, 4096}};
  EXPECT_EQ(written, halves);
  tail.fail();
  EXPECT_EQ(tail.write(place, page.data(), kPageBytes, write), static_cast<ssize_t>(kPageBytes));
  EXPECT_EQ(tail.write(place, page.data(), kPageBytes, write), static_cast<ssize_t>(kPageBytes));
  EXPECT_EQ(written.back(), std::pair(at, kPageBytes)) << "a failed flush is forgotten";
}

// Other processes insert records into the last page while it is written, behind the end of what is to be flushed.
TEST(WalTailTest, WhatIsInsertedBesideAWriteIsWrittenByTheNext) {
  for (const std::size_t pages : {1, 2}) {
    WalTail tail;
    std::vector<std::byte> log(pages * kPageBytes, std::byte{1});
    std::vector<std::byte> file(log.size());
    const auto write = [&](const std::byte* source, std::size_t bytes, std::uint64_t offset) {
      std::copy_n(source, bytes, &file[offset]);
      log[log.size() - kPageBytes + 200] = std::byte{2};
      return static_cast<ssize_t>(bytes);
    };
    const std::uint64_t last = log.size() - kPageBytes;
    EXPECT_EQ(tail.write({1, 2, 0}, log.data(), log.size(), write), static_cast<ssize_t>(log.size()));
    EXPECT_EQ(tail.write({1, 2, last}, &log[last], kPageBytes, write), static_cast<ssize_t>(kPageBytes));
    EXPECT_EQ(file, log) << pages;
  }
}

}  // namespace
}  // namespace memlith_postgres::test
