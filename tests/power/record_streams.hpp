// Streams of power-workload that are no regions: a kv store and an application log. As with those (stream.hpp), the
// right content after commit n follows from the seed and n alone.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/random.hpp"
#include "memlith/applog.hpp"
#include "memlith/kv.hpp"
#include "memlith/memlith.hpp"
#include "power/report.hpp"

namespace memlith::power {

// Commit n puts some records and removes others; a record of its own says n.
class KvStream {
 public:
  KvStream(std::uint64_t seed, std::uint64_t life);

  // Opens the kv store and compares all of it. `known` is the commit that this process knows it holds, or nothing.
  void open(const Store& store, std::optional<std::uint64_t> known, Report& report);
  // One commit that is waited for, behind some that may be lost.
  void commit_some(const Store& store, Report& report);
  void close(Report& report);
  [[nodiscard]] std::uint64_t commit() const { return commit_; }

 private:
  void change(KvTransaction& txn, std::uint64_t commit, Report& report);
  void follow(std::uint64_t commit);
  void compare(Report& report);
  [[nodiscard]] std::string value_of(std::uint64_t key, std::uint64_t commit) const;

  const std::uint64_t seed_;
  core::Random random_;
  std::optional<Kv> kv_;
  KvMap map_ = 0;
  std::uint64_t commit_ = 0;
  std::uint64_t acknowledged_ = 0;
  std::map<std::uint64_t, std::uint64_t> latest_;  // by key, the commit that wrote the record: those that are there
};

// Commit n is entry n. Entries that were read and compared are consumed from time to time.
class LogStream {
 public:
  LogStream(std::uint64_t seed, std::uint64_t life);

  void open(const Store& store, std::optional<std::uint64_t> known, Report& report);
  void commit_some(const Store& store, Report& report);
  void close(Report& report);
  [[nodiscard]] std::uint64_t commit() const { return commit_; }

 private:
  // Reads what is durable and was not read yet, and compares it.
  void read_on(Report& report);
  [[nodiscard]] std::string entry(std::uint64_t number) const;

  const std::uint64_t seed_;
  core::Random random_;
  std::optional<AppLog> log_;
  std::uint64_t commit_ = 0;
  std::uint64_t acknowledged_ = 0;
  std::uint64_t read_ = 0;
};

}  // namespace memlith::power
