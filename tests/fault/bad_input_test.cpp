// docs/guarantees.md, "Damage": whatever is done to a store's files, opening it gives a state that was persisted or an
// error that says which file is wrong; never a crash, a hang, a mixture, or a region that quietly is not there any
// more.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "log/format.hpp"
#include "log/geometry.hpp"
#include "store/format.hpp"
#include "support/store_words.hpp"

namespace memlith::test {
namespace {

using namespace core;
using Files = std::map<std::string, std::string>;  // by name

constexpr int kCommits = 8;
constexpr std::uint64_t kObjectBytes = 8192;
const char* const kNames[] = {"alpha", "beta", "gamma"};

StoreOptions opening(bool read_only = false) {
  StoreOptions options = tiny_options();
  options.create = false;
  options.read_only = read_only;
  return options;
}

// A store of three objects after commits 1 to 8, each of which fills a part of all three with its number.
Files make_store(bool clean) {
  SimVolume volume;
  auto store = must(Store::open(volume, tiny_options()));
  std::vector<ObjectId> ids;
  for (const char* name : kNames) ids.push_back(create_object(*store, name, kObjectBytes));
  EXPECT_OK(store->checkpoint());
  for (int i = 1; i <= kCommits; ++i) {
    std::vector<Piece> pieces;
    for (const ObjectId id : ids) pieces.push_back({id, 0, filled(2000, i)});
    EXPECT_OK(commit(*store, pieces));
  }
  if (clean) {
    EXPECT_OK(store->close());
  }
  store = nullptr;
  Files files;
  for (const auto& [name, bytes] : volume.image().files) {
    files[name].assign(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  }
  return files;
}

SimImage image_of(const Files& files) {
  SimImage image;
  for (const auto& [name, content] : files) {
    const auto bytes = std::as_bytes(std::span(content));
    image.files[name] = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
  }
  return image;
}

struct Outcome {
  Status status;
  std::string text;
  int commit = -1;  // whose state was found
  std::string wrong;
  std::set<std::string> files;  // afterwards
};

// Opens the files and says what was found.
Outcome open_files(const Files& files, bool read_only = false) {
  SimVolume volume(image_of(files));
  Outcome outcome;
  {
    auto store = Store::open(volume, opening(read_only));
    outcome.status = store.status();
    if (!store.ok()) {
      outcome.text = last_error_text();
    } else {
      for (const char* name : kNames) {
        const auto info = (*store)->find(name);
        if (!info.has_value() || info->size_bytes != kObjectBytes) {
          outcome.wrong = std::string("region \"") + name + "\" is not there as it was";
          break;
        }
        const Bytes content = content_of(**store, info->id);
        const int found = static_cast<int>(content[0]);
        if (outcome.commit >= 0 && outcome.commit != found) outcome.wrong = "a mixture of two commits";
        outcome.commit = found;
        Bytes expected = filled(kObjectBytes, 0);
        std::fill_n(expected.begin(), 2000, static_cast<std::byte>(found));
        if (content != expected || found > kCommits) outcome.wrong = "bytes of no commit";
      }
    }
  }
  for (const auto& [name, bytes] : volume.image().files) outcome.files.insert(name);
  return outcome;
}

// Data of one commit or a clear error about this file. `may_lose` where damage looks exactly like a torn end of the
// log.
void expect_data_or_error(const Outcome& outcome, const std::string& file, bool may_lose, const std::string& what) {
  SCOPED_TRACE(what);
  if (outcome.status.ok()) {
    EXPECT_EQ(outcome.wrong, "");
    if (may_lose) {
      EXPECT_GE(outcome.commit, 0);
    } else {
      EXPECT_EQ(outcome.commit, kCommits);
    }
    return;
  }
  EXPECT_NE(outcome.text.find(file), std::string::npos) << "which file? " << outcome.text;
  const Errc category = outcome.status.category;
  EXPECT_TRUE(category == Errc::corrupt || category == Errc::incompatible || category == Errc::invalid ||
              category == Errc::not_found || category == Errc::unsupported)
      << told(outcome.status) << " " << outcome.text;
  for (const char* home : {"objects/1", "objects/2", "objects/3"}) {
    if (file != home) {
      EXPECT_TRUE(outcome.files.contains(home)) << home << " was deleted by a failed opening";
    }
  }
}

std::string flipped(std::string content, std::uint64_t bit) {
  content.at(bit / 8) = static_cast<char>(content[bit / 8] ^ (1 << (bit % 8)));
  return content;
}

class Damage : public ::testing::Test {
 protected:
  explicit Damage(bool clean) : clean_(clean), files_(make_store(clean)) {}

  // Flips every `step`-th bit of a stretch, one at a time.
  void flip(const std::string& file, std::uint64_t offset, std::uint64_t bytes, bool may_lose, std::uint64_t step = 1) {
    for (std::uint64_t bit = offset * 8; bit < (offset + bytes) * 8; bit += step) {
      Files damaged = files_;
      damaged[file] = flipped(damaged[file], bit);
      const std::string what = fmt::format("{}: bit {} of byte {}", file, bit % 8, bit / 8);
      ASSERT_NO_FATAL_FAILURE(expect_data_or_error(open_files(damaged, bit % 5 == 0), file, may_lose, what));
      if (HasFailure()) return;
    }
  }
  // Where every frame in the log lies in the file, oldest first.
  std::vector<std::uint64_t> frames() const {
    std::map<std::uint64_t, std::uint64_t> by_lsn;
    const std::string& log = files_.at("log");
    for (std::uint64_t at = kSlotsOffset; at + 512 <= log.size(); at += 512) {
      FrameHeader header;
      std::memcpy(&header, log.data() + at, sizeof header);
      if (header.magic == kFrameMagic) by_lsn[header.lsn] = at;
    }
    std::vector<std::uint64_t> result;
    for (const auto& [lsn, at] : by_lsn) result.push_back(at);
    return result;
  }

  bool clean_;
  Files files_;
};

class BadInput : public Damage, public ::testing::WithParamInterface<bool> {
 protected:
  BadInput() : Damage(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(Of, BadInput, ::testing::Bool(),
                         [](const auto& given) { return given.param ? "CleanStore" : "DroppedStore"; });

// The undamaged store opens with the last commit, for writing and for reading: what everything here is compared with.
TEST_P(BadInput, UndamagedStoresOpen) {
  for (const bool read_only : {false, true}) {
    const Outcome outcome = open_files(files_, read_only);
    ASSERT_OK(outcome.status);
    EXPECT_EQ(outcome.commit, kCommits);
    EXPECT_EQ(outcome.wrong, "");
  }
  EXPECT_GE(frames().size(), static_cast<std::size_t>(kCommits));
}

// Any bit of either copy of the superblock: the other copy serves, or the damage is told; no commit is lost.
TEST_P(BadInput, SuperblockBits) {
  flip("log", 0, sizeof(Superblock), false);
  flip("log", kSuperblockStrideBytes, sizeof(Superblock), false);
}

// Both copies at once: an error, whatever the bits.
TEST_P(BadInput, BothSuperblocks) {
  for (const std::uint64_t byte : {0u, 9u, 100u, 508u}) {
    Files damaged = files_;
    damaged["log"] = flipped(flipped(damaged["log"], byte * 8), (kSuperblockStrideBytes + byte) * 8);
    const Outcome outcome = open_files(damaged);
    EXPECT_FALSE(outcome.status.ok());
    expect_data_or_error(outcome, "log", false, fmt::format("byte {} of both", byte));
    EXPECT_NE(outcome.text.find("expected"), std::string::npos) << outcome.text;
    EXPECT_NE(outcome.text.find("found"), std::string::npos) << outcome.text;
  }
}

// A bit of a slot's header: all frames of the slot are in doubt, and that is told unless it looks like a torn end.
TEST_P(BadInput, SlotHeaderBits) {
  for (std::uint64_t slot = 0; slot < 4; ++slot) {
    flip("log", kSlotsOffset + slot * 16 * kKiB, sizeof(SlotHeader), !GetParam());
  }
}

// A bit of a frame's header: every frame but the last is vouched for by a later one, so its loss is an error.
TEST_P(BadInput, FrameHeaderBits) {
  const auto all = frames();
  for (std::size_t i = 0; i < all.size(); ++i) {
    flip("log", all[i], sizeof(FrameHeader), !GetParam() && i + 1 == all.size(), 3);
  }
}

// The same for what a frame carries: the commit's header, its extents, its bytes, its padding.
TEST_P(BadInput, FramePayloadBits) {
  const auto all = frames();
  for (std::size_t i = 0; i < all.size(); ++i) {
    flip("log", all[i] + sizeof(FrameHeader), 72, !GetParam() && i + 1 == all.size(), 7);
    flip("log", all[i] + 1000, 16, !GetParam() && i + 1 == all.size(), 5);
  }
}

// Bytes of the log that mean nothing: the holder's note, the unused slots. Nothing happens.
TEST_P(BadInput, FlippedBitsOfUnusedBytesChangeNothing) {
  flip("log", kHolderOffset, 16, false, 5);
  flip("log", kHolderOffset + 4096, 16, false, 9);
  flip("log", files_["log"].size() - 100, 16, false, 9);
}

// A bit of the directory's header or of any entry, used or not, is an error or was overwritten by the log; no region
// quietly goes missing.
TEST_P(BadInput, DirectoryBits) {
  flip("objects/0", 0, kDirectoryEntryBytes, false, 3);
  for (std::uint64_t slot = 1; slot <= 4; ++slot)
    flip("objects/0", slot * kDirectoryEntryBytes, kDirectoryEntryBytes, false, 3);
}

// A directory entry that was wiped is an error, not a region that never was; its bytes must not be deleted for it.
TEST_P(BadInput, WipedDirectoryEntries) {
  for (std::uint64_t slot = 1; slot <= 3; ++slot) {
    Files damaged = files_;
    damaged["objects/0"].replace(slot * kDirectoryEntryBytes, kDirectoryEntryBytes, kDirectoryEntryBytes, '\0');
    const Outcome outcome = open_files(damaged);
    expect_data_or_error(outcome, "objects/0", false, fmt::format("entry {} wiped", slot));
    EXPECT_TRUE(outcome.files.contains("objects/" + std::to_string(slot))) << "the region's bytes were deleted";
  }
}

// Every file cut to many lengths: data or an error with the file's name, and no other file is deleted over it.
TEST_P(BadInput, Truncation) {
  for (const auto& [name, content] : files_) {
    std::set<std::uint64_t> lengths = {0, 1, 511, 512, 513, 768, 4095, 4096, 4097, 8192, 12288, 16383, 16384, 16385};
    lengths.insert(content.size() / 2);
    lengths.insert(content.size() - 1);
    for (std::uint64_t slot = 0; slot < 4; ++slot) lengths.insert(kSlotsOffset + slot * 16 * kKiB + 600);
    for (const std::uint64_t length : lengths) {
      if (length >= content.size()) continue;
      Files damaged = files_;
      damaged[name].resize(length);
      for (const bool read_only : {true, false}) {
        const Outcome outcome = open_files(damaged, read_only);
        const std::string what = fmt::format("{} cut from {} to {} bytes", name, content.size(), length);
        expect_data_or_error(outcome, name, false, what);
        const bool only_room_lost =
            name == "objects/0" && length >= 4 * kDirectoryEntryBytes;  // all entries are still there
        EXPECT_TRUE(only_room_lost || !outcome.status.ok()) << what;
        for (const auto& [other, bytes] : files_)
          EXPECT_TRUE(outcome.files.contains(other)) << what << " deleted " << other;
      }
    }
  }
}

// Files made longer are no problem.
TEST_P(BadInput, Extension) {
  for (const auto& [name, content] : files_) {
    Files damaged = files_;
    damaged[name].append(10'000, '\0');
    expect_data_or_error(open_files(damaged), name, false, name + " made longer");
  }
}

// A file of zeros in the place of the log or the directory is an error with its name.
TEST_P(BadInput, ZeroFiles) {
  for (const char* name : {"log", "objects/0"}) {
    Files damaged = files_;
    std::fill(damaged[name].begin(), damaged[name].end(), '\0');
    const Outcome outcome = open_files(damaged);
    EXPECT_FALSE(outcome.status.ok()) << name;
    expect_data_or_error(outcome, name, false, std::string(name) + " all zeros");
  }
}

// Another kind of file in the place of the log: `incompatible`, with what was expected and what was found.
TEST_P(BadInput, ForeignLog) {
  Files damaged = files_;
  damaged["log"].clear();
  while (damaged["log"].size() < files_["log"].size()) damaged["log"] += "This is the diary of a user. ";
  const Outcome outcome = open_files(damaged);
  EXPECT_ERROR(Errc::incompatible, outcome.status);
  EXPECT_NE(outcome.text.find("not a memlith log"), std::string::npos) << outcome.text;
  EXPECT_NE(outcome.text.find(fmt::format("{:#018x}", kSuperblockMagic)), std::string::npos) << outcome.text;
}

// Another store's log or directory, whole in itself, is not taken for this one's.
TEST_P(BadInput, FilesOfAnotherStore) {
  const Files other = make_store(GetParam());
  for (const char* name : {"log", "objects/0"}) {
    Files mixed = files_;
    mixed[name] = other.at(name);
    const Outcome outcome = open_files(mixed);
    EXPECT_FALSE(outcome.status.ok()) << name;
    EXPECT_NE(outcome.text.find("objects/0"), std::string::npos) << outcome.text;
  }
}

// A later format version: `incompatible`, with both versions, in the log and in the directory.
TEST_P(BadInput, LaterVersions) {
  Files later = files_;
  for (const std::uint64_t offset : {std::uint64_t{0}, kSuperblockStrideBytes}) {
    Superblock block;
    std::memcpy(&block, later["log"].data() + offset, sizeof block);
    block.version = 7;
    block.checksum = header_checksum(block, kSuperblockSeed);
    std::memcpy(later["log"].data() + offset, &block, sizeof block);
  }
  Outcome outcome = open_files(later);
  EXPECT_ERROR(Errc::incompatible, outcome.status);
  EXPECT_NE(outcome.text.find("version 7"), std::string::npos) << outcome.text;
  EXPECT_NE(outcome.text.find(fmt::format("version {}", kFormatVersion)), std::string::npos) << outcome.text;

  later = files_;
  Superblock block;
  std::memcpy(&block, later["log"].data(), sizeof block);
  DirectoryHeader header;
  std::memcpy(&header, later["objects/0"].data(), sizeof header);
  header.version = 7;
  header.checksum = header_checksum(header, block.log_id);
  std::memcpy(later["objects/0"].data(), &header, sizeof header);
  outcome = open_files(later);
  if (!GetParam() && outcome.status.ok()) return;  // the log wrote the header again
  EXPECT_ERROR(Errc::incompatible, outcome.status);
  EXPECT_NE(outcome.text.find("version 7"), std::string::npos) << outcome.text;
}

// Superblocks whose checksum is right and whose numbers are absurd: an error, not an allocation of absurd size.
TEST_P(BadInput, AbsurdSuperblocks) {
  const std::function<void(Superblock&)> absurdities[] = {
      [](Superblock& b) { b.slot_count = ~0ull; },
      [](Superblock& b) { b.slot_count = 1u << 20; },
      [](Superblock& b) { b.slot_count = 0; },
      [](Superblock& b) { b.slot_bytes = ~0ull; },
      [](Superblock& b) { b.slot_bytes = 0; },
      [](Superblock& b) { b.slot_bytes = 4097; },
      [](Superblock& b) { b.slot_bytes = 1ull << 30; },
      [](Superblock& b) { b.block_bytes = 0; },
      [](Superblock& b) { b.block_bytes = 1u << 31; },
      [](Superblock& b) { b.block_bytes = 4096; },
      [](Superblock& b) { b.tail_lsn = ~0ull; },
      [](Superblock& b) { b.tail_lsn = 1ull << 61; },
      [](Superblock& b) { b.tail_lsn = 13; },
      [](Superblock& b) { b.head_lsn = ~0ull - 511; },
      [](Superblock& b) { b.log_id = 0; },
      [](Superblock& b) { b.client_bytes = ~0u; },
      [](Superblock& b) { b.clean = 3; },
      [](Superblock& b) { std::memset(b.client, 0xff, sizeof b.client); },
      [](Superblock& b) { b.sequence = ~0ull; },
      [](Superblock& b) { b.incarnation = ~0ull; },
  };
  int number = 0;
  for (const auto& make_absurd : absurdities) {
    Files damaged = files_;
    for (const std::uint64_t offset : {std::uint64_t{0}, kSuperblockStrideBytes}) {
      Superblock block;
      std::memcpy(&block, damaged["log"].data() + offset, sizeof block);
      make_absurd(block);
      block.checksum = header_checksum(block, kSuperblockSeed);
      std::memcpy(damaged["log"].data() + offset, &block, sizeof block);
    }
    // No hardware does this, so an older state is acceptable; a crash of the program is not.
    expect_data_or_error(open_files(damaged), "log", true, fmt::format("absurdity {}", number));
    expect_data_or_error(open_files(damaged, true), "log", true, fmt::format("absurdity {}, read-only", number));
    ++number;
  }
}

// The store was not closed, so that its opening reads frames.
class BadFrames : public Damage {
 protected:
  BadFrames() : Damage(false) {}
};

// Frames whose checksums are right and whose commits are absurd: an error, not a write past anything.
TEST_F(BadFrames, AbsurdCommits) {
  struct Change {
    std::uint64_t offset;  // in the payload
    std::uint64_t bytes;
    std::uint64_t value;
  };
  const Change changes[] = {
      {0, 4, ~0ull},  {0, 4, 4},           {0, 4, 2},                                       // the number of extents
      {8, 4, 12345},  {8, 4, ~0ull},                                                        // whose bytes
      {12, 4, ~0ull}, {12, 4, 1999},                                                        // how many
      {16, 8, ~0ull}, {16, 8, 1ull << 62}, {16, 8, 1ull << 40}, {16, 8, kObjectBytes - 1},  // where
  };
  Superblock superblock;
  std::memcpy(&superblock, files_["log"].data(), sizeof superblock);
  const auto trailer_of = [&](const char* frame, const FrameHeader& header) {
    const auto payload = std::as_bytes(std::span(frame + sizeof header, header.payload_bytes));
    return FrameTrailer{checksum(payload, payload_seed(superblock.log_id, Lsn{header.lsn}, header.incarnation))};
  };
  const auto trailer_at = [&](const FrameHeader& header) {
    return LogGeometry{superblock.block_bytes, superblock.slot_bytes}.frame_bytes(header.payload_bytes) -
           sizeof(FrameTrailer);
  };
  // The newest frame that does not run on into the next slot.
  std::uint64_t at = 0;
  for (const std::uint64_t each : frames()) {
    FrameHeader header;
    std::memcpy(&header, files_["log"].data() + each, sizeof header);
    const char* const frame = files_["log"].data() + each;
    const FrameTrailer trailer = trailer_of(frame, header);
    if (std::memcmp(frame + trailer_at(header), &trailer, sizeof trailer) == 0) at = each;
  }
  ASSERT_NE(at, 0u);
  for (const Change& change : changes) {
    Files damaged = files_;
    char* const frame = damaged["log"].data() + at;
    FrameHeader header;
    std::memcpy(&header, frame, sizeof header);
    std::memcpy(frame + sizeof header + change.offset, &change.value, change.bytes);
    const FrameTrailer trailer = trailer_of(frame, header);
    std::memcpy(frame + trailer_at(header), &trailer, sizeof trailer);
    for (const bool read_only : {false, true}) {
      const Outcome outcome = open_files(damaged, read_only);
      const std::string what =
          fmt::format("payload offset {} = {:#x}, read-only {}", change.offset, change.value, read_only);
      if (outcome.status.ok() && change.offset == 8)
        continue;  // bytes for an object that was removed: none of our business
      EXPECT_FALSE(outcome.status.ok()) << what;
      EXPECT_NE(outcome.text.find("sim:"), std::string::npos) << what << ": " << outcome.text;
    }
  }
}

// Every file deleted in turn: an error with its name that changes nothing. Without the log, what is left of the store
// is refused, too.
TEST_P(BadInput, DeletedFiles) {
  for (const auto& [name, content] : files_) {
    Files damaged = files_;
    damaged.erase(name);
    for (const bool read_only : {true, false}) {
      const Outcome outcome = open_files(damaged, read_only);
      EXPECT_FALSE(outcome.status.ok()) << name;
      EXPECT_NE(outcome.text.find(name), std::string::npos) << outcome.text;
      EXPECT_ERROR(Errc::corrupt, outcome.status) << name << ": " << outcome.text;
      EXPECT_EQ(outcome.files.size(), damaged.size());
    }
  }
}

// A store whose log is gone is not made anew over the objects that are left.
TEST_P(BadInput, LostLogIsNotReplaced) {
  Files damaged = files_;
  damaged.erase("log");
  SimVolume volume(image_of(damaged));
  EXPECT_ERROR(Errc::corrupt, Store::open(volume, tiny_options()));
  EXPECT_NE(last_error_text().find("objects/"), std::string_view::npos) << last_error_text();
  EXPECT_EQ(volume.image().files.size(), damaged.size());
}

// Noise in the place of each file, many times.
TEST_P(BadInput, NoiseFiles) {
  Random random(99);
  for (int round = 0; round < 60; ++round) {
    for (const char* name : {"log", "objects/0"}) {
      Files damaged = files_;
      const std::uint64_t begin = random.below(damaged[name].size());
      const std::uint64_t end = begin + random.below(damaged[name].size() - begin);
      for (std::uint64_t i = begin; i < end; ++i) damaged[name][i] = static_cast<char>(random.next());
      expect_data_or_error(open_files(damaged, round % 2 == 0), name, std::string_view(name) == "log",
                           fmt::format("{}: noise from {} to {}, round {}", name, begin, end, round));
    }
  }
}

// A failing or lying read at any place of an opening: an error or the right data, and the disk is as it was or
// recovered.
TEST_P(BadInput, ReadsThatFailOrLie) {
  for (const auto kind : {SimFaults::Kind::fail_read, SimFaults::Kind::flip_bit}) {
    std::uint64_t nth = 0;
    for (;; ++nth) {
      SimVolume volume(image_of(files_));
      volume.faults().plan(kind, nth);
      auto store = Store::open(volume, opening());
      if (volume.faults().fired(kind) == 0) break;
      if (!store.ok() && kind == SimFaults::Kind::fail_read) {
        EXPECT_ERROR(Errc::io, store) << nth;
      }
    }
    EXPECT_GE(nth, 3u);
  }
}

// The same kinds of damage on a real folder: the messages name the path that a person can look at.
TEST(BadInputOnDisk, MessagesNameTheFile) {
  const TempFolder folder;
  for (const auto& [name, content] : make_store(true)) {
    if (name == "objects/2" || name == "objects/3") continue;
    write_folder(folder / "store", make_store(true));
    std::filesystem::resize_file(folder / "store" + "/" + name, 700);
    auto volume = make_posix_volume(folder / "store");
    for (const bool read_only : {true, false}) {
      EXPECT_FALSE(Store::open(*volume, opening(read_only)).ok()) << name;
      EXPECT_NE(last_error_text().find((folder / "store/") + name), std::string_view::npos) << last_error_text();
    }
  }
}

// A folder, a pipe or a dangling link in the place of the log: an error at once.
TEST(BadInputOnDisk, StrangeThingsForALog) {
  const TempFolder folder;
  write_folder(folder / "store", make_store(true));
  std::filesystem::remove(folder / "store/log");
  auto volume = make_posix_volume(folder / "store");
  std::filesystem::create_directory(folder / "store/log");
  EXPECT_FALSE(Store::open(*volume, opening()).ok());
  std::filesystem::remove(folder / "store/log");
  std::filesystem::create_symlink("nowhere", folder / "store/log");
  EXPECT_ERROR(Errc::corrupt, Store::open(*volume, opening()));
  EXPECT_NE(last_error_text().find(folder / "store/log"), std::string_view::npos) << last_error_text();
}

}  // namespace
}  // namespace memlith::test
