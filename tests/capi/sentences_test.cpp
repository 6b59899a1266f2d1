// What the interface says is whole, and its advice helps when it is followed.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "memlith/memlith.h"
#include "support/temp_folder.hpp"

namespace memlith::test::sentences_test {
namespace {

constexpr std::uint64_t kBytes = 64 * 1024;

std::string last_sentence() {
  char text[1024] = "";
  memlith_last_error(text, sizeof text);
  return text;
}

memlith_store* open_store(const std::string& path) {
  memlith_store_options options{};
  options.struct_size = sizeof options;
  options.flags = MEMLITH_OPEN_CREATE;
  options.log_bytes = 1 << 20;
  memlith_store* store = nullptr;
  EXPECT_EQ(memlith_store_open(path.c_str(), &options, &store), 0) << last_sentence();
  return store;
}

std::int32_t open_region(memlith_store* store, const char* name, std::uint32_t tracker, memlith_region** region) {
  memlith_region_options options{};
  options.struct_size = sizeof options;
  options.flags = MEMLITH_CREATE;
  options.size = kBytes;
  options.max_size = kBytes;
  options.tracker = tracker;
  return memlith_category(memlith_region_open(store, name, &options, region));
}

// A text that was cut lacks the bracket that ends its reason.
TEST(Sentences, ATrackersDetailIsWhole) {
  const TempFolder folder;
  memlith_store* const store = open_store(folder / "store");
  ASSERT_NE(store, nullptr);
  for (const std::uint32_t tracker :
       {MEMLITH_TRACKER_AUTO, MEMLITH_TRACKER_SCAN, MEMLITH_TRACKER_EXPLICIT, MEMLITH_TRACKER_FAULT}) {
    memlith_region* region = nullptr;
    const std::string name = "region " + std::to_string(tracker);
    const std::int32_t code = open_region(store, name.c_str(), tracker, &region);
    if (code == MEMLITH_UNSUPPORTED) continue;
    ASSERT_EQ(code, 0) << last_sentence();
    memlith_region_info info{};
    info.struct_size = sizeof info;
    ASSERT_EQ(memlith_region_get_info(region, &info), 0);
    const std::string detail = info.tracker_detail;
    EXPECT_FALSE(detail.empty());
    // The longest text is less than half of the field, so that a long reason of another kernel fits as well.
    EXPECT_LT(detail.size(), sizeof info.tracker_detail / 2) << detail;
    EXPECT_EQ(std::count(detail.begin(), detail.end(), '('), std::count(detail.begin(), detail.end(), ')')) << detail;
    EXPECT_EQ(memlith_region_close(region), 0);
  }
  EXPECT_EQ(memlith_store_close(store), 0);
}

// A copy of a store has its original's addresses. The sentence says what helps, and both ways help.
TEST(Sentences, TheAdviceForACopyBesideItsOriginalHelps) {
  const TempFolder folder;
  const std::string original_path = folder / "original";
  const std::string copy_path = folder / "copy";
  memlith_store* original = open_store(original_path);
  ASSERT_NE(original, nullptr);
  memlith_region* in_original = nullptr;
  ASSERT_EQ(open_region(original, "a", MEMLITH_TRACKER_AUTO, &in_original), 0) << last_sentence();
  ASSERT_EQ(memlith_store_close(original), 0);
  std::filesystem::copy(original_path, copy_path, std::filesystem::copy_options::recursive);

  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();  // before the original is open here, so that nothing of it is inherited
  if (child == 0) {
    ::alarm(60);
    char go = 0;
    if (::read(ready[0], &go, 1) != 1) ::_exit(1);
    memlith_store* const copy = open_store(copy_path);
    memlith_region* region = nullptr;
    if (copy == nullptr || open_region(copy, "a", MEMLITH_TRACKER_AUTO, &region) != 0) ::_exit(2);
    ::_exit(memlith_store_close(copy) == 0 ? 0 : 3);
  }
  original = open_store(original_path);
  ASSERT_NE(original, nullptr);
  ASSERT_EQ(open_region(original, "a", MEMLITH_TRACKER_AUTO, &in_original), 0) << last_sentence();
  ASSERT_EQ(::write(ready[1], "!", 1), 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "another process could not open the copy";
  ::close(ready[0]);
  ::close(ready[1]);

  memlith_store* const copy = open_store(copy_path);
  ASSERT_NE(copy, nullptr);
  memlith_region* in_copy = nullptr;
  ASSERT_EQ(open_region(copy, "a", MEMLITH_TRACKER_AUTO, &in_copy), MEMLITH_ADDRESS_TAKEN);
  const std::string said = last_sentence();
  EXPECT_NE(said.find("close the original first"), std::string::npos) << said;
  EXPECT_NE(said.find("open the copy in another process"), std::string::npos) << said;
  ASSERT_EQ(memlith_store_close(original), 0);
  EXPECT_EQ(open_region(copy, "a", MEMLITH_TRACKER_AUTO, &in_copy), 0) << last_sentence();
  EXPECT_EQ(memlith_store_close(copy), 0);
}

}  // namespace
}  // namespace memlith::test::sentences_test
