// The text of `memlith dump` and `memlith load`: lines, and the sum over them. docs/dump.md describes the format.
//
// A dump begins with a line that names its version and ends with a line that counts: what was cut or changed is
// refused.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cli/failure.hpp"
#include "cli/new_file.hpp"
#include "cli/store_path.hpp"

namespace memlith::tool {

inline constexpr std::string_view kDumpFirstWords = "memlith-dump 1 ";  // and the kind of the store

// The CRC-32 of zlib, of `bytes` behind others whose sum is `before`.
[[nodiscard]] std::uint32_t crc32_of(std::string_view bytes, std::uint32_t before = 0);

[[nodiscard]] std::string base64_of(std::string_view bytes);
// Nothing if the text is no base64, with the padding that base64_of writes.
[[nodiscard]] std::optional<std::string> bytes_of_base64(std::string_view text);

// The last line of a dump.
[[nodiscard]] std::string dump_end(std::uint64_t objects, std::uint64_t lines, std::uint32_t sum);

class DumpWriter {
 public:
  // Null: to standard output.
  explicit DumpWriter(NewFile* file) : file_(file) {}
  // Not `ok` any more after the first failure, which finish() returns.
  void line(std::string_view text);
  [[nodiscard]] bool ok() const { return !failure_.has_value(); }
  [[nodiscard]] MaybeFailure finish(std::uint64_t objects);
  [[nodiscard]] std::uint64_t lines() const { return lines_; }

 private:
  void put(std::string_view text);
  void flush();

  NewFile* file_;
  std::string waiting_;
  std::uint64_t written_ = 0;
  std::uint64_t lines_ = 0;
  std::uint32_t sum_ = 0;
  MaybeFailure failure_;
};

// Lines of a file or a pipe, with their numbers.
class LineReader {
 public:
  explicit LineReader(std::FILE* file);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // The next line is in `text`. False at the end; a last line without an end of line is none.
  Result<bool> next();
  [[nodiscard]] bool was_cut() const { return was_cut_; }  // there was such a line
  [[nodiscard]] bool at_end() const { return std::fgetc(file_) == EOF; }

  std::string_view text;  // without the end of the line
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;
  std::uint64_t total_bytes = 0;  // 0: unknown

 private:
  std::FILE* file_;
  char* line_ = nullptr;
  std::size_t capacity_ = 0;
  bool was_cut_ = false;
};

class DumpReader {
 public:
  explicit DumpReader(std::FILE* file) : lines_(file) {}

  // A failure at the end of the file, where there is always another line to come.
  [[nodiscard]] MaybeFailure next();
  [[nodiscard]] std::string_view text() const { return lines_.text; }
  // A failure that names the line.
  [[nodiscard]] Failure wrong(const std::string& what) const;
  [[nodiscard]] Failure wrong(Failure failure) const;
  // Fails unless the line is the last one, and right. `objects`: how many were read.
  [[nodiscard]] MaybeFailure check_end(std::uint64_t objects) const;
  // The bytes of a line that begins with a blank.
  [[nodiscard]] std::optional<std::string> field() const;
  [[nodiscard]] const LineReader& lines() const { return lines_; }

 private:
  LineReader lines_;
  std::uint32_t sum_before_ = 0;  // of the lines before this one
  std::uint32_t sum_ = 0;
};

// The line that begins an object: "log size=4096 first=1 name=orders".
struct DumpHead {
  std::string kind;
  std::map<std::string, std::uint64_t, std::less<>> numbers;
  std::string name;
  [[nodiscard]] std::uint64_t number(std::string_view word) const {
    const auto found = numbers.find(word);
    return found == numbers.end() ? 0 : found->second;
  }
  [[nodiscard]] std::string text() const;
};
[[nodiscard]] Result<DumpHead> read_head(const DumpReader& reader);

// A name of C: of bytes other than zero.
[[nodiscard]] std::optional<std::string> name_in(std::string_view text);

// Decimal, or hexadecimal behind 0x.
[[nodiscard]] std::optional<std::uint64_t> number_in(std::string_view text);

}  // namespace memlith::tool
