// Errors, returned upward: what functions that return a MaybeFailure or a Result begin their calls with.
#pragma once

#include <string_view>
#include <utility>

#include "cli/failure.hpp"
#include "memlith/memlith.hpp"

// Returns the failure of a MaybeFailure, if there is one.
#define MEMLITH_TOOL_TRY(...)                   \
  do {                                          \
    if (auto failure_of_this = (__VA_ARGS__)) { \
      return std::move(*failure_of_this);       \
    }                                           \
  } while (false)

// Declares a variable with the value of a Result, or returns its failure.
#define MEMLITH_TOOL_GET(declaration, ...) \
  MEMLITH_TOOL_GET_AS(declaration, MEMLITH_TOOL_NAME(result_of_line_, __LINE__), __VA_ARGS__)
#define MEMLITH_TOOL_GET_AS(declaration, result, ...)   \
  auto result = (__VA_ARGS__);                          \
  if (!result.ok()) return std::move(result.failure()); \
  declaration = std::move(*result)
#define MEMLITH_TOOL_NAME(prefix, line) MEMLITH_TOOL_JOIN(prefix, line)
#define MEMLITH_TOOL_JOIN(prefix, line) prefix##line

namespace memlith::tool {

// The failure of a call of the library in this thread just now, if it failed. `doing` names the step.
template <class T>
MaybeFailure failure_of(const memlith::Result<T>& result, std::string_view doing) {
  if (result) return {};
  return library_failure(result.error().code(), doing);
}
template <class T>
Result<T> checked(memlith::Result<T> result, std::string_view doing) {
  if (!result) return library_failure(result.error().code(), doing);
  return std::move(*result);
}

}  // namespace memlith::tool
