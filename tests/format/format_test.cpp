// docs/format.md tells the truth: each of its tables is parsed and held against the struct it describes, field by field.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "log/format.hpp"
#include "store/format.hpp"

namespace memlith::test {
namespace {

using namespace core;

struct Row {
  std::uint64_t offset;
  std::uint64_t bytes;
  std::string field;
  friend bool operator==(const Row&, const Row&) = default;
  friend void PrintTo(const Row& row, std::ostream* out) { *out << row.offset << " " << row.bytes << " " << row.field; }
};

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  for (std::size_t begin = 1; begin < line.size();) {
    const std::size_t end = line.find('|', begin);
    std::string cell = line.substr(begin, end - begin);
    cell.erase(0, cell.find_first_not_of(' '));
    cell.erase(cell.find_last_not_of(' ') + 1);
    cells.push_back(cell);
    if (end == std::string::npos) break;
    begin = end + 1;
  }
  return cells;
}

// Heading -> rows of the table with "offset | bytes | field | meaning" below it.
std::map<std::string, std::vector<Row>> tables() {
  std::ifstream file(MEMLITH_FORMAT_DOC);
  std::map<std::string, std::vector<Row>> result;
  std::string heading;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("### ")) heading = line.substr(4);
    if (!line.starts_with("|")) inside = false;
    if (line.starts_with("| offset | bytes | field |")) {
      inside = true;
    } else if (inside && !line.starts_with("|---")) {
      const auto cells = cells_of(line);
      result[heading].push_back({std::stoull(cells[0]), std::stoull(cells[1]), cells[2]});
    }
  }
  return result;
}

#define FIELD(type, field) \
  Row { offsetof(type, field), sizeof(type::field), #field }

// Every table has exactly the struct's fields, at the struct's offsets, with the struct's sizes, without a gap.
TEST(FormatDocument, MatchesTheStructs) {
  const std::map<std::string, std::pair<std::size_t, std::vector<Row>>> structs = {
      {"superblock",
       {sizeof(Superblock),
        {FIELD(Superblock, magic), FIELD(Superblock, version), FIELD(Superblock, block_bytes),
         FIELD(Superblock, log_id), FIELD(Superblock, sequence), FIELD(Superblock, incarnation),
         FIELD(Superblock, slot_bytes), FIELD(Superblock, slot_count), FIELD(Superblock, tail_lsn),
         FIELD(Superblock, tail_previous), FIELD(Superblock, head_lsn), FIELD(Superblock, head_previous),
         FIELD(Superblock, clean), FIELD(Superblock, client_bytes), FIELD(Superblock, client),
         FIELD(Superblock, begun_lsn), FIELD(Superblock, reserved), FIELD(Superblock, checksum)}}},
      {"slot header",
       {sizeof(SlotHeader),
        {FIELD(SlotHeader, magic), FIELD(SlotHeader, reserved), FIELD(SlotHeader, segment),
         FIELD(SlotHeader, incarnation), FIELD(SlotHeader, checksum)}}},
      {"frame",
       {sizeof(FrameHeader),
        {FIELD(FrameHeader, magic), FIELD(FrameHeader, kind), FIELD(FrameHeader, lsn), FIELD(FrameHeader, previous),
         FIELD(FrameHeader, durable_lsn), FIELD(FrameHeader, payload_bytes), FIELD(FrameHeader, incarnation),
         FIELD(FrameHeader, checksum)}}},
      {"frame trailer", {sizeof(FrameTrailer), {FIELD(FrameTrailer, payload_checksum)}}},
      {"commit", {sizeof(CommitHeader), {FIELD(CommitHeader, extent_count), FIELD(CommitHeader, reserved)}}},
      {"extent",
       {sizeof(ExtentRecord), {FIELD(ExtentRecord, object), FIELD(ExtentRecord, bytes), FIELD(ExtentRecord, offset)}}},
      {"object",
       {sizeof(ObjectRecord),
        {FIELD(ObjectRecord, id), FIELD(ObjectRecord, live), FIELD(ObjectRecord, size_bytes),
         FIELD(ObjectRecord, address), FIELD(ObjectRecord, reserve_bytes)}}},
      {"directory header",
       {sizeof(DirectoryHeader),
        {FIELD(DirectoryHeader, magic), FIELD(DirectoryHeader, version), FIELD(DirectoryHeader, next_id),
         FIELD(DirectoryHeader, live_count), FIELD(DirectoryHeader, reserved), FIELD(DirectoryHeader, checksum)}}},
      {"directory entry",
       {sizeof(DirectoryEntry),
        {FIELD(DirectoryEntry, object), FIELD(DirectoryEntry, name), FIELD(DirectoryEntry, checksum)}}},
      {"store header",
       {sizeof(StoreHeader), {FIELD(StoreHeader, kind), FIELD(StoreHeader, reserved), FIELD(StoreHeader, file)}}},
  };
  const auto documented = tables();
  EXPECT_EQ(documented.size(), structs.size());
  for (const auto& [name, expected] : structs) {
    const auto table = documented.find(name);
    ASSERT_NE(table, documented.end()) << name;
    EXPECT_EQ(table->second, expected.second) << name;
    std::uint64_t end = 0;
    for (const Row& row : table->second) {
      EXPECT_EQ(row.offset, end) << name << "." << row.field;
      end = row.offset + row.bytes;
    }
    EXPECT_EQ(end, expected.first) << name;
  }
}

// The magic numbers spell what the document says.
TEST(FormatDocument, SpellsTheMagicNumbers) {
  const auto spelled = [](auto value) { return std::string(reinterpret_cast<const char*>(&value), sizeof value); };
  EXPECT_EQ(spelled(kSuperblockMagic), "MEMLITH\n");
  EXPECT_EQ(spelled(kDirectoryMagic), "MEMLDIR\n");
  EXPECT_EQ(spelled(kSlotMagic), "SLOT");
  EXPECT_EQ(spelled(kFrameMagic), "FRAM");
  EXPECT_EQ(kSlotsOffset, 16384u);
  EXPECT_EQ(kHolderOffset, 8192u);
  EXPECT_EQ(kSuperblockSeed, 0x6d656d6c697468u);
}

}  // namespace
}  // namespace memlith::test
