// docs/guarantees.md, "After a crash": opening never guesses; damage is CORRUPT, and nothing is changed.
#include <gtest/gtest.h>

#include "store/format.hpp"
#include "support/store_words.hpp"

namespace memlith::test {
namespace {

using namespace core;

// Found by the crash laboratory. A sector of the directory was written to the place of another: two entries were there
// twice, with their checksums, and two were missing; the count in the header was right. The store opened, and removed
// the files of the two missing objects as left over from an unfinished creation.
TEST(DirectoryEntry, IsNotBelievedTwice) {
  SimImage image;
  {
    SimVolume volume;
    auto store = must(Store::open(volume, tiny_options()));
    for (int i = 1; i <= 5; ++i) (void)create_object(*store, std::to_string(i), 4096);
    ASSERT_OK(store->close());
    image = volume.image();
  }
  Bytes directory = *image.files.at("objects/0");
  constexpr std::uint64_t kSector = 2 * kDirectoryEntryBytes;  // header and entry 1; 2 and 3; 4 and 5
  std::memcpy(directory.data() + 2 * kSector, directory.data() + kSector, kSector);
  image.files["objects/0"] = std::make_shared<const Bytes>(std::move(directory));

  SimVolume volume(image);
  EXPECT_ERROR(Errc::corrupt, Store::open(volume, tiny_options()));
  EXPECT_EQ(volume.image().hash(), image.hash()) << "something was changed";
}

}  // namespace
}  // namespace memlith::test
