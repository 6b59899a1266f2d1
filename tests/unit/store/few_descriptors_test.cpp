// docs/guarantees.md, "Running out of descriptors": an error of its own, which leaves no file that was not there
// before.
#include "support/few_descriptors.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "support/process_memory.hpp"
#include "support/sanitizers.hpp"
#include "support/store_words.hpp"

namespace memlith::test {
namespace {

using namespace core;

std::set<std::string> files_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) names.insert(std::filesystem::relative(entry.path(), folder).string());
  }
  return names;
}

class FewDescriptorsStore : public ::testing::TestWithParam<StoreKind> {
 protected:
  StoreOptions options() const {
    StoreOptions options = tiny_options();
    options.kind = GetParam();
    if (GetParam() == StoreKind::one_file) options.file_name = "data";
    return options;
  }
  std::string root(const TempFolder& folder) const {
    return GetParam() == StoreKind::one_file ? folder.path() : folder / "store";
  }
};
INSTANTIATE_TEST_SUITE_P(Of, FewDescriptorsStore, ::testing::Values(StoreKind::folder, StoreKind::one_file),
                         [](const auto& given) { return given.param == StoreKind::folder ? "Folder" : "File"; });

// However many descriptors there are for it, a creation succeeds or leaves nothing.
TEST_P(FewDescriptorsStore, ACreationThatFailsLeavesNothing) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer's own checks need descriptors";
  unsigned more = 0;
  for (bool opened = false; !opened; ++more) {
    ASSERT_LT(more, 40u);
    const TempFolder folder;
    const auto volume = make_posix_volume(root(folder));
    {
      const FewDescriptors few(more);
      const auto store = Store::open(*volume, options());
      opened = store.ok();
      if (!opened) {
        EXPECT_EQ(store.error().category, Errc::too_many_files) << more << ": " << last_error_text();
        EXPECT_NE(last_error_text().find("RLIMIT_NOFILE"), std::string_view::npos) << last_error_text();
      }
    }
    if (!opened) {
      EXPECT_EQ(files_in(folder.path()), std::set<std::string>()) << "with " << more << " descriptors";
      EXPECT_OK(Store::open(*volume, options())) << "with enough, afterwards";
    }
  }
  EXPECT_GT(more, 3u) << "nothing failed";
}

// The store stays, whatever an opening lacks, and is opened again with all its content.
TEST_P(FewDescriptorsStore, AnOpeningThatFailsTakesNothingAway) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer's own checks need descriptors";
  unsigned more = 0;
  for (bool opened = false; !opened; ++more) {
    ASSERT_LT(more, 40u);
    const TempFolder folder;
    const auto volume = make_posix_volume(root(folder));
    ObjectId object = kFile;
    {
      auto store = must(Store::open(*volume, options()));
      const ObjectInfo info = must(store->create("a", 8192, 0x510000000000, 1 * kGiB));
      object = info.id;
      ASSERT_OK(commit(*store, {{object, 0, filled(8192, 7)}}));
    }
    const auto before = files_in(folder.path());
    {
      const FewDescriptors few(more);
      const auto store = Store::open(*volume, options());
      opened = store.ok();
      if (!opened) {
        EXPECT_EQ(store.error().category, Errc::too_many_files) << more << ": " << last_error_text();
      }
    }
    for (const std::string& name : before) {
      EXPECT_TRUE(files_in(folder.path()).contains(name) || name.ends_with("stats")) << name << " is gone";
    }
    auto store = must(Store::open(*volume, options()));
    EXPECT_EQ(content_of(*store, object), filled(8192, 7));
  }
  EXPECT_GT(more, 2u) << "nothing failed";
}

}  // namespace
}  // namespace memlith::test
