// A path leads to a volume and a name in it: a folder to itself, a file to the folder that has it, whatever link leads
// there.
#include "store/place.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/expect.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test {
namespace {

using namespace core;

class Places : public ::testing::Test {
 protected:
  Places() {
    std::filesystem::create_directories(folder_ / "real");
    write_file(folder_ / "real/data", "x");
    std::filesystem::create_symlink("real/data", folder_ / "link");
  }
  static std::string text_of(const Place& place) { return place.volume->path_of(place.file_name); }

  TempFolder folder_;
};

TEST_F(Places, AFolderIsItsOwnVolume) {
  const Place place = must(place_of_store(folder_ / "real", StoreKind::folder));
  EXPECT_EQ(place.file_name, "");
  EXPECT_TRUE(must(place.volume->exists("data")));
}

TEST_F(Places, AFileLiesInItsFolder) {
  const Place place = must(place_of_store(folder_ / "real/data", StoreKind::one_file));
  EXPECT_EQ(place.file_name, "data");
  EXPECT_TRUE(must(place.volume->exists("data")));
  EXPECT_EQ(must(place_of_store("data", StoreKind::one_file)).file_name, "data");
}

// The log of a file lies beside the file itself; who asks for the name gets the name.
TEST_F(Places, ALinkLeadsToTheFileUnlessTheNameIsMeant) {
  EXPECT_EQ(text_of(must(place_of_store(folder_ / "link", StoreKind::one_file))),
            std::filesystem::canonical(folder_ / "real/data").string());
  EXPECT_EQ(must(place_of_name(folder_ / "link")).file_name, "link");
  std::filesystem::remove(folder_ / "real/data");
  EXPECT_EQ(must(place_of_store(folder_ / "link", StoreKind::one_file)).file_name, "link") << "it leads nowhere";
}

TEST_F(Places, WhatIsNoNameIsRefused) {
  for (const char* const path : {"", "a/", "a/..", "."}) {
    EXPECT_EQ(place_of_name(path).status().category, Errc::invalid) << path;
    EXPECT_EQ(place_of_store(path, StoreKind::one_file).status().category, Errc::invalid) << path;
  }
  EXPECT_EQ(place_of_store("", StoreKind::folder).status().category, Errc::invalid);
}

TEST_F(Places, TheKindIsThatOfWhatLiesThere) {
  EXPECT_EQ(kind_at(folder_ / "real"), StoreKind::folder);
  EXPECT_EQ(kind_at(folder_ / "link"), StoreKind::one_file);
  EXPECT_EQ(kind_at(folder_ / "none"), StoreKind::one_file);
}

}  // namespace
}  // namespace memlith::test
