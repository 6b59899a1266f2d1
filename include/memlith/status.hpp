// memlith: errors as values. The C++20 interface over memlith/status.h.
//
//   memlith::Result<int> found = look_up("marble");
//   if (!found) {
//     std::cerr << found.error().message() << "\n";  // what failed, where, and what to do
//     if (found.error().category() == MEMLITH_NOT_FOUND) ...
//     return;
//   }
//   std::cout << *found << "\n";  // of a failed result, the value ends the program with the message
#pragma once

#include <cassert>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "memlith/status.h"

namespace memlith {

// Why a call failed: a code of memlith/status.h and its message.
class Error {
 public:
  Error() = default;
  explicit Error(std::int32_t code) : code_(code), message_(text_of_last()) {}
  Error(std::int32_t code, std::string message) : code_(code), message_(std::move(message)) {}

  [[nodiscard]] std::int32_t code() const { return code_; }
  [[nodiscard]] std::int32_t category() const { return memlith_category(code_); }
  [[nodiscard]] const std::string& message() const { return message_; }

 private:
  static std::string text_of_last() {
    char buffer[1024];
    memlith_last_error(buffer, sizeof buffer);
    return buffer;
  }
  std::int32_t code_ = MEMLITH_OK;
  std::string message_;
};

namespace detail {
// The program used the value of a failed result: the program ends, in every build, and prints the error's message.
[[noreturn]] inline void end_without_value(const Error& error) {
  std::fprintf(stderr, "memlith: the value of a failed call was used: %s\n", error.message().c_str());
  std::abort();
}
}  // namespace detail

// A value, or an Error. Check ok() before you use the value: using the value of a failed result is an error of the
// program, which ends with the error's message.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : content_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : content_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)
  [[nodiscard]] bool ok() const { return content_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& operator*() {
    if (!ok()) detail::end_without_value(error());
    return *std::get_if<0>(&content_);
  }
  const T& operator*() const {
    if (!ok()) detail::end_without_value(error());
    return *std::get_if<0>(&content_);
  }
  T* operator->() { return &**this; }
  const T* operator->() const { return &**this; }
  [[nodiscard]] const Error& error() const {
    assert(!ok());
    return *std::get_if<1>(&content_);
  }

 private:
  std::variant<T, Error> content_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)
  [[nodiscard]] bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  [[nodiscard]] const Error& error() const {
    assert(!ok());
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

namespace detail {
constexpr std::uint32_t flag_if(bool set, std::uint32_t flag) { return set ? flag : 0; }
inline Result<void> result_of(std::int32_t code) { return code == MEMLITH_OK ? Result<void>() : Error(code); }
inline std::string_view view_of(memlith_bytes bytes) { return {static_cast<const char*>(bytes.data), bytes.size}; }
inline bool is_still_open(std::int32_t code) {  // after a close that failed
  const std::int32_t why = memlith_category(code);
  return why == MEMLITH_BUSY || why == MEMLITH_NO_SPACE || why == MEMLITH_FULL || why == MEMLITH_NO_MEMORY ||
         why == MEMLITH_TOO_MANY_FILES;
}
}  // namespace detail

// The number of an asynchronous persist, for Store::wait(). Tickets rise in the order of the persists.
using Ticket = std::uint64_t;

}  // namespace memlith
