// An exception of a body becomes an error that says what to do.
#include "base/no_throw.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <stdexcept>
#include <string>

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
  EXPECT_EQ(last_error_text(), "out of memory");
  const Status thread = thrown(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)));
  EXPECT_EQ(thread.category, Errc::no_memory);
  EXPECT_EQ(thread.detail, Detail::thread);
  const Status file = thrown(std::system_error(std::make_error_code(std::errc::permission_denied)));
  EXPECT_EQ(file.category, Errc::permission);
  EXPECT_EQ(file.os_errno, EACCES);
  EXPECT_EQ(thrown(std::runtime_error("odd")).category, Errc::io);
  EXPECT_EQ(last_error_text(), "unexpected: odd");
}

TEST(NoThrow, NamesTheLimitOfAddresses) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  rlimit limit = before;
  limit.rlim_cur = rlim_t{1} << 46;
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
  EXPECT_EQ(out_of_memory(Detail::object, " in a checkpoint").category, Errc::no_memory);
  const std::string told(last_error_text());
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_NE(told.find("out of memory in a checkpoint"), std::string::npos) << told;
  EXPECT_NE(told.find("70368744177664 bytes of addresses in all (RLIMIT_AS, `ulimit -v`)"), std::string::npos) << told;
}

}  // namespace
}  // namespace memlith::test
