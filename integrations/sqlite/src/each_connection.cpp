#include "each_connection.hpp"

#include <array>
#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>

#include "errors.hpp"

#define SQLITE_CORE 1  // the struct of functions, without macros that put it in the place of their names
#include <sqlite3ext.h>

namespace memlith::sqlite {

namespace {

// A function of SQL does not learn whose SQLite calls it, so each SQLite of the process gets a function of its own.
constexpr std::size_t kHostsMax = 4;
std::array<const sqlite3_api_routines*, kHostsMax> g_routines{};

template <std::size_t N>
void tell(sqlite3_context* context, int, sqlite3_value**) {
  const std::string text = newest_report();
  g_routines[N]->result_text(context, text.c_str(), -1, SQLITE_TRANSIENT);
}

// A program that sets a timeout of its own does so later, and keeps it.
int set_busy_timeout(sqlite3* db, char** message, const sqlite3_api_routines& routines) {
  constexpr int kDayMs = 24 * 60 * 60 * 1000;
  const char* const given = std::getenv("MEMLITH_SQLITE_BUSY_MS");
  if (given == nullptr || *given == 0) return SQLITE_OK;
  const std::string_view text = given;
  int ms = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ms);
  if (error == std::errc{} && end == text.data() + text.size() && ms >= 0 && ms <= kDayMs) {
    return routines.busy_timeout(db, ms);
  }
  *message = routines.mprintf("MEMLITH_SQLITE_BUSY_MS=%s: it must be a number from 0 to %d", given, kDayMs);
  return SQLITE_ERROR;
}

template <std::size_t N>
int add_to(sqlite3* db, char** message, const sqlite3_api_routines* routines) {
  if (routines == nullptr) return SQLITE_OK;
  g_routines[N] = routines;
  (void)routines->create_function(db, "memlith_error", 0, SQLITE_UTF8, nullptr, tell<N>, nullptr, nullptr);
  return set_busy_timeout(db, message, *routines);
}

template <std::size_t... N>
constexpr std::array<int (*)(sqlite3*, char**, const sqlite3_api_routines*), sizeof...(N)>
entries(std::index_sequence<N...>) {
  return {add_to<N>...};
}

}  // namespace

void prepare_each_connection(const Api& api) {
  static constexpr auto kEntries = entries(std::make_index_sequence<kHostsMax>());
  static std::size_t used = 0;  // under the mutex of register_vfs()
  if (api.auto_extension == nullptr || used == kEntries.size()) return;
  (void)api.auto_extension(reinterpret_cast<void (*)()>(kEntries[used++]));
}

}  // namespace memlith::sqlite
