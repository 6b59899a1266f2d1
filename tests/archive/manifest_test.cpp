// Manifests of archives: what is read of an earlier version, and what is refused although its checksum is right.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "archive/manifest.hpp"

namespace memlith::test::manifest_test {
namespace {

using namespace core;

void expect_golden(const Manifest& manifest) {
  EXPECT_EQ(manifest.archive_id, 0x1122334455667788u);
  EXPECT_EQ(manifest.log_id, 0x99aabbccddeeff00u);
  EXPECT_EQ(manifest.kind, StoreKind::one_file);
  EXPECT_EQ(manifest.file_name, "app.dat");
  EXPECT_EQ(manifest.place, "");
  EXPECT_EQ(manifest.session, 0xabcdefu);
  EXPECT_EQ(manifest.writer, "process 4711");
  EXPECT_EQ(manifest.next_segment, 8u);
  EXPECT_EQ(manifest.next_full, 4u);
  ASSERT_EQ(manifest.runs.size(), 2u);
  const auto& gap = manifest.runs[1];
  EXPECT_EQ(gap.number, 2u);
  EXPECT_EQ(gap.why, "gap");
  EXPECT_EQ(gap.begin.lsn, Lsn{102400});
  EXPECT_EQ(gap.end.previous, 0x44u);
  EXPECT_EQ(gap.first_segment, 4u);
  EXPECT_EQ(gap.end_segment, 8u);
  EXPECT_EQ(gap.end_ns, 1700000300000000004u);
  EXPECT_EQ(gap.bytes, 90000u);
  EXPECT_EQ(gap.log_id, manifest.log_id);
  EXPECT_EQ(gap.earliest_ns, 0u);
  ASSERT_EQ(manifest.fulls.size(), 1u);
  const FullCopy& full = manifest.fulls[0];
  EXPECT_EQ(full.number, 3u);
  EXPECT_EQ(full.run, 2u);
  EXPECT_EQ(full.complete_at, Lsn{106496});
  EXPECT_EQ(full.slot_bytes, 65536u);
  EXPECT_EQ(full.slot_count, 16u);
  EXPECT_EQ(full.client[0], 0x6b);
}

// As an archiver of version 1 wrote it. A run of that version is of the manifest's log, and says no earliest time.
TEST(ArchiveManifest, OfVersion1IsRead) {
  const std::string client = "6b76" + std::string(508, '0');
  const std::string text =
      "memlith archive 1\narchive 1122334455667788\nlog 99aabbccddeeff00\nkind file\nfile 6170702e646174\n"
      "session abcdef 70726f636573732034373131\nnext 8 4\n"
      "run 1 first 4096 11 81920 22 1 4 1700000000000000001 1700000100000000002 70000\n"
      "run 2 gap 102400 33 204800 44 4 8 1700000200000000003 1700000300000000004 90000\n"
      "full 3 2 102400 33 106496 4 1700000200000000005 12345 4096 65536 16 " +
      client + "\nchecksum 904b05d343b64325\n";
  const auto manifest = Manifest::parse(text, "manifest");
  ASSERT_TRUE(manifest.ok()) << last_error_text();
  expect_golden(*manifest);
  // It goes on in version 2.
  EXPECT_TRUE(manifest->text().starts_with("memlith archive 2\n"));
  const auto again = Manifest::parse(manifest->text(), "manifest");
  ASSERT_TRUE(again.ok()) << last_error_text();
  expect_golden(*again);

  std::string other = text;
  other[other.find("70000")] = '8';
  EXPECT_EQ(Manifest::parse(other, "manifest").status().category, Errc::corrupt);
  other = text;
  other[other.find('1')] = '3';
  EXPECT_EQ(Manifest::parse(other, "manifest").status().category, Errc::incompatible);
}

// Whatever is out of order was not written by an archiver: a restore would take frames for those of another place.
TEST(ArchiveManifest, OutOfOrderIsRefused) {
  Manifest manifest;
  manifest.archive_id = 1;
  manifest.log_id = manifest.session = 2;
  manifest.writer = "one";
  manifest.next_segment = 9;
  manifest.next_full = 3;
  for (const std::uint64_t number : {1u, 2u}) {
    core::Run run;
    run.number = number;
    run.why = number == 1 ? "first" : "gap";
    run.begin = {Lsn{number * 65536}, 3};
    run.end = {Lsn{number * 65536 + 8192}, 4};
    run.first_segment = 4 * number - 3;
    run.end_segment = 4 * number + 1;
    run.log_id = 2;
    manifest.runs.push_back(run);
    FullCopy full;
    full.number = full.run = number;
    full.from = run.begin;
    full.complete_at = run.end.lsn;
    full.first_segment = run.first_segment;
    full.block_bytes = 4096;
    full.slot_bytes = 65536;
    full.slot_count = 4;
    manifest.fulls.push_back(full);
  }
  ASSERT_TRUE(Manifest::parse(manifest.text(), "manifest").ok()) << last_error_text();
  const std::vector<std::function<void(Manifest&)>> changes{
      [](Manifest& m) { std::swap(m.runs[0].number, m.runs[1].number); },
      [](Manifest& m) { m.runs[1].number = 1; },
      [](Manifest& m) { m.runs[0].number = 0; },
      [](Manifest& m) { std::swap(m.runs[0].begin, m.runs[0].end); },
      [](Manifest& m) { m.runs[1].first_segment = 4; },
      [](Manifest& m) { m.next_segment = 8; },
      [](Manifest& m) { std::swap(m.fulls[0], m.fulls[1]); },
      [](Manifest& m) { m.fulls[1].number = 1; },
      [](Manifest& m) { m.next_full = 2; },
      [](Manifest& m) { m.fulls[1].run = 3; },
      [](Manifest& m) { m.fulls[1].run = 1; },
      [](Manifest& m) { m.fulls[1].first_segment = 4; },
      [](Manifest& m) { m.fulls[1].first_segment = 10; },
      [](Manifest& m) { m.fulls[0].complete_at = Lsn{65536 + 12288}; },
      [](Manifest& m) { m.fulls[0].complete_at = Lsn{4096}; },
      [](Manifest& m) { m.fulls[0].from.lsn = Lsn{4096}; },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Manifest wrong = manifest;
    changes[i](wrong);
    const auto parsed = Manifest::parse(wrong.text(), "manifest");
    ASSERT_FALSE(parsed.ok()) << "change " << i;
    EXPECT_EQ(parsed.error().category, Errc::corrupt);
  }
}

}  // namespace
}  // namespace memlith::test::manifest_test
