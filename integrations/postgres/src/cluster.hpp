// The data directory of a cluster, and the folder of its log beside it. Floor: postgres.
//
// DATA.memlith has the memlith store (`store`), the file whose lock the server's processes share (`life`), the file
// whose lock the process has that owns the log (`turn`), the log's identity (`id`), and, while DATA is in use with
// memlith, the content of DATA/PG_VERSION (`PG_VERSION`).
//
// THE MARK. From the start with memlith to a clean end, DATA/PG_VERSION begins with a word that a PostgreSQL without
// memlith shows as the version by which the directory was initialised, and refuses. So no server reads pages at home
// that may be torn, or older than those in the log. The mark also names the log, so that the log of another directory
// or of another moment is never replayed.
#pragma once

#include <string>
#include <string_view>

#include "files.hpp"

namespace memlith_postgres {

inline constexpr std::string_view kMarkWord = "0.(in-use-by-memlith;run:memlith-postgres-recover)";
static_assert(kMarkWord.size() < 64, "PostgreSQL shows 63 characters");

class Cluster {
 public:
  // `data` is a data directory of PostgreSQL 15 or 17; `log` the folder beside it if it is empty. Makes the folder of
  // the log. Errors: NOT_FOUND, UNSUPPORTED - another version; CORRUPT - the mark names another log, or the log is
  // missing.
  static Result<Cluster> open(const std::string& data, const std::string& log);
  // True if a PostgreSQL without memlith refuses the directory; also if it is no data directory at all: false.
  static bool is_marked(const std::string& data);

  [[nodiscard]] const std::string& data() const { return data_; }
  [[nodiscard]] const std::string& log() const { return log_; }
  [[nodiscard]] std::string store() const { return log_ + "/store"; }
  [[nodiscard]] std::string life() const { return log_ + "/life"; }
  // Where the server reads its PG_VERSION while the directory is marked.
  [[nodiscard]] std::string version() const { return log_ + "/PG_VERSION"; }
  [[nodiscard]] bool marked() const { return marked_; }
  // PostgreSQL's version, such as "15".
  [[nodiscard]] std::string_view release() const { return std::string_view(plain_).substr(0, plain_.size() - 1); }

  // Durable on return.
  Result<void> mark();
  Result<void> unmark();

  // Held by every process of the server, through one descriptor that they inherit, and by who replays. Waits up to that
  // long. Errors: BUSY.
  [[nodiscard]] Result<Descriptor> take_life(unsigned milliseconds) const;

 private:
  Result<void> check_mark(const std::string& content);
  Result<void> make_log();

  std::string data_;
  std::string log_;
  std::string id_;
  std::string plain_;  // PG_VERSION without the mark
  bool marked_ = false;
};

}  // namespace memlith_postgres
