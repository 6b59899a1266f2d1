// The benchmark of the application log. Floor: applog-bench.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cli/failure.hpp"
#include "cli/output.hpp"
#include "kit/backend.hpp"
#include "memlith/applog.hpp"
#include "memlith/kv.hpp"

namespace memlith::tool {

struct AppLogArguments {
  std::string folder = ".";
  std::vector<std::string> suites{"append", "writers", "size"};
  std::vector<std::uint64_t> entry_bytes{100, 1024, 4096, 65536};
  std::vector<std::uint64_t> threads{1, 2, 4, 8, 16};
  std::vector<std::uint64_t> log_mib{1, 4, 16, 64};
  std::vector<std::string> backends{"file"};
  BackendDevices devices;
  std::uint64_t rounds = 5;  // phases of each side, where there are several threads
  double seconds = 3;        // of each side in a line
  Format format = Format::text;
};

[[nodiscard]] MaybeFailure run_applog(const AppLogArguments& arguments);

// A log in a store of its own; with `consumed`, a thread moves the entries into a kv store, a hundred a commit.
class LogSide {
 public:
  struct Options {
    std::uint64_t log_bytes = 0;
    std::uint64_t entry_bytes = 0;
    bool consumed = false;
    bool wait = true;  // an entry is durable when its round ends
  };
  static Result<std::unique_ptr<LogSide>> open(const std::string& folder, const Backend& backend,
                                               const Options& options);
  ~LogSide();

  // Appends an entry and writes the log. Without a consumer a full log is emptied first, and that is not timed.
  [[nodiscard]] MaybeFailure round(std::uint64_t& elapsed_ns);
  // Ends the consumer; its failure, if it had one.
  [[nodiscard]] MaybeFailure stop();
  // Bytes appended over the log's size.
  [[nodiscard]] double laps() const;

 private:
  explicit LogSide(const Options& options) : options_(options) {}
  [[nodiscard]] MaybeFailure empty();
  void consume();
  memlith::Result<void> move_some(KvTransaction& txn, bool& any);

  const Options options_;
  std::string content_;
  std::optional<Store> store_;
  std::optional<AppLog> log_;
  std::optional<Kv> kv_;
  KvMap map_ = 0;
  std::mutex emptying_;
  std::atomic<bool> stopping_{false};
  MaybeFailure consumer_failure_;
  std::thread consumer_;
};

}  // namespace memlith::tool
