#include "cluster.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <vector>

namespace memlith_postgres {

namespace {

constexpr std::array<std::string_view, 2> kSupported{"15\n", "17\n"};
constexpr unsigned kLookAgainMs = 20;

std::vector<std::string> lines_of(const std::string& content) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < content.size();) {
    const std::size_t end = std::min(content.find('\n', begin), content.size());
    lines.push_back(content.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

Result<std::string> new_id() {
  std::array<std::uint8_t, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return errno_error("cannot get random bytes");
  }
  std::string id;
  for (const std::uint8_t byte : bytes) {
    id += "0123456789abcdef"[byte >> 4];
    id += "0123456789abcdef"[byte & 15];
  }
  return id;
}

}  // namespace

bool Cluster::is_marked(const std::string& data) {
  const auto content = read_file(data + "/PG_VERSION");
  return content.ok() && content->has_value() && (*content)->starts_with(kMarkWord);
}

Result<Cluster> Cluster::open(const std::string& data, const std::string& log) {
  Cluster cluster;
  cluster.data_ = real_path(data);
  if (cluster.data_.empty()) return errno_error("cannot find the data directory " + data);
  struct stat status{};
  if (::stat(cluster.data_.c_str(), &status) != 0) return errno_error("cannot examine " + cluster.data_);
  if (status.st_uid != ::geteuid()) {
    return Error(MEMLITH_PERMISSION, cluster.data_ + " belongs to another user; run this as its owner");
  }
  cluster.log_ = log.empty() ? cluster.data_ + ".memlith" : log;
  const auto content = read_file(cluster.data_ + "/PG_VERSION");
  if (!content) return content.error();
  if (!content->has_value()) {
    return Error(MEMLITH_NOT_FOUND, data + " is no data directory of PostgreSQL: it has no file PG_VERSION");
  }
  cluster.plain_ = **content;
  const auto id = read_file(cluster.log_ + "/id");
  if (!id) return id.error();
  if (id->has_value()) cluster.id_ = **id;
  if ((*content)->starts_with(kMarkWord)) {
    if (Result<void> right = cluster.check_mark(**content); !right) return right.error();
  }
  if (std::find(kSupported.begin(), kSupported.end(), cluster.plain_) == kSupported.end()) {
    return Error(MEMLITH_UNSUPPORTED, data + " is not of PostgreSQL 15 or 17, the versions that memlith supports");
  }
  if (Result<void> made = cluster.make_log(); !made) return made.error();
  return cluster;
}

// The mark's lines: the word, the identity of the log, the version of PostgreSQL.
Result<void> Cluster::check_mark(const std::string& content) {
  const std::vector<std::string> lines = lines_of(content);
  if (lines.size() != 3) return Error(MEMLITH_CORRUPT, data_ + "/PG_VERSION is damaged");
  if (id_.empty()) {
    return Error(MEMLITH_CORRUPT, "the log of " + data_ + ", which has its newest pages, is missing: " + log_ +
                                      " has to be in its place, or named by MEMLITH_POSTGRES_LOG");
  }
  if (id_ != lines[1]) {
    return Error(MEMLITH_CORRUPT, log_ + " is not the log of " + data_ +
                                      ": one of the two was restored from a copy; restore both together");
  }
  plain_ = lines[2] + "\n";
  marked_ = true;
  return {};
}

Result<void> Cluster::make_log() {
  if (::mkdir(log_.c_str(), 0700) != 0 && errno != EEXIST) return errno_error("cannot make the folder " + log_);
  if (log_[0] != '/') log_ = real_path(log_);
  if (!id_.empty()) return {};
  Result<std::string> id = new_id();
  if (!id) return id.error();
  id_ = *id;
  if (Result<void> written = replace_file(log_ + "/id", id_); !written) return written;
  return flush_folder(folder_of(log_));
}

Result<void> Cluster::mark() {
  if (Result<void> written = replace_file(version(), plain_); !written) return written;
  if (marked_) return {};
  const std::string content = std::string(kMarkWord) + "\n" + id_ + "\n" + plain_;
  if (Result<void> written = replace_file(data_ + "/PG_VERSION", content); !written) return written;
  marked_ = true;
  return {};
}

Result<void> Cluster::unmark() {
  if (!marked_) return {};
  if (Result<void> written = replace_file(data_ + "/PG_VERSION", plain_); !written) return written;
  marked_ = false;
  return {};
}

Result<Descriptor> Cluster::take_life(unsigned milliseconds) const {
  Result<Descriptor> file = open_file(life(), O_RDWR | O_CREAT);
  if (!file) return file.error();
  for (unsigned waited = 0;; waited += kLookAgainMs) {
    if (::flock(file->get(), LOCK_EX | LOCK_NB) == 0) return file;
    if (errno != EWOULDBLOCK && errno != EINTR) return errno_error("cannot lock " + life());
    if (waited >= milliseconds) break;
    ::usleep(kLookAgainMs * 1000);
  }
  return Error(MEMLITH_BUSY, "processes of a server on " + data_ + " are still running");
}

}  // namespace memlith_postgres
