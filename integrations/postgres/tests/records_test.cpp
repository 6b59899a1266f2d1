// Names of relations; the records of the page log: differences of pages, and batches whose bytes may be anything.
#include <gtest/gtest.h>

#include <random>

#include "base/random.hpp"
#include "shared_words.hpp"

namespace memlith_postgres::test {
namespace {

using memlith::core::Random;

TEST(NamesTest, RelationsAreToldFromOtherFiles) {
  for (const char* path : {"base/5/16384", "base/5/16384.1", "base/5/16384_fsm", "base/5/16384_vm.12", "global/1262",
                           "base/5/16384_init", "pg_tblspc/16400/PG_15_202209061/5/16384"}) {
    EXPECT_TRUE(is_relation(path)) << path;
  }
  for (const char* path : {"base/5/t3_16384", "base/5/pg_filenode.map", "base/5/PG_VERSION", "global/pg_control",
                           "base/5/16384.", "base/5/16384_vm_fsm", "base/16384", "pg_wal/000000010000000000000001",
                           "base/5/16384/1", "pg_tblspc/16400/5/16384", "base/pgsql_tmp/1", "xbase/5/16384", "",
                           "base/", "pg_xact/0000", "base/5/16384x", "base/5/"}) {
    EXPECT_FALSE(is_relation(path)) << path;
  }
  EXPECT_EQ(within("/data", "/data/base/5/1"), "base/5/1");
  EXPECT_EQ(within("/data", "/database/5/1"), "/database/5/1");
  EXPECT_EQ(within("/data", "./base/5/1"), "base/5/1");
}

PageBytes random_page(Random& random, const PageBytes& before) {
  PageBytes page = before;
  for (std::uint64_t changes = random.below(40); changes > 0; --changes) {
    const std::size_t begin = random.below(kPageBytes);
    const std::size_t bytes =
        1 + random.below(random.one_in(5) ? kPageBytes - begin : std::min<std::size_t>(60, kPageBytes - begin));
    for (std::size_t i = begin; i < begin + bytes; ++i) page[i] = static_cast<std::byte>(random.below(3));
  }
  return page;
}

// Records in order, over any mixture of the states since the first one, give the last state.
TEST(RecordsTest, DifferencesMakeAnyMixtureOfStatesTheLastOne) {
  Random random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<PageBytes> states{random_page(random, page_of(0))};
    std::vector<std::pair<RecordHead, std::string>> records;
    for (int i = 0; i < 5; ++i) {
      states.push_back(random_page(random, states.back()));
      std::array<std::byte, kContentBytesMax> target;
      const bool whole = random.one_in(6);
      const auto made = encode(target.data(), whole ? nullptr : states[states.size() - 2].data(), states.back().data(),
                               kContentBytesMax);
      ASSERT_TRUE(made);
      records.push_back({{.kind = whole ? RecordKind::whole : RecordKind::change, .ranges = made->ranges},
                         std::string(reinterpret_cast<const char*>(target.data()), made->bytes)});
    }
    PageBytes page(kPageBytes);
    for (std::size_t i = 0; i < kPageBytes; ++i) page[i] = states[random.below(states.size())][i];
    for (const auto& [head, content] : records) ASSERT_TRUE(apply(head, content, page.data()));
    ASSERT_TRUE(page == states.back()) << round;
  }
}

TEST(RecordsTest, TheLargestPageFits) {
  PageBytes page = page_of(0);
  for (std::size_t i = 0; i < kPageBytes; i += 17) page[i] = std::byte{1};
  std::array<std::byte, kContentBytesMax> target;
  EXPECT_TRUE(encode(target.data(), nullptr, page.data(), kContentBytesMax));
  EXPECT_TRUE(encode(target.data(), nullptr, page_of(1).data(), kContentBytesMax));
  EXPECT_FALSE(encode(target.data(), nullptr, page_of(1).data(), kPageBytes));
  const auto none = encode(target.data(), page.data(), page.data(), kContentBytesMax);
  ASSERT_TRUE(none);
  EXPECT_EQ(none->bytes, 0u);
}

std::string batch_of(const std::string& path, const RecordHead& head, const std::string& content) {
  std::string bytes;
  const auto add = [&bytes](const auto& part) { bytes.append(reinterpret_cast<const char*>(&part), sizeof part); };
  add(BatchHead{.magic = kBatchMagic, .files = 1, .records = 1});
  add(FileHead{.number = head.file, .path_bytes = static_cast<std::uint32_t>(path.size())});
  bytes += path;
  add(head);
  return bytes + content;
}

// Every prefix and every changed byte of a batch is read or refused, and nothing outside of a page is written.
TEST(RecordsTest, ABatchMayHoldAnyBytes) {
  const std::string content("\0\0\4\0abcd", 8);
  const std::string batch =
      batch_of("base/5/1", {.file = 3, .kind = RecordKind::whole, .ranges = 1, .bytes = 8}, content);
  const auto read = [](const std::string& bytes) {
    auto reader = BatchReader::open(bytes);
    if (!reader) return false;
    PageBytes page = page_of(0);
    for (std::uint32_t i = 0; i < reader->records(); ++i) {
      const auto record = reader->next();
      if (!record || !apply(record->head, record->content, page.data())) return false;
    }
    return reader->at_end();
  };
  EXPECT_TRUE(read(batch));
  for (std::size_t bytes = 0; bytes < batch.size(); ++bytes) EXPECT_FALSE(read(batch.substr(0, bytes))) << bytes;
  EXPECT_FALSE(read(batch + "x"));
  for (std::size_t i = 0; i < batch.size(); ++i) {
    for (const int bit : {1, 128}) {
      std::string changed = batch;
      changed[i] = static_cast<char>(changed[i] ^ bit);
      (void)read(changed);
    }
  }
  EXPECT_FALSE(read(batch_of("base/5/../../etc/passwd", {.file = 3, .kind = RecordKind::whole, .ranges = 1, .bytes = 8},
                             content)));
}

}  // namespace
}  // namespace memlith_postgres::test
