// Error values. Floor: base.
//
// Three kinds of failure, never mixed: a bug of ours or a broken precondition aborts (assert.hpp); a failure of the
// environment (I/O, full disk, corrupt bytes, a busy store) is a Status; an expected answer ("no such key") is an
// optional inside the result. A Status is a number and never allocates. The call that makes a Status keeps its message
// per thread, in a fixed buffer.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/assert.hpp"

namespace memlith::core {

// Category of an error. The numbers are the C ABI's (memlith.h) and are only ever appended to.
enum class Errc : std::uint8_t {
  ok = 0,
  invalid = 1,         // an argument or a precondition of the caller
  not_found = 2,       // the named store, object or file is not there
  exists = 3,          // it is there already
  busy = 4,            // another opener holds it
  io = 5,              // the operating system reported a failed read, write or flush
  corrupt = 6,         // bytes on the medium are not what was written
  incompatible = 7,    // a format of a later version, or not a memlith file at all
  full = 8,            // the transaction does not fit the log, even at its limit
  no_space = 9,        // the file system is full
  poisoned = 10,       // an earlier write or flush failed; close and reopen
  permission = 11,     // the operating system refused
  read_only = 12,      // the store or the file system is read-only
  address_taken = 13,  // the addresses of the region are in use in this process
  unsupported = 14,    // this kernel or file system cannot do it
  no_memory = 15,
  too_many_files = 16,  // no descriptor is left, for the process or for the machine
  conflict = 17,        // another transaction holds a lock; the transaction is over, and can be begun again
};

// The object of the failure. Appended to only, as above.
enum class Detail : std::uint8_t {
  none = 0,
  argument = 1,
  superblock = 2,
  slot = 3,
  frame = 4,
  directory = 5,
  object = 6,
  lock = 7,
  open = 8,
  read = 9,
  write = 10,
  flush = 11,
  resize = 12,
  mapping = 13,
  tracker = 14,
  version = 15,
  thread = 16,
  heap = 17,
  kv = 18,
};

struct [[nodiscard]] Status {
  Errc category = Errc::ok;
  Detail detail = Detail::none;
  std::uint16_t reserved = 0;
  std::int32_t os_errno = 0;

  [[nodiscard]] constexpr bool ok() const { return category == Errc::ok; }
  constexpr explicit operator bool() const { return ok(); }
  friend constexpr bool operator==(const Status&, const Status&) = default;
};
static_assert(sizeof(Status) == 8 && std::is_trivially_copyable_v<Status>);

// True if memory or a descriptor was lacking: no file is damaged, and the same call may succeed later.
constexpr bool is_lack(Status status) {
  return status.category == Errc::no_memory || status.category == Errc::too_many_files;
}

inline constexpr Status kOk{};

std::string_view name_of(Errc category);
std::string_view name_of(Detail detail);

// The message of the last Status that this thread made, cut to kErrorTextBytes.
inline constexpr std::size_t kErrorTextBytes = 1024;
std::string_view last_error_text();
void set_error_text(std::string_view text);

namespace detail {
struct ErrorText {
  char text[kErrorTextBytes];
  std::size_t used;
};
ErrorText& error_text();
Errc category_of_errno(int os_errno);
std::string_view text_of_errno(int os_errno);
}  // namespace detail

// A failure and its message, kept for other threads. Allocates nothing, because memory may be lacking when it is
// needed.
class KeptFailure {
 public:
  // Keeps the failure with the current last_error_text().
  void keep(Status status) {
    status_ = status;
    text_ = detail::error_text();
  }
  void forget() { status_ = kOk; }
  [[nodiscard]] bool ok() const { return status_.ok(); }
  [[nodiscard]] std::string_view text() const { return {text_.text, text_.used}; }
  // Returns the failure and sets its message, as if it had happened in the calling thread.
  [[nodiscard]] Status tell() const {
    detail::error_text() = text_;
    return status_;
  }

 private:
  Status status_ = kOk;
  detail::ErrorText text_{};
};

// Preserves the message of a failure while the cleanup after it may fail, too.
class KeptSentence {
 public:
  KeptSentence() : text_(detail::error_text()) {}
  ~KeptSentence() { detail::error_text() = text_; }
  KeptSentence(const KeptSentence&) = delete;
  KeptSentence& operator=(const KeptSentence&) = delete;

 private:
  detail::ErrorText text_;
};

// Makes a Status and its message. The message names the file, the offset, what was expected and what was found, and
// says what the caller can do.
template <class... Args>
Status fail(Errc category, Detail what, fmt::format_string<Args...> format, Args&&... args) {
  auto& text = detail::error_text();
  const auto result = fmt::format_to_n(text.text, sizeof text.text, format, std::forward<Args>(args)...);
  text.used = std::min(result.size, sizeof text.text);
  return Status{category, what, 0, 0};
}

// The same for a failed system call: errno determines the category, and its text is appended.
template <class... Args>
Status fail_errno(int os_errno, Detail what, fmt::format_string<Args...> format, Args&&... args) {
  Status status = fail(detail::category_of_errno(os_errno), what, format, std::forward<Args>(args)...);
  auto& text = detail::error_text();
  const auto result =
      fmt::format_to_n(text.text + text.used, sizeof text.text - text.used, ": {}", detail::text_of_errno(os_errno));
  text.used = std::min(text.used + result.size, sizeof text.text);
  status.os_errno = os_errno;
  return status;
}

// A value or a Status; the subset of std::expected that we use.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)), has_value_(true) {}  // NOLINT(google-explicit-constructor)
  Result(Status error) : error_(error), has_value_(false) {        // NOLINT(google-explicit-constructor)
    MEMLITH_ASSERT(!error.ok());
  }
  Result(Result&& other) noexcept : has_value_(other.has_value_) {
    if (has_value_) {
      new (&value_) T(std::move(other.value_));
    } else {
      error_ = other.error_;
    }
  }
  Result& operator=(Result&&) = delete;
  Result(const Result&) = delete;
  Result& operator=(const Result&) = delete;
  ~Result() {
    if (has_value_) value_.~T();
  }

  [[nodiscard]] bool has_value() const { return has_value_; }
  [[nodiscard]] bool ok() const { return has_value_; }
  explicit operator bool() const { return has_value_; }
  [[nodiscard]] Status status() const { return has_value_ ? kOk : error_; }
  [[nodiscard]] Status error() const {
    MEMLITH_ASSERT(!has_value_);
    return error_;
  }
  T& operator*() {
    MEMLITH_ASSERT(has_value_);
    return value_;
  }
  const T& operator*() const {
    MEMLITH_ASSERT(has_value_);
    return value_;
  }
  T* operator->() { return &**this; }
  const T* operator->() const { return &**this; }

 private:
  union {
    T value_;
    Status error_;
  };
  bool has_value_;
};

}  // namespace memlith::core

#define MEMLITH_CONCAT_(a, b) a##b
#define MEMLITH_CONCAT(a, b) MEMLITH_CONCAT_(a, b)

// Returns the Status upward when it is an error.
#define MEMLITH_TRY(expression) MEMLITH_TRY_(MEMLITH_CONCAT(try_status_, __LINE__), expression)
#define MEMLITH_TRY_(status, expression)                                            \
  do {                                                                              \
    if (::memlith::core::Status status = (expression); !status.ok()) return status; \
  } while (false)

// Binds the value, or returns the Status upward.
#define MEMLITH_TRY_ASSIGN(declaration, expression) \
  MEMLITH_TRY_ASSIGN_(MEMLITH_CONCAT(try_result_, __LINE__), declaration, expression)
#define MEMLITH_TRY_ASSIGN_(result, declaration, expression) \
  auto result = (expression);                                \
  if (!result.ok()) return result.error();                   \
  declaration = std::move(*result)
