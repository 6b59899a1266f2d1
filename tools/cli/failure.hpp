// Failures of the tool, as values.
//
// A MaybeFailure is empty when all went well. A Failure carries what both kinds of output show: the category and code
// of memlith.h, a sentence that says what happened and where, and advice on what to do about it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace memlith::tool {

inline constexpr int kExitFailed = 1;
inline constexpr int kExitDamaged = 2;        // what `verify` or `disktest check` looked at is not sound
inline constexpr int kExitOtherVersion = 3;   // `verify` only: another memlith wrote it, and this one cannot judge it
inline constexpr int kExitInterrupted = 130;  // what shells expect after SIGINT

struct Failure {
  std::string category;
  std::int32_t code = 0;
  std::string message;
  std::string advice;  // empty where the message says it all
  int exit_code = kExitFailed;
};

using MaybeFailure = std::optional<Failure>;

// A library call returned `code` (not MEMLITH_OK) in this thread just now. `doing` names the step; may be empty.
[[nodiscard]] Failure library_failure(std::int32_t code, std::string_view doing);

// The tool itself found something wrong; `category` is one of MEMLITH_INVALID and so on.
[[nodiscard]] Failure tool_failure(std::int32_t category, std::string message, std::string advice = {});

// A system call of the tool failed. The advice is that of its category.
[[nodiscard]] Failure errno_failure(int os_errno, std::string_view doing);

// The user asked us to stop.
[[nodiscard]] Failure interrupted_failure();

// The store is of a format version that this memlith does not read.
[[nodiscard]] bool is_other_version(std::int32_t code);

// Advice for a failure of this category; empty where no general advice exists.
[[nodiscard]] std::string_view advice_for(std::int32_t code);

// A value or the reason why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : content_(std::move(value)) {}
  Result(Failure failure) : content_(std::move(failure)) {}
  [[nodiscard]] bool ok() const { return content_.index() == 0; }
  // Precondition: ok().
  [[nodiscard]] T& operator*() { return *std::get_if<0>(&content_); }
  [[nodiscard]] T* operator->() { return std::get_if<0>(&content_); }
  // Precondition: not ok().
  [[nodiscard]] Failure& failure() { return *std::get_if<1>(&content_); }

 private:
  std::variant<T, Failure> content_;
};

}  // namespace memlith::tool
