// docs/guarantees.md, "memlith_store_open": a reader sees everything that was committed, replayed or not, changes no
// byte of any file, and keeps writers out as they keep out readers.
#include <gtest/gtest.h>

#include "support/store_words.hpp"

namespace memlith::test {
namespace {

using namespace core;

class ReadOnlyStore : public ::testing::Test {
 protected:
  static StoreOptions reading() {
    StoreOptions options = tiny_options();
    options.create = false;
    options.read_only = true;
    return options;
  }
  // A store that was dropped with commits in its log only, one of them a growth.
  ObjectId leave_unreplayed() {
    auto store = must(Store::open(*volume_, tiny_options()));
    const ObjectId a = create_object(*store, "a", 8192);
    EXPECT_OK(commit(*store, {{a, 100, filled(5000, 7)}}));
    EXPECT_OK(store->reserve_home(a, 16384));
    EXPECT_OK(commit(*store, {{a, 16000, filled(384, 8)}}, {{a, 16384}}));
    return a;
  }

  TempFolder folder_;
  std::unique_ptr<Volume> volume_ = make_posix_volume(folder_ / "store");
};

// Commits that are only in the log are seen, sizes included, and no byte of any file changes.
TEST_F(ReadOnlyStore, SeesTheLogAndChangesNothing) {
  const ObjectId a = leave_unreplayed();
  const auto before = read_folder(folder_.path());
  {
    auto store = must(Store::open(*volume_, reading()));
    EXPECT_EQ(store->find("a")->size_bytes, 16384u);
    const Bytes content = content_of(*store, a);
    EXPECT_EQ(content[99], std::byte{0});
    EXPECT_EQ(content[5099], std::byte{7});
    EXPECT_EQ(content[16383], std::byte{8});
    EXPECT_ERROR(Errc::read_only, store->checkpoint());
    store->set_flush_window({1, 1});  // of no effect
    store->flush_soon(store->log().durable_lsn());
    EXPECT_OK(store->close());
  }
  EXPECT_EQ(read_folder(folder_.path()), before);
}

// A log that would not fit memory is refused; an opening for writing needs no such memory.
TEST_F(ReadOnlyStore, ALargeLogIsRefused) {
  const ObjectId a = leave_unreplayed();
  StoreOptions options = reading();
  options.overlay_bytes_max = 4096;
  EXPECT_ERROR(Errc::no_memory, Store::open(*volume_, options));
  EXPECT_NE(last_error_text().find("Open the store for writing once"), std::string_view::npos) << last_error_text();
  options.overlay_bytes_max = 1 * kMiB;
  EXPECT_OK(Store::open(*volume_, options));
  EXPECT_OK(must(Store::open(*volume_, tiny_options()))->close());
  options.overlay_bytes_max = 1;
  EXPECT_EQ(content_of(*must(Store::open(*volume_, options)), a)[100], std::byte{7});
}

// Readers do not use the log up: one after the other sees the same, and so does the writer that comes last.
TEST_F(ReadOnlyStore, ReadersAreRepeatable) {
  const ObjectId a = leave_unreplayed();
  for (int i = 0; i < 3; ++i) {
    auto store = must(Store::open(*volume_, reading()));
    EXPECT_EQ(content_of(*store, a)[100], std::byte{7});
    EXPECT_FALSE(store->was_clean());
  }
  auto store = must(Store::open(*volume_, tiny_options()));
  EXPECT_EQ(content_of(*store, a)[16000], std::byte{8});
}

// Several readers at once, no writer meanwhile; and the other way round.
TEST_F(ReadOnlyStore, ManyReadersOrOneWriter) {
  (void)leave_unreplayed();
  auto one = must(Store::open(*volume_, reading()));
  auto two = must(Store::open(*volume_, reading()));
  EXPECT_ERROR(Errc::busy, Store::open(*volume_, tiny_options()));
  EXPECT_NE(last_error_text().find("readers"), std::string::npos) << last_error_text();
  one = nullptr;
  EXPECT_ERROR(Errc::busy, Store::open(*volume_, tiny_options()));
  two = nullptr;
  auto writer = must(Store::open(*volume_, tiny_options()));
  EXPECT_ERROR(Errc::busy, Store::open(*volume_, reading()));
}

// A store that was closed well reads the same way.
TEST_F(ReadOnlyStore, CleanStores) {
  const ObjectId a = leave_unreplayed();
  EXPECT_OK(must(Store::open(*volume_, tiny_options()))->close());
  const auto before = read_folder(folder_.path());
  auto store = must(Store::open(*volume_, reading()));
  EXPECT_TRUE(store->was_clean());
  EXPECT_EQ(content_of(*store, a)[100], std::byte{7});
  EXPECT_EQ(read_folder(folder_.path()), before);
}

// A one-file store too: the reader sees the committed length and bytes, and the file stays as it is.
TEST_F(ReadOnlyStore, OneFileStores) {
  ASSERT_OK(volume_->make_folder(""));
  StoreOptions options = tiny_options();
  options.kind = StoreKind::one_file;
  options.file_name = "data";
  {
    auto store = must(Store::open(*volume_, options));
    const ObjectId file = must(store->create("file", 1000, 0x510000000000, 1 * kGiB)).id;
    ASSERT_OK(store->reserve_home(file, 3001));
    ASSERT_OK(commit(*store, {{file, 2000, filled(1001, 4)}}, {{file, 3001}}));
    ASSERT_OK(store->reserve_home(file, 9000));  // never committed
  }
  const auto before = read_folder(folder_.path());
  options.create = false;
  options.read_only = true;
  {
    auto store = must(Store::open(*volume_, options));
    EXPECT_EQ(store->find("file")->size_bytes, 3001u);
    EXPECT_EQ(content_of(*store, ObjectId{1})[3000], std::byte{4});
    EXPECT_EQ(content_of(*store, ObjectId{1})[1999], std::byte{0});
  }
  EXPECT_EQ(read_folder(folder_.path()), before);
}

// There is nothing to read where there is no store, and a reader makes none.
TEST_F(ReadOnlyStore, MakesNothing) {
  EXPECT_ERROR(Errc::not_found, Store::open(*volume_, reading()));
  EXPECT_TRUE(read_folder(folder_.path()).empty());
  EXPECT_FALSE(std::filesystem::exists(folder_ / "store"));
}

}  // namespace
}  // namespace memlith::test
