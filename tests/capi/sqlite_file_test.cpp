// docs/format.md, "SQLite": what the first bytes of a database say of it, whole or half written.
#include "memlith/sqlite_file.h"

#include <gtest/gtest.h>

#include <string>

namespace memlith::test::sqlite_file_test {
namespace {

const std::string kMagic(MEMLITH_SQLITE_MAGIC, 16);
const std::string kMark = MEMLITH_SQLITE_MARK;
const std::string kMoment = "\x01\x02\x03\x04\x05\x06\x07\x08";
constexpr std::uint64_t kMomentValue = 0x0807060504030201;

memlith_sqlite_head look(const std::string& file) { return memlith_sqlite_look(file.data(), file.size()); }
std::int32_t kind(const std::string& file) { return look(file).kind; }
std::string database(char write_version, char read_version) {
  return kMagic + std::string("\x10\0", 2) + write_version + read_version + std::string(4076, '\0');
}

TEST(SqliteFile, NothingAndZerosAndWhatIsNoDatabase) {
  EXPECT_EQ(kind(""), MEMLITH_SQLITE_EMPTY);
  for (const std::size_t bytes : {1u, 15u, 16u, 19u, 20u, 4096u}) {
    EXPECT_EQ(kind(std::string(bytes, '\0')), MEMLITH_SQLITE_ZEROS) << bytes;
    EXPECT_EQ(kind(std::string(bytes, 'x')), MEMLITH_SQLITE_FOREIGN) << bytes;
  }
  EXPECT_EQ(kind(kMagic), MEMLITH_SQLITE_FOREIGN) << "no header behind it";
  EXPECT_EQ(kind(kMark), MEMLITH_SQLITE_FOREIGN) << "no log behind it";
}

TEST(SqliteFile, PlainAndItsJournal) {
  EXPECT_EQ(kind(database(1, 1)), MEMLITH_SQLITE_PLAIN);
  EXPECT_EQ(look(database(1, 1)).wal_mode, 0);
  for (const std::string& file : {database(2, 2), database(1, 2), database(2, 1)}) {
    EXPECT_EQ(look(file).kind, MEMLITH_SQLITE_PLAIN);
    EXPECT_EQ(look(file).wal_mode, 1);
  }
}

TEST(SqliteFile, TheMarkWholeAndInHalves) {
  for (const std::string& behind : {std::string(), std::string(4080, 'x')}) {
    EXPECT_EQ(kind(kMark + kMoment + behind), MEMLITH_SQLITE_MARKED);
    EXPECT_EQ(look(kMark + kMoment + behind).moment, kMomentValue);
    // SQLite's bytes over the mark, or the other way round: of the halves one was written.
    EXPECT_EQ(kind(kMagic.substr(0, 8) + kMoment + behind), MEMLITH_SQLITE_MARKED);
    EXPECT_EQ(look(kMagic.substr(0, 8) + kMoment + behind).moment, kMomentValue);
    EXPECT_EQ(kind(kMark + kMagic.substr(8) + behind), MEMLITH_SQLITE_MARKED);
    EXPECT_EQ(look(kMark + kMagic.substr(8) + behind).moment, 0u) << "cannot be told";
  }
}

TEST(SqliteFile, UnderTheMark) {
  const std::string whole = database(1, 1).replace(24, 1, "\x01");
  for (const std::size_t bytes : {16u, 24u, 25u, 4096u}) {
    const std::string own = whole.substr(0, bytes);
    std::string marked = kMark + kMoment + own.substr(16);
    if (bytes > 24) marked[24] = '\x81';
    memlith_sqlite_unmark(marked.data(), marked.size());
    EXPECT_EQ(marked, own);
    memlith_sqlite_unmark(marked.data(), marked.size());
    EXPECT_EQ(marked, own) << "there is no mark";
  }
}

// No more than the bytes that it asks for are looked at.
TEST(SqliteFile, LooksNoFurther) {
  const std::string begin = database(1, 1).substr(0, MEMLITH_SQLITE_LOOK_BYTES);
  EXPECT_EQ(memlith_sqlite_look(begin.data(), 1u << 30).kind, MEMLITH_SQLITE_PLAIN);
}

}  // namespace
}  // namespace memlith::test::sqlite_file_test
