#include "standby.hpp"

#include <dlfcn.h>
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <string_view>

namespace memlith_postgres {

namespace {

constexpr const char* kOptionName = "memlith.pages";  // a setting that PostgreSQL keeps for whatever reads it
constexpr int kWarning = 19;                          // PostgreSQL's levels of messages, the same in 15 to 17
constexpr int kFatal = 22;
// Programs that receive the log and write no pages.
constexpr std::array<std::string_view, 4> kArchivers = {"pg_basebackup", "pg_receivewal", "barman_receive_wal",
                                                        "wal-g"};

// A function or variable of the server's program; null if it has none.
template <class Symbol>
Symbol* of_server(const char* name) {
  return reinterpret_cast<Symbol*>(::dlsym(RTLD_DEFAULT, name));
}

std::string setting(const char* name) {
  using Get = const char*(const char*, bool, bool);
  auto* const get = of_server<Get>("GetConfigOption");
  const char* const value = get == nullptr ? nullptr : get(name, true, false);
  return value == nullptr ? "" : value;
}

bool is_true(const char* variable) {
  const bool* const value = of_server<bool>(variable);
  return value != nullptr && *value;
}

void report(int level, const std::string& sentence, const std::string& hint) {
  using Start = bool(int, const char*);
  using Say = int(const char*, ...);
  using Finish = void(const char*, int, const char*);
  auto* const start = of_server<Start>("errstart");
  auto* const say = of_server<Say>("errmsg");
  auto* const advise = of_server<Say>("errhint");
  auto* const finish = of_server<Finish>("errfinish");
  if (start == nullptr || say == nullptr || advise == nullptr || finish == nullptr) return;
  if (!start(level, nullptr)) return;
  say("%s", sentence.c_str());
  advise("%s", hint.c_str());
  finish("memlith", 0, "check_receiver");
}

}  // namespace

void announce_standby(const char* path) {
  if (!std::string_view(path).ends_with("/libpqwalreceiver.so")) return;
  const char* const before = std::getenv("PGOPTIONS");
  const std::string option = std::string("-c ") + kOptionName + "=whole";
  const std::string all = before == nullptr ? "" : before;
  if (all.find(option) == std::string::npos) ::setenv("PGOPTIONS", (all + " " + option).c_str(), 1);
}

void check_receiver(const char* path, int flags) {
  static bool is_checked = false;
  if (is_checked || (flags & O_ACCMODE) != O_RDONLY || !std::string_view(path).starts_with("pg_wal/")) return;
  if (!is_true("am_walsender")) return;
  is_checked = true;
  const std::string name = setting("application_name");
  const bool is_archiver = std::find(kArchivers.begin(), kArchivers.end(), name) != kArchivers.end();
  if (is_true("am_db_walsender") || is_archiver || setting(kOptionName) == "whole") return;
  const char* const allowed = std::getenv("MEMLITH_POSTGRES_STANDBYS");
  const bool is_allowed = allowed != nullptr && std::string_view(allowed) == "any";
  report(is_allowed ? kWarning : kFatal,
         "the standby \"" + name + "\" runs without memlith, and this server's log has no full page images",
         "A power cut can tear the standby's pages for good. Start the standby with memlith_postgres.so, too. For "
         "what is no standby, or writes pages whole, start this server with MEMLITH_POSTGRES_STANDBYS=any.");
}

}  // namespace memlith_postgres
