// memlith kv dump, memlith kv load: a kv store as text, and back. docs/kv.md describes the format.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "cli/interrupt.hpp"
#include "cli/progress.hpp"
#include "commands.hpp"
#include "kv.hpp"

namespace memlith::tool {

namespace {

constexpr const char* kFirstLine = "memlith-kv-dump 1";
constexpr std::uint64_t kBatchBytes = 1 << 20;  // of records in one transaction of a load

std::string last_line(std::uint64_t maps) { return fmt::format("maps {}", maps); }

struct FileCloser {
  void operator()(std::FILE* file) const { (void)std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, FileCloser>;

bool put_line(std::FILE* file, const std::string& line) {
  return std::fwrite(line.data(), 1, line.size(), file) == line.size() && std::fputc('\n', file) != EOF;
}

MaybeFailure dump_maps(const OpenKv& kv, const std::vector<std::string>& names, std::uint64_t records,
                       std::FILE* file) {
  Result<TxnHandle> txn = begin(kv, true);
  if (!txn.ok()) return std::move(txn.failure());
  ProgressBar bar("dumping");
  std::uint64_t done = 0;
  bool written = put_line(file, kFirstLine);
  for (const std::string& name : names) {
    Result<memlith_kv_map> map = kv.map(name, false);
    if (!map.ok()) return std::move(map.failure());
    written = written && put_line(file, "map " + escaped(name));
    MaybeFailure failure = for_each_record(txn->get(), *map, {}, {}, [&](std::string_view key, std::string_view value) {
      written = written && put_line(file, " " + escaped(key)) && put_line(file, " " + escaped(value));
      if (++done % 1000 == 0) ProgressBar::update(&bar, done, records);
      return written && !interrupted();
    });
    if (failure) return failure;
    if (interrupted()) return interrupted_failure();
    written = written && put_line(file, "end");
  }
  written = written && put_line(file, last_line(names.size()));
  if (!written || std::fflush(file) != 0) return errno_failure(errno, "writing the dump");
  return {};
}

// Lines of a file, with their numbers.
class Lines {
 public:
  explicit Lines(std::FILE* file) : file_(file) {}
  ~Lines() { std::free(line_); }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;
  // False at the end of the file. A last line without an end of line was cut, and is none.
  bool next() {
    const ssize_t got = ::getline(&line_, &capacity_, file_);
    if (got <= 0 || line_[got - 1] != '\n') return false;
    text = std::string_view(line_, static_cast<std::size_t>(got) - 1);
    bytes += static_cast<std::uint64_t>(got);
    ++number;
    return true;
  }
  std::string_view text;
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;

 private:
  std::FILE* file_;
  char* line_ = nullptr;
  std::size_t capacity_ = 0;
};

class Loader {
 public:
  Loader(const OpenKv& kv, std::FILE* file, const std::string& only)
      : kv_(kv), lines_(file), only_(only), total_bytes_(size_of(file)) {}

  [[nodiscard]] MaybeFailure run() {
    if (!lines_.next() || lines_.text != kFirstLine)
      return wrong(fmt::format("it does not begin with \"{}\"", kFirstLine));
    for (;;) {
      if (!lines_.next()) return wrong("it was cut: there is neither another map nor the count of maps");
      if (lines_.text == last_line(maps_)) break;
      if (!lines_.text.starts_with("map "))
        return wrong(fmt::format("\"map NAME\" or \"{}\" was expected", last_line(maps_)));
      const auto name = unescaped(lines_.text.substr(4));
      if (!name) return wrong("a backslash does not begin \\xNN");
      if (MaybeFailure failure = load_map(*name)) return failure;
    }
    if (lines_.next()) return wrong("the count of maps was expected to be the last line");
    if (const std::int32_t code = memlith_kv_persist(kv_.get()); code != MEMLITH_OK) {
      return library_failure(code, "persisting what was loaded");
    }
    return {};
  }
  [[nodiscard]] std::uint64_t records() const { return records_; }

 private:
  static std::uint64_t size_of(std::FILE* file) {
    if (std::fseek(file, 0, SEEK_END) != 0) return 0;
    const long end = std::ftell(file);
    (void)std::fseek(file, 0, SEEK_SET);
    return end > 0 ? static_cast<std::uint64_t>(end) : 0;
  }
  [[nodiscard]] Failure wrong(const std::string& what) const {
    return tool_failure(MEMLITH_INVALID, fmt::format("line {} of the dump: {}", lines_.number, what),
                        "What stands before that line was loaded.");
  }

  [[nodiscard]] MaybeFailure load_map(const std::string& name) {
    const bool skipped = !only_.empty() && name != only_;
    memlith_kv_map map = 0;
    if (!skipped) {
      Result<memlith_kv_map> opened = kv_.map(name, true);
      if (!opened.ok()) return std::move(opened.failure());
      map = *opened;
    }
    ++maps_;
    Result<TxnHandle> txn = begin(kv_, false);
    if (!txn.ok()) return std::move(txn.failure());
    std::uint64_t batch_bytes = 0;
    std::int32_t code = MEMLITH_OK;
    for (;;) {
      if (interrupted()) return interrupted_failure();
      if (!lines_.next()) return wrong("it was cut: the map has no \"end\"");
      if (lines_.text == "end") break;
      const auto key = field();
      if (!key || !lines_.next())
        return wrong("a key was expected, and its value in the next line, each after a blank");
      const auto value = field();
      if (!value) return wrong("a value was expected, after a blank");
      if (skipped) continue;
      code = memlith_kv_put(txn->get(), map, key->data(), key->size(), value->data(), value->size());
      ++records_;
      batch_bytes += key->size() + value->size() + 64;
      if (code == MEMLITH_OK && batch_bytes >= kBatchBytes) {
        batch_bytes = 0;
        code = memlith_kv_commit(txn->get(), MEMLITH_COMMIT_WEAK, nullptr);
        if (code == MEMLITH_OK) code = memlith_kv_renew(txn->get());
        ProgressBar::update(&bar_, lines_.bytes, total_bytes_);
      }
      if (code != MEMLITH_OK) return library_failure(code, "loading a record");
    }
    code = memlith_kv_commit(txn->get(), MEMLITH_COMMIT_WEAK, nullptr);
    if (code != MEMLITH_OK) return library_failure(code, "loading a map");
    return {};
  }
  [[nodiscard]] std::optional<std::string> field() const {
    if (!lines_.text.starts_with(' ')) return std::nullopt;
    return unescaped(lines_.text.substr(1));
  }

  const OpenKv& kv_;
  Lines lines_;
  const std::string& only_;
  std::uint64_t total_bytes_;
  std::uint64_t maps_ = 0;
  std::uint64_t records_ = 0;
  ProgressBar bar_{"loading"};
};

}  // namespace

MaybeFailure run_kv_dump(const KvArguments& arguments) {
  catch_interrupts();
  Result<OpenKv> kv = OpenKv::open(arguments, OpenKv::For::reading);
  if (!kv.ok()) return std::move(kv.failure());
  std::vector<std::string> names{arguments.map};
  if (arguments.map.empty()) {
    Result<std::vector<std::string>> all = kv->maps();
    if (!all.ok()) return std::move(all.failure());
    names = std::move(*all);
  }
  memlith_kv_info info{};
  info.struct_size = sizeof info;
  if (const std::int32_t code = memlith_kv_get_info(kv->get(), &info); code != MEMLITH_OK) {
    return library_failure(code, "");
  }
  if (arguments.file.empty()) return dump_maps(*kv, names, info.records, stdout);
  const File file(std::fopen(arguments.file.c_str(), "we"));
  if (file == nullptr) return errno_failure(errno, "opening " + arguments.file);
  return dump_maps(*kv, names, info.records, file.get());
}

MaybeFailure run_kv_load(const KvArguments& arguments) {
  catch_interrupts();
  File file;
  if (!arguments.file.empty()) {
    file.reset(std::fopen(arguments.file.c_str(), "re"));
    if (file == nullptr) return errno_failure(errno, "opening " + arguments.file);
  }
  Result<OpenKv> kv = OpenKv::open(arguments, OpenKv::For::creating);
  if (!kv.ok()) return std::move(kv.failure());
  std::uint64_t records = 0;
  {
    Loader loader(*kv, file != nullptr ? file.get() : stdin, arguments.map);
    if (MaybeFailure failure = loader.run()) return failure;
    records = loader.records();
  }
  if (MaybeFailure failure = kv->close()) return failure;
  if (arguments.format == Format::json) {
    write_json({{"records", records}});
  } else {
    write_line(fmt::format("{}: loaded {} records", printable(arguments.path), records));
  }
  return {};
}

}  // namespace memlith::tool
