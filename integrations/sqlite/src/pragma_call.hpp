// A PRAGMA of a connection, as SQLITE_FCNTL_PRAGMA passes it on. Part of the SQLite plugin.
#pragma once

#include <string>
#include <string_view>

#include "api.hpp"
#include "base/status.hpp"

namespace memlith::sqlite {

class PragmaCall {
 public:
  // As SQLite's argument of the file control. Both live longer.
  PragmaCall(const Api& api, void* argument);

  // In small letters.
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] bool has_value() const { return arguments_[2] != nullptr; }
  [[nodiscard]] std::string value(const char* without) const { return has_value() ? arguments_[2] : without; }

  // Each of these is the end of the call, and returns its code.
  int answer(std::string_view text) const;
  int failed(core::Status status) const;   // the code and the sentence of the status
  int refused(core::Status status) const;  // the code of a wrong statement, and the sentence
  // The pragma is a setting: with a value, it is parsed and set; and the answer is what is set.
  template <class Parse, class Set, class Tell>
  int setting(Parse parse, Set set, Tell tell) const {
    if (has_value()) {
      const auto wanted = parse(std::string(arguments_[2]));
      if (!wanted.ok()) return refused(wanted.error());
      if (const core::Status status = set(*wanted); !status.ok()) return failed(status);
    }
    return answer(tell());
  }

 private:
  const Api& api_;
  char** const arguments_;  // the answer, the name and the value
  std::string name_;
};

// True if SQLite's argument of the file control is of this pragma, whose name has small letters. Allocates nothing.
bool is_pragma(const void* argument, std::string_view name);
// The same with this value.
bool is_pragma(const void* argument, std::string_view name, std::string_view value);

}  // namespace memlith::sqlite
