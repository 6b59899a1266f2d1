// Lines, base64, sums.
#include "dump_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <span>

#include "kv.hpp"

namespace memlith::tool {

namespace {

constexpr std::size_t kWriteBytes = 1 << 20;
constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0xedb88320U : 0U);
    table.at(i) = value;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kCrcTable = crc_table();

constexpr std::array<std::int8_t, 256> base64_values() {
  std::array<std::int8_t, 256> values{};
  for (std::int8_t& each : values) each = -1;
  for (std::size_t i = 0; i < kBase64.size(); ++i) {
    values.at(static_cast<unsigned char>(kBase64[i])) = static_cast<std::int8_t>(i);
  }
  return values;
}
constexpr std::array<std::int8_t, 256> kBase64Values = base64_values();

}  // namespace

std::uint32_t crc32_of(std::string_view bytes, std::uint32_t before) {
  std::uint32_t sum = ~before;
  for (const char each : bytes) sum = kCrcTable[(sum ^ static_cast<unsigned char>(each)) & 0xff] ^ (sum >> 8);
  return ~sum;
}

std::string base64_of(std::string_view bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      group = group << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      text += i + j > bytes.size() ? '=' : kBase64[group >> (18 - 6 * j) & 0x3f];
    }
  }
  return text;
}

std::optional<std::string> bytes_of_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); i += 4) {
    const std::size_t padding = i + 4 < text.size() ? 0 : text[i + 3] != '=' ? 0 : text[i + 2] != '=' ? 1 : 2;
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 4; ++j) {
      const std::int8_t value =
          j >= 4 - padding ? std::int8_t{0} : kBase64Values[static_cast<unsigned char>(text[i + j])];
      if (value < 0) return std::nullopt;
      group = group << 6 | static_cast<std::uint32_t>(value);
    }
    for (std::size_t j = 0; j < 3 - padding; ++j) bytes += static_cast<char>(group >> (16 - 8 * j) & 0xff);
  }
  if (base64_of(std::string_view(bytes).substr(bytes.size() / 3 * 3)) != text.substr(bytes.size() / 3 * 4)) {
    return std::nullopt;  // bits that no byte has
  }
  return bytes;
}

std::string dump_end(std::uint64_t objects, std::uint64_t lines, std::uint32_t sum) {
  return fmt::format("end of dump objects={} lines={} crc32={:08x}", objects, lines, sum);
}

// ---- writing ---------------------------------------------------------------------------------------------------

void DumpWriter::put(std::string_view text) {
  waiting_ += text;
  waiting_ += '\n';
  if (waiting_.size() >= kWriteBytes) flush();
}

void DumpWriter::flush() {
  if (!ok()) return waiting_.clear();
  if (file_ != nullptr) {
    failure_ = file_->write(written_, std::as_bytes(std::span(waiting_)));
  } else if (std::fwrite(waiting_.data(), 1, waiting_.size(), stdout) != waiting_.size() || std::fflush(stdout) != 0) {
    failure_ = errno_failure(errno, "writing the dump");
  }
  written_ += waiting_.size();
  waiting_.clear();
}

void DumpWriter::line(std::string_view text) {
  sum_ = crc32_of("\n", crc32_of(text, sum_));
  ++lines_;
  put(text);
}

MaybeFailure DumpWriter::finish(std::uint64_t objects) {
  put(dump_end(objects, lines_, sum_));
  flush();
  return failure_;
}

// ---- reading ---------------------------------------------------------------------------------------------------

LineReader::LineReader(std::FILE* file) : file_(file) {
  if (std::fseek(file, 0, SEEK_END) != 0) return;  // a pipe
  const long end = std::ftell(file);
  (void)std::fseek(file, 0, SEEK_SET);
  if (end > 0) total_bytes = static_cast<std::uint64_t>(end);
}

LineReader::~LineReader() { std::free(line_); }

Result<bool> LineReader::next() {
  errno = 0;
  const ssize_t got = ::getline(&line_, &capacity_, file_);
  if (got <= 0 && std::feof(file_) == 0) return errno_failure(errno, fmt::format("reading line {}", number + 1));
  was_cut_ = got > 0 && line_[got - 1] != '\n';
  if (got <= 0 || was_cut_) return false;
  text = std::string_view(line_, static_cast<std::size_t>(got) - 1);
  bytes += static_cast<std::uint64_t>(got);
  ++number;
  return true;
}

MaybeFailure DumpReader::next() {
  Result<bool> more = lines_.next();
  if (!more.ok()) return std::move(more.failure());
  if (!*more) {
    return tool_failure(MEMLITH_INVALID,
                        fmt::format("line {} of the dump: there is none: the dump was cut", lines_.number + 1),
                        "Make the dump anew. Nothing was made of this one.");
  }
  sum_before_ = sum_;
  sum_ = crc32_of("\n", crc32_of(lines_.text, sum_));
  return {};
}

Failure DumpReader::wrong(const std::string& what) const {
  return tool_failure(MEMLITH_INVALID, fmt::format("line {} of the dump: {}", lines_.number, what),
                      "The dump was changed, or is of another version: make it anew. Nothing was made of this one.");
}

Failure DumpReader::wrong(Failure failure) const {
  failure.message = fmt::format("line {} of the dump: {}", lines_.number, failure.message);
  return failure;
}

MaybeFailure DumpReader::check_end(std::uint64_t objects) const {
  const std::string right = dump_end(objects, lines_.number - 1, sum_before_);
  if (lines_.text != right) return wrong(fmt::format("\"{}\" was expected, by the lines before", right));
  if (!lines_.at_end()) return wrong("there is more behind the last line");
  return {};
}

std::optional<std::string> DumpReader::field() const {
  if (!lines_.text.starts_with(' ')) return std::nullopt;
  return unescaped(lines_.text.substr(1));
}

// ---- the first line of an object -------------------------------------------------------------------------------

std::optional<std::uint64_t> number_in(std::string_view text) {
  const bool hexadecimal = text.starts_with("0x");
  if (hexadecimal) text.remove_prefix(2);
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, hexadecimal ? 16 : 10);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<std::string> name_in(std::string_view text) {
  std::optional<std::string> name = unescaped(text);
  if (name.has_value() && name->find('\0') != std::string::npos) return std::nullopt;
  return name;
}

std::string DumpHead::text() const {
  std::string text = kind;
  for (const auto& [word, number] : numbers) {
    text += word == "address" ? fmt::format(" {}={:#x}", word, number) : fmt::format(" {}={}", word, number);
  }
  return text + " name=" + escaped(name);
}

Result<DumpHead> read_head(const DumpReader& reader) {
  DumpHead head;
  std::string_view rest = reader.text();
  head.kind = rest.substr(0, rest.find(' '));
  rest.remove_prefix(std::min(head.kind.size() + 1, rest.size()));
  while (!rest.starts_with("name=")) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    const std::size_t equals = word.find('=');
    const auto number = equals == std::string_view::npos ? std::nullopt : number_in(word.substr(equals + 1));
    if (!number) return reader.wrong("an object was expected: its kind, its numbers and name=NAME; or the end");
    head.numbers.emplace(word.substr(0, equals), *number);
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
  }
  const auto name = name_in(rest.substr(5));
  if (!name) return reader.wrong("the name has a backslash that does not begin \\xNN, or a zero");
  head.name = *name;
  return head;
}

}  // namespace memlith::tool
