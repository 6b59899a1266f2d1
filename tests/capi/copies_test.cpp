// docs/guarantees.md, "Damage": a copy of the file of a heap, a kv store or an application log that was taken while the
// file was in use is refused, and never taken for an older or an empty one.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "memlith/applog.hpp"
#include "memlith/heap.hpp"
#include "memlith/kv.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::copies_test {
namespace {

namespace fs = std::filesystem;

template <class T>
::testing::AssertionResult fine(const T& result) {
  return result.ok() ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << result.error().message();
}

// One kind of structure in one file, with a number that the program counts up.
struct Kind {
  const char* name;
  // Opens the structure, counts `steps` times, each durably, calls `inside`, and closes. What the number is then.
  std::function<Result<int>(const std::string& path, bool create, int steps, const std::function<void()>& inside)> run;
};

Result<int> run_heap(const std::string& path, bool create, int steps, const std::function<void()>& inside) {
  auto heap = Heap::open_file(path, {.create = create});
  if (!heap) return heap.error();
  auto count = heap->root<int>();
  if (!count) return count.error();
  for (int i = 0; i < steps; ++i) {
    ++**count;
    if (auto done = heap->persist(); !done) return done.error();
  }
  inside();
  return **count;
}

Result<int> run_kv(const std::string& path, bool create, int steps, const std::function<void()>& inside) {
  auto store = Store::open_file(path, {.create = create});
  if (!store) return store.error();
  auto kv = Kv::open(*store, "file", {.create = create});
  if (!kv) return kv.error();
  int count = 0;
  auto map = kv->map("numbers", {.create = true});
  if (!map) return map.error();
  const auto step = [&](int more) {
    return kv->transact(
        [&](KvTransaction& txn) -> Result<void> {
          auto found = txn.get(*map, "count");
          if (found) count = std::stoi(std::string(*found));
          count += more;
          return txn.put(*map, "count", std::to_string(count));
        },
        Durability::sync);
  };
  for (int i = 0; i < steps; ++i) {
    if (auto done = step(1); !done) return done.error();
  }
  if (auto done = step(0); !done) return done.error();
  inside();
  if (auto closed = kv->close(); !closed) return closed.error();
  return count;
}

Result<int> run_applog(const std::string& path, bool create, int steps, const std::function<void()>& inside) {
  auto store = Store::open_file(path, {.create = create});
  if (!store) return store.error();
  auto log = AppLog::open(*store, "file", {.create = create, .size = 1 << 20});
  if (!log) return log.error();
  for (int i = 0; i < steps; ++i) {
    if (auto done = log->append("entry"); !done) return done.error();
    if (auto done = log->write(); !done) return done.error();
  }
  inside();
  auto next = log->append("last");  // its number tells how many there were
  if (!next) return next.error();
  if (auto closed = log->close(); !closed) return closed.error();
  return static_cast<int>(*next);
}

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Copies : public ::testing::TestWithParam<Kind> {
 protected:
  Result<int> run(const std::string& path, bool create, int steps, const std::function<void()>& inside = [] {}) {
    return GetParam().run(path, create, steps, inside);
  }
  void expect_refused(const std::string& path) {
    for (const bool create : {false, true}) {
      const auto opened = run(path, create, 0);
      ASSERT_FALSE(opened.ok()) << "opened, and found " << *opened;
      EXPECT_EQ(opened.error().category(), MEMLITH_CORRUPT) << opened.error().message();
      EXPECT_NE(opened.error().message().find("was taken while the file was in use"), std::string::npos)
          << opened.error().message();
      EXPECT_NE(opened.error().message().find(path), std::string::npos) << opened.error().message();
    }
  }
  [[nodiscard]] std::string copy(const std::string& name) {
    const std::string to = folder_ / name;
    fs::copy_file(file_, to, fs::copy_options::overwrite_existing);
    return to;
  }
  TempFolder folder_;
  std::string file_ = folder_ / "file";
};

TEST_P(Copies, OfAFileInUseAreRefused) {
  std::string fresh;
  std::string later;
  ASSERT_TRUE(fine(run(file_, true, 0, [&] { fresh = copy("fresh"); })));
  expect_refused(fresh);
  ASSERT_TRUE(fine(run(file_, true, 3, [&] { later = copy("later"); })));
  expect_refused(later);
}

TEST_P(Copies, OfAFileThatWasClosedAreComplete) {
  const auto counted = run(file_, true, 3);
  ASSERT_TRUE(fine(counted));
  const std::string closed = copy("closed");
  const auto again = run(closed, true, 0);
  ASSERT_TRUE(fine(again));
  EXPECT_GE(*again, *counted);
}

// A program that was killed leaves the mark; the file with its log is complete, and so is a copy after the recovery.
TEST_P(Copies, AfterACrashAreRefusedUntilTheRecovery) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    (void)run(file_, true, 5, [] { ::_exit(7); });
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(WEXITSTATUS(status), 7);
  expect_refused(copy("crashed"));
  auto recovered = Store::open_file(file_, {});  // which knows nothing of what is in the file
  ASSERT_TRUE(fine(recovered));
  ASSERT_TRUE(fine(recovered->close()));
  const auto counted = run(copy("recovered"), true, 0);
  ASSERT_TRUE(fine(counted));
  EXPECT_GE(*counted, 5);
}

// The file of another moment beside the log of a clean close.
TEST_P(Copies, PutBackBesideALogThatWasClosedAreRefused) {
  std::string used;
  ASSERT_TRUE(fine(run(file_, true, 2, [&] { used = copy("used"); })));
  fs::copy_file(used, file_, fs::copy_options::overwrite_existing);
  expect_refused(file_);
}

// A file that was closed has no mark, and is complete. It comes into the place of one whose program was killed: the log
// beside it has commits of that other file.
TEST_P(Copies, OfAClosedFileInThePlaceOfOneInUseAreRefused) {
  ASSERT_TRUE(fine(run(file_, true, 9)));
  const std::string closed = copy("closed");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    (void)run(file_, true, 5, [] { ::_exit(7); });
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(WEXITSTATUS(status), 7);
  const std::string crashed = copy("crashed");
  fs::copy_file(closed, file_, fs::copy_options::overwrite_existing);
  for (const bool read_only : {true, false}) {
    const auto opened = Store::open_file(file_, {.read_only = read_only});
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error().category(), MEMLITH_CORRUPT) << opened.error().message();
    EXPECT_NE(opened.error().message().find("To take the file as it is, remove the log"), std::string::npos)
        << opened.error().message();
  }
  EXPECT_EQ(content(file_), content(closed));
  // Both ways that the message names lead on.
  fs::copy_file(crashed, file_, fs::copy_options::overwrite_existing);
  const auto recovered = run(file_, true, 0);
  ASSERT_TRUE(fine(recovered));
  EXPECT_GE(*recovered, 14);
  fs::copy_file(closed, file_, fs::copy_options::overwrite_existing);
  fs::remove(file_ + ".memlith");
  const auto alone = run(file_, true, 0);
  ASSERT_TRUE(fine(alone));
  EXPECT_LT(*alone, 14);
}

INSTANTIATE_TEST_SUITE_P(All, Copies,
                         ::testing::Values(Kind{"heap", run_heap}, Kind{"kv", run_kv}, Kind{"applog", run_applog}),
                         [](const auto& given) { return std::string(given.param.name); });

// Messages about a structure in one file name the file.
TEST(OneFile, MessagesNameTheFile) {
  const TempFolder folder;
  const std::string path = folder / "notes.heap";
  auto heap = Heap::open_file(path, {.create = true});
  ASSERT_TRUE(fine(heap));
  const auto missing = heap->find<int>("nothing");
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message().find("heap \"" + path + "\""), std::string::npos) << missing.error().message();
}

}  // namespace
}  // namespace memlith::test::copies_test
