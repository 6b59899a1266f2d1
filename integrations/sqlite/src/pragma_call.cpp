#include "pragma_call.hpp"

#include <algorithm>

#include "errors.hpp"

namespace memlith::sqlite {

namespace {

char in_small(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool is_in_small(const char* given, std::string_view wanted) {
  const std::string_view text = given != nullptr ? given : "";
  return std::equal(text.begin(), text.end(), wanted.begin(), wanted.end(),
                    [](char one, char other) { return in_small(one) == other; });
}

}  // namespace

PragmaCall::PragmaCall(const Api& api, void* argument)
    : api_(api), arguments_(static_cast<char**>(argument)), name_(arguments_[1] != nullptr ? arguments_[1] : "") {
  std::transform(name_.begin(), name_.end(), name_.begin(), in_small);
}

int PragmaCall::answer(std::string_view text) const {
  arguments_[0] = api_.mprintf("%.*s", static_cast<int>(text.size()), text.data());
  return SQLITE_OK;
}

int PragmaCall::failed(core::Status status) const {
  const int code = report(api_, status);
  (void)answer(last_report());
  return code;
}

int PragmaCall::refused(core::Status status) const {
  (void)failed(status);
  return SQLITE_ERROR;
}

bool is_pragma(const void* argument, std::string_view name) {
  return is_in_small(static_cast<char* const*>(argument)[1], name);
}

bool is_pragma(const void* argument, std::string_view name, std::string_view value) {
  return is_pragma(argument, name) && is_in_small(static_cast<char* const*>(argument)[2], value);
}

}  // namespace memlith::sqlite
