#include "options.hpp"

#include <charconv>
#include <cstdlib>
#include <optional>

namespace memlith::sqlite {

using core::Detail;
using core::Errc;
using core::fail;
using core::kGiB;
using core::kKiB;
using core::kMiB;
using core::kOk;
using core::Result;
using core::Status;

namespace {

constexpr std::uint64_t kDayMs = 24ull * 60 * 60 * 1000;

std::optional<std::string> find(const Api& api, const char* name, const char* parameter) {
  if (const char* const given = api.uri_parameter(name, parameter); given != nullptr) return given;
  std::string variable = "MEMLITH_SQLITE_";
  for (const char* c = parameter; *c != 0; ++c) variable += static_cast<char>(*c >= 'a' && *c <= 'z' ? *c - 32 : *c);
  if (const char* const given = std::getenv(variable.c_str()); given != nullptr && *given != 0) return given;
  return std::nullopt;
}

Status read_number(const Api& api, const char* name, const char* parameter, std::uint64_t least, std::uint64_t most,
                   std::uint64_t unit, std::uint64_t& target) {
  const std::optional<std::string> text = find(api, name, parameter);
  if (!text.has_value()) return kOk;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc{} || end != text->data() + text->size() || value < least || value > most) {
    return fail(Errc::invalid, Detail::argument, "{}={}: it must be a number from {} to {}", parameter, *text, least,
                most);
  }
  target = value * unit;
  return kOk;
}

}  // namespace

Result<Durability> parse_durability(const std::string& text) {
  if (text == "full") return Durability::full;
  if (text == "weak") return Durability::weak;
  return fail(Errc::invalid, Detail::argument, "durability={}: it must be full or weak", text);
}

Result<bool> parse_read(const std::string& text) {
  if (text == "durable" || text == "latest") return text == "latest";
  return fail(Errc::invalid, Detail::argument, "read={}: it must be durable or latest", text);
}

Result<bool> parse_share(const std::string& text) {
  if (text == "0" || text == "1") return text == "1";
  return fail(Errc::invalid, Detail::argument, "share={}: it must be 0 or 1", text);
}

Result<std::optional<std::uint64_t>> parse_window(const std::string& text) {
  if (text == "off") return std::optional<std::uint64_t>();
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc{} && end == text.data() + text.size() && value <= kDayMs) return std::optional(value);
  return fail(Errc::invalid, Detail::argument, "window_ms={}: it must be off, or a number from 0 to {}", text, kDayMs);
}

Status read_options(const Api& api, const char* name, Options& options) {
  if (const auto text = find(api, name, "durability"); text.has_value()) {
    MEMLITH_TRY_ASSIGN(options.durability, parse_durability(*text));
  }
  if (const auto text = find(api, name, "read"); text.has_value()) {
    MEMLITH_TRY_ASSIGN(options.reads_latest, parse_read(*text));
  }
  MEMLITH_TRY(read_number(api, name, "open_wait_ms", 0, kDayMs, 1, options.open_wait_ms));
  MEMLITH_TRY(read_number(api, name, "idle_ms", 0, kDayMs, 1, options.idle_ms));
  MEMLITH_TRY(read_number(api, name, "window_ms", 0, kDayMs, 1, options.window.interval_ms));
  options.window_given = options.window_given || find(api, name, "window_ms").has_value();
  MEMLITH_TRY(read_number(api, name, "window_bytes", 4 * kKiB, 64 * kGiB, 1, options.window.bytes));
  MEMLITH_TRY(read_number(api, name, "log_mib", 1, 1024 * 1024, kMiB, options.log_bytes));
  MEMLITH_TRY(read_number(api, name, "log_max_mib", 1, 1024 * 1024, kMiB, options.log_max_bytes));
  MEMLITH_TRY(read_number(api, name, "memory_max_mib", 0, 1024 * 1024 * 1024, kMiB, options.memory_max_bytes));
  if (const auto text = find(api, name, "share"); text.has_value()) {
    MEMLITH_TRY_ASSIGN(const bool share, parse_share(*text));
    options.share = share;
  }
  std::uint64_t foresight = options.foresight ? 1 : 0;
  MEMLITH_TRY(read_number(api, name, "foresight", 0, 1, 1, foresight));
  options.foresight = foresight != 0;
  std::uint64_t direct_io = options.store.direct_io ? 1 : 0;
  MEMLITH_TRY(read_number(api, name, "direct_io", 0, 1, 1, direct_io));
  options.store.direct_io = direct_io != 0;
  options.log_max_bytes = std::max(options.log_max_bytes, options.log_bytes);
  return kOk;
}

}  // namespace memlith::sqlite
