// Finding, listing and reading the text. See corpus.hpp.
#include "corpus.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <system_error>

#include <fmt/core.h>

namespace demo {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kFileBytesMax = 8 * kMiB;   // what is larger is data
constexpr std::uint64_t kEnoughText = 1 * kMiB;     // for a default folder
constexpr std::uint64_t kTextBytesMin = 64 * kKiB;  // below, the builder is done before it can be killed
constexpr std::string_view kListHead = "memlith-demo files 1\n";

// Not text, or text not worth searching. Other files that are not text contain a NUL byte.
constexpr std::array<std::string_view, 24> kEndings = {
    ".gz",  ".xz",  ".bz2", ".zst", ".zip", ".jar", ".png", ".gif",  ".jpg",   ".jpeg", ".svg", ".ico",
    ".pdf", ".eps", ".ps",  ".so",  ".a",   ".o",   ".pyc", ".woff", ".woff2", ".ttf",  ".pem", ".map"};

bool ends_like_text(std::string_view path) {
  return std::none_of(kEndings.begin(), kEndings.end(),
                      [&](std::string_view ending) { return path.ends_with(ending); });
}

// The whole file; an error if it cannot be read or is larger than `bytes_max`.
Result<std::string> read_file(const std::string& path, std::uint64_t bytes_max) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return error_of_errno(path);
  struct stat status{};
  if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode) ||
      static_cast<std::uint64_t>(status.st_size) > bytes_max) {
    ::close(file);
    return error_saying(path + " is too large, or not a file");
  }
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t filled = 0;
  while (filled < text.size()) {
    const ssize_t got = ::read(file, text.data() + filled, text.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    filled += static_cast<std::size_t>(got);
  }
  ::close(file);
  if (filled != text.size()) return error_saying(path + " cannot be read to its end");
  return text;
}

std::uint64_t checksum_of(std::string_view text) {
  Checksum checksum;
  checksum.add(text);
  return checksum.value();
}

// Paths of all regular files below `folder`, relative to it and sorted.
Result<std::vector<std::string>> list_files(const std::string& folder, std::uint64_t* unreadable) {
  std::vector<std::string> paths;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied, error);
  if (error) return error_saying(folder + ": " + error.message());
  const std::size_t prefix = folder.ends_with('/') ? folder.size() : folder.size() + 1;
  while (entry != fs::recursive_directory_iterator()) {
    std::error_code unknown;
    const fs::file_status status = entry->symlink_status(unknown);
    if (unknown) {
      ++*unreadable;
    } else if (fs::is_regular_file(status)) {
      paths.push_back(entry->path().string().substr(prefix));
    }
    // An error ends the walk; what was found until then is worth indexing all the same.
    entry.increment(error);
    if (error) ++*unreadable;
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// Takes a number and the blank behind it off the front of `line`.
bool take_number(std::string_view& line, int base, std::uint64_t& number) {
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number, base);
  if (error != std::errc() || end == line.data() + line.size() || *end != ' ') return false;
  line.remove_prefix(static_cast<std::size_t>(end - line.data()) + 1);
  return true;
}

}  // namespace

Result<Corpus> scan_folder(const std::string& folder, std::uint64_t limit_bytes) {
  Corpus corpus;
  std::error_code error;
  corpus.folder = fs::canonical(folder, error).string();
  if (error) return error_saying(folder + ": " + error.message());
  auto paths = list_files(corpus.folder, &corpus.unreadable);
  if (!paths) return paths.error();
  for (const std::string& path : *paths) {
    // A line break in a name would break the list of files.
    if (!ends_like_text(path) || path.find('\n') != std::string::npos) {
      ++corpus.not_text;
      continue;
    }
    auto text = read_file(corpus.folder + "/" + path, std::min(kFileBytesMax, limit_bytes));
    if (!text) {
      ++corpus.unreadable;
      continue;
    }
    if (text->empty() || text->find('\0') != std::string::npos) {
      ++corpus.not_text;
      continue;
    }
    if (corpus.text_bytes + text->size() > limit_bytes) {
      corpus.cut = true;
      break;
    }
    corpus.files.push_back({path, text->size(), checksum_of(*text)});
    corpus.text_bytes += text->size();
  }
  if (corpus.text_bytes < kTextBytesMin) {
    return error_saying(
        fmt::format("{} holds {} bytes of plain text; the demo needs at least {}. Name another with --folder",
                    corpus.folder, corpus.text_bytes, kTextBytesMin));
  }
  return corpus;
}

Result<Corpus> scan_default_folder(std::uint64_t limit_bytes) {
  Result<Corpus> best = error_saying("found no folder with enough text to index; name one with --folder");
  for (const char* folder : {"/usr/share/doc", "/usr/share", "/usr/include"}) {
    auto corpus = scan_folder(folder, limit_bytes);
    if (!corpus) continue;
    // A small limit cuts the text short of it, so half the limit must do.
    if (corpus->text_bytes >= std::min(kEnoughText, limit_bytes / 2)) return corpus;
    if (!best || corpus->text_bytes > best->text_bytes) best = std::move(corpus);
  }
  return best;
}

Result<void> write_corpus(const Corpus& corpus, const std::string& path) {
  std::string list(kListHead);
  list += corpus.folder + "\n";
  for (const TextFile& file : corpus.files) list += fmt::format("{} {:x} {}\n", file.bytes, file.checksum, file.path);

  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return error_of_errno(path);
  std::size_t written = 0;
  while (written < list.size()) {
    const ssize_t wrote = ::write(file, list.data() + written, list.size() - written);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) {
      const Error error = error_of_errno(path);
      ::close(file);
      return error;
    }
    written += static_cast<std::size_t>(wrote);
  }
  if (::close(file) != 0) return error_of_errno(path);
  return {};
}

Result<Corpus> read_corpus(const std::string& path) {
  auto list = read_file(path, kGiB);
  if (!list) return list.error();
  const Error damaged = error_saying(path + " is not a list of files written by this demo");
  std::string_view rest = *list;
  if (!rest.starts_with(kListHead)) return damaged;
  rest.remove_prefix(kListHead.size());

  Corpus corpus;
  const auto take_line = [&rest] {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    return line;
  };
  corpus.folder = take_line();
  while (!rest.empty()) {
    std::string_view line = take_line();
    TextFile file;
    if (!take_number(line, 10, file.bytes) || !take_number(line, 16, file.checksum)) return damaged;
    file.path = line;
    corpus.text_bytes += file.bytes;
    corpus.files.push_back(std::move(file));
  }
  return corpus;
}

Result<const std::string*> TextReader::text(std::uint64_t file) {
  if (loaded_ == file) return &text_;
  loaded_ = kNone;
  const TextFile& listed = corpus_.files[file];
  const std::string path = corpus_.folder + "/" + listed.path;
  auto text = read_file(path, listed.bytes);
  if (!text || text->size() != listed.bytes || checksum_of(*text) != listed.checksum) {
    return error_saying(path + " changed while the demo ran; start it again");
  }
  text_ = std::move(*text);
  loaded_ = file;
  return &text_;
}

}  // namespace demo
