// docs/guarantees.md, "Call by call": an error is a number that travels upward unchanged, with a sentence that is
// whole, of this thread, and never longer than its buffer.
#include "base/status.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <set>
#include <string>
#include <thread>

namespace memlith::core {
namespace {

Status failing() { return fail(Errc::full, Detail::frame, "{} is {}", "the log", 7); }

// A failure carries its category, its detail and its formatted sentence.
TEST(Status, FailMakesNumberAndSentence) {
  const Status status = failing();
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.category, Errc::full);
  EXPECT_EQ(status.detail, Detail::frame);
  EXPECT_EQ(status.os_errno, 0);
  EXPECT_EQ(last_error_text(), "the log is 7");
}

// A failed system call keeps errno, and errno's words end the sentence.
TEST(Status, FailErrnoAddsTheSystemsWords) {
  const Status status = fail_errno(ENOSPC, Detail::resize, "{}: cannot grow", "a/b");
  EXPECT_EQ(status.category, Errc::no_space);
  EXPECT_EQ(status.os_errno, ENOSPC);
  EXPECT_EQ(last_error_text(), "a/b: cannot grow: No space left on device");
}

// Every errno that a user can do something about has its own category; the rest is io.
TEST(Status, CategoryOfErrno) {
  const std::pair<int, Errc> table[] = {{ENOENT, Errc::not_found},
                                        {EEXIST, Errc::exists},
                                        {EACCES, Errc::permission},
                                        {EPERM, Errc::permission},
                                        {EROFS, Errc::read_only},
                                        {ENOSPC, Errc::no_space},
                                        {EDQUOT, Errc::no_space},
                                        {EFBIG, Errc::no_space},
                                        {ENOMEM, Errc::no_memory},
                                        {EMFILE, Errc::too_many_files},
                                        {ENFILE, Errc::too_many_files},
                                        {EIO, Errc::io},
                                        {EINVAL, Errc::invalid},
                                        {EAGAIN, Errc::no_memory},
                                        {ENOSYS, Errc::unsupported},
                                        {EOPNOTSUPP, Errc::unsupported},
                                        {12345, Errc::io}};
  for (const auto& [number, category] : table) EXPECT_EQ(detail::category_of_errno(number), category) << number;
}

// A sentence longer than its buffer is cut at the end, by either maker and by set_error_text.
TEST(Status, LongSentencesAreCut) {
  const std::string endless(3 * kErrorTextBytes, 'x');
  (void)fail(Errc::io, Detail::none, "{}", endless);
  EXPECT_EQ(last_error_text(), endless.substr(0, kErrorTextBytes));
  (void)fail_errno(EIO, Detail::none, "{}", endless);
  EXPECT_EQ(last_error_text(), endless.substr(0, kErrorTextBytes));
  (void)fail_errno(EIO, Detail::none, "{}", endless.substr(0, kErrorTextBytes - 5));
  EXPECT_EQ(last_error_text().size(), kErrorTextBytes);
  set_error_text(endless);
  EXPECT_EQ(last_error_text().size(), kErrorTextBytes);
}

// A sentence may be set from a part of itself.
TEST(Status, SetErrorTextFromItself) {
  (void)fail(Errc::io, Detail::none, "0123456789");
  set_error_text(last_error_text().substr(3));
  EXPECT_EQ(last_error_text(), "3456789");
}

// Another thread's failures do not touch this thread's sentence.
TEST(Status, SentencesAreOfTheirThread) {
  (void)failing();
  std::thread([] { (void)fail(Errc::io, Detail::none, "another"); }).join();
  EXPECT_EQ(last_error_text(), "the log is 7");
}

// Every category and detail has a name of its own.
TEST(Status, NamesAreDistinct) {
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(Errc::conflict); ++i) {
    const std::string_view name = name_of(static_cast<Errc>(i));
    EXPECT_TRUE(name != "unknown" && names.insert(name).second) << i;
    EXPECT_EQ(name.data()[name.size()], 0);  // the C interface hands these out
  }
  names.clear();
  for (int i = 0; i <= static_cast<int>(Detail::heap); ++i) {
    EXPECT_TRUE(names.insert(name_of(static_cast<Detail>(i))).second) << i;
  }
  EXPECT_EQ(name_of(static_cast<Errc>(200)), "unknown");
}

// A Result holds a value, even one that cannot be copied, and destroys it once.
TEST(Result, HoldsMoveOnlyValues) {
  auto shared = std::make_shared<int>(3);
  {
    Result<std::unique_ptr<std::shared_ptr<int>>> result(std::make_unique<std::shared_ptr<int>>(shared));
    ASSERT_TRUE(result.ok() && result.has_value() && static_cast<bool>(result));
    EXPECT_EQ(result.status(), kOk);
    auto moved = std::move(result);
    EXPECT_EQ(***moved, 3);
    EXPECT_EQ(shared.use_count(), 2);
  }
  EXPECT_EQ(shared.use_count(), 1);
}

// A Result holds an error, and moving keeps it.
TEST(Result, HoldsErrors) {
  Result<std::string> result(failing());
  EXPECT_FALSE(result.ok());
  const Result<std::string> moved(std::move(result));
  EXPECT_EQ(moved.error().category, Errc::full);
  EXPECT_EQ(moved.status().detail, Detail::frame);
}

// Asking an error for its value, or making an error out of ok, is a bug and stops the program.
TEST(ResultDeathTest, MisuseStops) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        Result<int> result(failing());
        (void)*result;
      },
      "bug");
  EXPECT_DEATH(
      {
        Result<int> result(3);
        (void)result.error();
      },
      "bug");
  EXPECT_DEATH({ Result<int> result(kOk); }, "bug");
}

Status twice(bool first, bool second, int& steps) {
  MEMLITH_TRY(first ? kOk : failing());
  ++steps;
  MEMLITH_TRY(second ? kOk : failing());
  ++steps;
  return kOk;
}

// MEMLITH_TRY stops at the first error and returns it.
TEST(Try, ReturnsTheFirstError) {
  int steps = 0;
  EXPECT_TRUE(twice(true, true, steps).ok());
  EXPECT_EQ(steps, 2);
  EXPECT_EQ(twice(true, false, steps).category, Errc::full);
  EXPECT_EQ(steps, 3);
  EXPECT_EQ(twice(false, true, steps).category, Errc::full);
  EXPECT_EQ(steps, 3);
}

Result<std::unique_ptr<int>> number(bool good) {
  if (!good) return failing();
  return std::make_unique<int>(5);
}
Result<int> sum(bool first, bool second) {
  MEMLITH_TRY_ASSIGN(const auto a, number(first));
  MEMLITH_TRY_ASSIGN(auto b, number(second));
  return *a + *b;
}

// MEMLITH_TRY_ASSIGN binds values that cannot be copied, evaluates once, and returns errors.
TEST(Try, AssignBindsOrReturns) {
  EXPECT_EQ(*sum(true, true), 10);
  EXPECT_EQ(sum(true, false).error().category, Errc::full);
  EXPECT_EQ(sum(false, true).error().category, Errc::full);
}

}  // namespace
}  // namespace memlith::core
