// docs/format.md tells the truth: each of its tables is parsed and held against the struct it describes, field by
// field.
#include "log/format.hpp"
#include "archive/format.hpp"
#include "device/raw_format.hpp"
#include "store/format.hpp"
#include "support/format_document.hpp"

namespace memlith::test {
namespace {

using namespace core;

TEST(FormatDocument, MatchesTheStructs) {
  const std::map<std::string, std::pair<std::size_t, std::vector<Row>>> structs = {
      {"superblock",
       {sizeof(Superblock),
        {FIELD(Superblock, magic),         FIELD(Superblock, version),         FIELD(Superblock, block_bytes),
         FIELD(Superblock, log_id),        FIELD(Superblock, sequence),        FIELD(Superblock, incarnation),
         FIELD(Superblock, slot_bytes),    FIELD(Superblock, slot_count),      FIELD(Superblock, tail_lsn),
         FIELD(Superblock, tail_previous), FIELD(Superblock, head_lsn),        FIELD(Superblock, head_previous),
         FIELD(Superblock, clean),         FIELD(Superblock, client_bytes),    FIELD(Superblock, client),
         FIELD(Superblock, begun_lsn),     FIELD(Superblock, slot_count_made), FIELD(Superblock, file_birth_ns),
         FIELD(Superblock, file_number),   FIELD(Superblock, reserved),        FIELD(Superblock, checksum)}}},
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
      {"time", {sizeof(TimeRecord), {FIELD(TimeRecord, ns)}}},
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
      {"blocks header",
       {sizeof(BlocksHeader),
        {FIELD(BlocksHeader, magic), FIELD(BlocksHeader, log_id), FIELD(BlocksHeader, tail_lsn),
         FIELD(BlocksHeader, content_bytes), FIELD(BlocksHeader, content_checksum), FIELD(BlocksHeader, checksum)}}},
      {"sums header",
       {sizeof(SumsHeader),
        {FIELD(SumsHeader, magic), FIELD(SumsHeader, log_id), FIELD(SumsHeader, object),
         FIELD(SumsHeader, began_as_zeros), FIELD(SumsHeader, reserved), FIELD(SumsHeader, checksum)}}},
      {"sums page", {sizeof(SumsPage), {FIELD(SumsPage, sums), FIELD(SumsPage, checksum)}}},
      {"in-use header", {sizeof(InUseHeader), {FIELD(InUseHeader, kind), FIELD(InUseHeader, moment)}}},
      {"own bytes", {sizeof(OwnBytes), {FIELD(OwnBytes, marked), FIELD(OwnBytes, reserved), FIELD(OwnBytes, bytes)}}},
      {"store header",
       {sizeof(StoreHeader),
        {FIELD(StoreHeader, kind), FIELD(StoreHeader, physical_block_bytes), FIELD(StoreHeader, by_caller),
         FIELD(StoreHeader, file), FIELD(StoreHeader, own), FIELD(StoreHeader, origin),
         FIELD(StoreHeader, closed_stamp), FIELD(StoreHeader, common), FIELD(StoreHeader, recoveries)}}},
      {"common mark", {sizeof(CommonMark), {FIELD(CommonMark, log_id), FIELD(CommonMark, number)}}},
      {"common record",
       {sizeof(CommonRecord),
        {FIELD(CommonRecord, log_id), FIELD(CommonRecord, kind), FIELD(CommonRecord, extent_count),
         FIELD(CommonRecord, number), FIELD(CommonRecord, size_bytes), FIELD(CommonRecord, bytes)}}},
      {"pack header",
       {sizeof(PackHeader),
        {FIELD(PackHeader, magic), FIELD(PackHeader, version), FIELD(PackHeader, kind), FIELD(PackHeader, archive_id),
         FIELD(PackHeader, log_id), FIELD(PackHeader, number), FIELD(PackHeader, run), FIELD(PackHeader, begin_lsn),
         FIELD(PackHeader, begin_previous), FIELD(PackHeader, end_lsn), FIELD(PackHeader, end_previous),
         FIELD(PackHeader, made_ns), FIELD(PackHeader, first_time_ns), FIELD(PackHeader, checksum)}}},
      {"chunk",
       {sizeof(ChunkHeader),
        {FIELD(ChunkHeader, magic), FIELD(ChunkHeader, index), FIELD(ChunkHeader, bytes),
         FIELD(ChunkHeader, stored_bytes), FIELD(ChunkHeader, checksum)}}},
      {"copy record",
       {sizeof(CopyRecord),
        {FIELD(CopyRecord, kind), FIELD(CopyRecord, object), FIELD(CopyRecord, offset), FIELD(CopyRecord, bytes)}}},
      {"device header",
       {sizeof(RawHeader),
        {FIELD(RawHeader, magic), FIELD(RawHeader, version), FIELD(RawHeader, unit_bytes), FIELD(RawHeader, device_id),
         FIELD(RawHeader, device_bytes), FIELD(RawHeader, map_bytes), FIELD(RawHeader, reserved),
         FIELD(RawHeader, checksum)}}},
      {"map header",
       {sizeof(RawMapHeader),
        {FIELD(RawMapHeader, magic), FIELD(RawMapHeader, device_id), FIELD(RawMapHeader, generation),
         FIELD(RawMapHeader, confirmed), FIELD(RawMapHeader, file_count), FIELD(RawMapHeader, next_number),
         FIELD(RawMapHeader, content_bytes), FIELD(RawMapHeader, content_checksum), FIELD(RawMapHeader, checksum)}}},
      {"file record",
       {sizeof(RawFileRecord),
        {FIELD(RawFileRecord, number), FIELD(RawFileRecord, size_bytes), FIELD(RawFileRecord, extent_count),
         FIELD(RawFileRecord, reserved), FIELD(RawFileRecord, name)}}},
      {"file extent", {sizeof(RawExtent), {FIELD(RawExtent, offset), FIELD(RawExtent, bytes)}}},
  };
  EXPECT_EQ(tables().size(), structs.size() + 1) << "one is the SQLite plugin's: DiskJournal.MatchesTheDocument";
  for (const auto& [name, expected] : structs) expect_table(name, expected.first, expected.second);
}

// The magic numbers spell what the document says.
TEST(FormatDocument, SpellsTheMagicNumbers) {
  const auto spelled = [](auto value) { return std::string(reinterpret_cast<const char*>(&value), sizeof value); };
  EXPECT_EQ(spelled(kSuperblockMagic), "MEMLITH\n");
  EXPECT_EQ(spelled(kDirectoryMagic), "MEMLDIR\n");
  EXPECT_EQ(spelled(kBlocksMagic), "MEMLBLK\n");
  EXPECT_EQ(spelled(kSumsMagic), "MEMLSUM\n");
  EXPECT_EQ(kSumUnknown, 0xffffffffu);
  EXPECT_EQ(spelled(kGuardInUse), "\x89MEMLIT\n");
  EXPECT_EQ(spelled(kStructureInUse), "\x89MEMUSE\n");
  EXPECT_FALSE(is_whole_moment(kNoMoment)) << "a mark without a moment would be taken for one of LSN 0";
  EXPECT_EQ(spelled(kSlotMagic), "SLOT");
  EXPECT_EQ(spelled(kFrameMagic), "FRAM");
  EXPECT_EQ(spelled(kRawMagic), "MEMLRAW\n");
  EXPECT_EQ(spelled(kRawMapMagic), "MEMLMAP\n");
  EXPECT_EQ(kRawMapsOffset, 16384u);
  EXPECT_EQ(kRawNoticeOffset, 8192u);
  EXPECT_EQ(kRawSeed, 0x6d656d6c726177u);
  EXPECT_EQ(kSlotsOffset, 16384u);
  EXPECT_EQ(kHolderOffset, 8192u);
  EXPECT_EQ(kSuperblockSeed, 0x6d656d6c697468u);
}

}  // namespace
}  // namespace memlith::test
