// GoogleTest words for Status and Result.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/status.hpp"

namespace memlith::test {

inline core::Status status_of(core::Status status) { return status; }
template <class T>
core::Status status_of(const core::Result<T>& result) {
  return result.status();
}

inline std::string told(core::Status status) {
  return std::string(core::name_of(status.category)) + " (" + std::string(core::name_of(status.detail)) +
         "): " + std::string(core::last_error_text());
}

template <class T>
::testing::AssertionResult is_ok(const T& outcome) {
  const core::Status status = status_of(outcome);
  return status.ok() ? ::testing::AssertionSuccess() : ::testing::AssertionFailure() << told(status);
}

template <class T>
::testing::AssertionResult is_error(const T& outcome, core::Errc wanted) {
  const core::Status status = status_of(outcome);
  if (status.category == wanted) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "wanted " << core::name_of(wanted) << ", got "
                                       << (status.ok() ? "ok" : told(status));
}

// The value, or the end of the test program: for steps that are not what is tested.
template <class T>
T must(core::Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "must: %s\n", told(result.status()).c_str());
    std::abort();
  }
  return std::move(*result);
}

}  // namespace memlith::test

#define EXPECT_OK(outcome) EXPECT_TRUE(::memlith::test::is_ok(outcome))
#define ASSERT_OK(outcome) ASSERT_TRUE(::memlith::test::is_ok(outcome))
#define EXPECT_ERROR(category, outcome) EXPECT_TRUE(::memlith::test::is_error(outcome, category))
#define ASSERT_ERROR(category, outcome) ASSERT_TRUE(::memlith::test::is_error(outcome, category))
