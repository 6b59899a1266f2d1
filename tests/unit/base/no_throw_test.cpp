// An exception of a body becomes an error that says what to do.
#include "base/no_throw.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <stdexcept>

namespace memlith::test {
namespace {

using namespace core;

Status thrown(auto what) {
  return no_throw([&what]() -> Status { throw what; });
}

TEST(NoThrow, PassesOnAStatus) {
  EXPECT_TRUE(no_throw([] { return kOk; }).ok());
  EXPECT_EQ(no_throw([] { return fail(Errc::busy, Detail::lock, "held"); }).category, Errc::busy);
}

TEST(NoThrow, MakesErrorsOfExceptions) {
  EXPECT_EQ(thrown(std::bad_alloc()).category, Errc::no_memory);
  const Status thread = thrown(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)));
  EXPECT_EQ(thread.category, Errc::no_memory);
  EXPECT_EQ(thread.detail, Detail::thread);
  const Status file = thrown(std::system_error(std::make_error_code(std::errc::permission_denied)));
  EXPECT_EQ(file.category, Errc::permission);
  EXPECT_EQ(file.os_errno, EACCES);
  EXPECT_EQ(thrown(std::runtime_error("odd")).category, Errc::io);
  EXPECT_EQ(last_error_text(), "unexpected: odd");
}

}  // namespace
}  // namespace memlith::test
