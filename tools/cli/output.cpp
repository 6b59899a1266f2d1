// Lines on standard output and failures on standard error.
#include "output.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>

#include "memlith/memlith.h"

namespace memlith::tool {

namespace {

void write_to(std::FILE* stream, std::string_view line) {
  std::fwrite(line.data(), 1, line.size(), stream);
  std::fputc('\n', stream);
  std::fflush(stream);
}

// Bytes of the character that `text` begins with, or 0 where a terminal should not get to see its first byte.
std::size_t printable_length(std::string_view text) {
  const auto byte_at = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte_at(0);
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7f ? 1 : 0;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte_at(i) & 0xc0) != 0x80) return 0;
  }
  const bool control = lead == 0xc2 && byte_at(1) < 0xa0;  // U+0080 to U+009F, which some terminals obey
  return control ? 0 : length;
}

// Started with one of them closed, what is opened first would take its place, and get what is printed.
void keep_standard_descriptors() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) < 0) (void)::open("/dev/null", O_RDWR);  // the lowest that is free: this one
  }
}

}  // namespace

void write_line(std::string_view line) { write_to(stdout, line); }

void write_json(const Json& object) {
  // A name on a damaged disk need not be UTF-8, and output must not stop at that.
  write_line(object.dump(-1, ' ', false, Json::error_handler_t::replace));
}

bool output_failed() { return std::ferror(stdout) != 0; }

int report_failure(const Failure& failure, Format format) {
  if (format == Format::json) {
    Json error{{"category", failure.category}, {"code", failure.code}, {"message", failure.message}};
    if (!failure.advice.empty()) error["advice"] = failure.advice;
    write_json(Json{{"error", error}});
  } else {
    write_to(stderr, fmt::format("memlith: {}", printable(failure.message)));
    if (!failure.advice.empty()) write_to(stderr, printable(failure.advice));
  }
  return failure.exit_code;
}

int exit_code_of(const MaybeFailure& failure, Format format) {
  if (failure) return report_failure(*failure, format);
  if (!output_failed()) return 0;
  return report_failure(tool_failure(MEMLITH_IO, "cannot write everything to standard output"), Format::text);
}

int run_program(const char* name, int argument_count, char** arguments, int (*run)(int, char**)) {
  keep_standard_descriptors();
  try {
    return run(argument_count, arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return kExitFailed;
  }
}

std::string human_bytes(std::uint64_t bytes) {
  constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  std::uint64_t unit_bytes = 1;
  while (unit + 1 < std::size(kUnits) && bytes / unit_bytes >= 1024) {
    unit_bytes *= 1024;
    ++unit;
  }
  if (bytes % unit_bytes == 0) return fmt::format("{} {}", bytes / unit_bytes, kUnits[unit]);
  return fmt::format("{:.1f} {}", static_cast<double>(bytes) / static_cast<double>(unit_bytes), kUnits[unit]);
}

std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const std::size_t length = printable_length(text);
    if (length == 0) {
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
      text.remove_prefix(1);
    } else {
      shown += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return shown;
}

std::string kernel_release() {
  utsname names{};
  return ::uname(&names) == 0 ? names.release : "unknown";
}

std::string utc_now() {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(now));
}

}  // namespace memlith::tool
