// Codes, their names and messages; include/memlith/memlith.h. Floor: capi.
#include "capi/errors.hpp"

#include "capi/handles.hpp"

using namespace memlith::core;

static_assert(MEMLITH_CONFLICT == static_cast<int>(Errc::conflict), "categories are Errc's numbers");
static_assert(MEMLITH_DETAIL_VERSION == static_cast<int>(Detail::version), "details are Detail's numbers");
static_assert(MEMLITH_POISONED == static_cast<int>(Errc::poisoned));

namespace memlith::core {
MEMLITH_EARLY_THREAD_LOCAL constinit thread_local unsigned calls_inside = 0;
}  // namespace memlith::core

extern "C" {

size_t memlith_last_error(char* buffer, size_t bytes) {
  const std::string_view text = last_error_text();
  if (buffer != nullptr && bytes > 0) copy_text(std::span(buffer, bytes), text);
  return text.size();
}

const char* memlith_category_name(int32_t code) {
  return name_of(static_cast<Errc>(memlith_category(code))).data();  // literals, ended with a zero
}

const char* memlith_version(void) { return "0.1.0"; }

}  // extern "C"
