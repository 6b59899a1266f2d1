#include "power/record_streams.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

namespace memlith::power {

namespace {

constexpr std::uint64_t kKeys = 300;
constexpr std::uint64_t kLogBytes = 128 << 10;
constexpr std::string_view kCommitKey = "commit";

std::uint64_t seed_for(char stream, std::uint64_t seed) {
  return core::Random(seed ^ (static_cast<std::uint64_t>(stream) << 40)).next();
}

// Bytes that name the seed and both numbers, in any length.
std::string content(std::uint64_t seed, std::uint64_t first, std::uint64_t second) {
  core::Random random(core::Random(seed ^ first * 0x9e3779b97f4a7c15U).next() ^ second);
  std::string bytes(1 + random.below(random.one_in(20) ? 6000 : 400), '\0');
  for (char& each : bytes) each = static_cast<char>(random.next());
  return bytes;
}

}  // namespace

// ---- KvStream ------------------------------------------------------------------------------------------------------

KvStream::KvStream(std::uint64_t seed, std::uint64_t life)
    : seed_(seed_for('k', seed)), random_(core::Random(seed_ + life).next()) {}

std::string KvStream::value_of(std::uint64_t key, std::uint64_t commit) const { return content(seed_, key, commit); }

void KvStream::change(KvTransaction& txn, std::uint64_t commit, Report& report) {
  core::Random random(core::Random(seed_ ^ commit).next());
  for (std::uint64_t left = 1 + random.below(8); left > 0; --left) {
    const std::uint64_t key = random.below(kKeys);
    if (latest_.contains(key) && random.one_in(4)) {
      must(report, "stream k: remove", txn.remove(map_, IntegerKey(key)));
      latest_.erase(key);
    } else {
      must(report, "stream k: put", txn.put(map_, IntegerKey(key), value_of(key, commit)));
      latest_[key] = commit;
    }
  }
  must(report, "stream k: put", txn.put(map_, kCommitKey, std::to_string(commit)));
}

// The work of change(), without a kv store.
void KvStream::follow(std::uint64_t commit) {
  core::Random random(core::Random(seed_ ^ commit).next());
  for (std::uint64_t left = 1 + random.below(8); left > 0; --left) {
    const std::uint64_t key = random.below(kKeys);
    if (latest_.contains(key) && random.one_in(4)) {
      latest_.erase(key);
    } else {
      latest_[key] = commit;
    }
  }
}

void KvStream::open(const Store& store, std::optional<std::uint64_t> known, Report& report) {
  KvOptions options;
  options.create = true;
  kv_.emplace(must(report, "stream k: open", Kv::open(store, "kv", options)));
  map_ = must(report, "stream k: map", kv_->map("m", {.create = true}));
  KvTransaction txn = must(report, "stream k: begin", kv_->begin({.read_only = true}));
  const auto head = must(report, "stream k: find", txn.find(map_, kCommitKey));
  commit_ = head ? std::stoull(std::string(*head)) : 0;
  if (commit_ > kCommitMax) report.violation("stream k: names the commit " + std::to_string(commit_));
  if (known && commit_ != *known) {
    report.violation("stream k: closed with commit " + std::to_string(*known) + ", opened with " +
                     std::to_string(commit_));
  }
  latest_.clear();
  for (std::uint64_t commit = 1; commit <= commit_; ++commit) follow(commit);
  compare(report);
  if (!known) report.line('P', 'k', commit_);
  acknowledged_ = commit_;
}

void KvStream::compare(Report& report) {
  KvTransaction txn = must(report, "stream k: begin", kv_->begin({.read_only = true}));
  std::uint64_t records = 0;
  Cursor cursor = must(report, "stream k: cursor", txn.cursor(map_));
  bool there = must(report, "stream k: first", cursor.first());
  for (; there; there = must(report, "stream k: next", cursor.next())) {
    const KvRecord record = must(report, "stream k: current", cursor.current());
    if (record.key == kCommitKey) continue;
    ++records;
    const std::uint64_t key = record.key.size() == 8 ? integer_of_key<std::uint64_t>(record.key) : kKeys;
    const auto found = latest_.find(key);
    if (found == latest_.end())
      report.violation("stream k: a record is there that commit " + std::to_string(commit_) + " has not");
    if (record.value != value_of(key, found->second)) {
      report.violation("stream k: record " + std::to_string(key) + " is not as commit " +
                       std::to_string(found->second) + " wrote it");
    }
  }
  if (records != latest_.size()) {
    report.violation("stream k: " + std::to_string(records) + " records are there, not " +
                     std::to_string(latest_.size()));
  }
}

void KvStream::commit_some(const Store&, Report& report) {
  const std::uint64_t weak = random_.one_in(3) ? 1 + random_.below(5) : 0;
  for (std::uint64_t i = 0; i <= weak; ++i) {
    const std::uint64_t next = commit_ + 1;
    report.line('S', 'k', next);
    const auto act = [&](KvTransaction& txn) -> Result<void> {
      change(txn, next, report);
      return {};
    };
    must(report, "stream k: commit", kv_->transact(act, i < weak ? Durability::weak : Durability::sync));
    commit_ = next;
  }
  report.line('A', 'k', commit_);
  acknowledged_ = commit_;
}

void KvStream::close(Report& report) {
  must(report, "stream k: close", kv_->close());
  kv_.reset();
  if (acknowledged_ < commit_) report.line('A', 'k', commit_);
  acknowledged_ = commit_;
}

// ---- LogStream -----------------------------------------------------------------------------------------------------

LogStream::LogStream(std::uint64_t seed, std::uint64_t life)
    : seed_(seed_for('l', seed)), random_(core::Random(seed_ + life).next()) {}

std::string LogStream::entry(std::uint64_t number) const { return content(seed_, number, 0); }

void LogStream::open(const Store& store, std::optional<std::uint64_t> known, Report& report) {
  AppLogOptions options;
  options.create = true;
  options.size = kLogBytes;
  log_.emplace(must(report, "stream l: open", AppLog::open(store, "log", options)));
  const memlith_applog_info info = must(report, "stream l: info", log_->info());
  commit_ = info.newest;
  read_ = info.consumed;
  if (commit_ > kCommitMax) report.violation("stream l: the newest entry is " + std::to_string(commit_));
  if (known && commit_ != *known) {
    report.violation("stream l: closed with entry " + std::to_string(*known) + ", opened with " +
                     std::to_string(commit_));
  }
  acknowledged_ = commit_;
  read_on(report);
  if (read_ != commit_) {
    report.violation("stream l: entry " + std::to_string(commit_) + " is the newest, and " + std::to_string(read_) +
                     " the last that can be read");
  }
  if (!known) report.line('P', 'l', commit_);
}

void LogStream::read_on(Report& report) {
  while (const auto found = must(report, "stream l: read", log_->read())) {
    if (found->number != read_ + 1) {
      report.violation("stream l: entry " + std::to_string(found->number) + " follows " + std::to_string(read_));
    }
    if (found->content != entry(found->number)) {
      report.violation("stream l: entry " + std::to_string(found->number) + " has another content");
    }
    read_ = found->number;
  }
}

void LogStream::commit_some(const Store&, Report& report) {
  for (std::uint64_t left = 1 + random_.below(4); left > 0; --left) {
    const std::uint64_t next = commit_ + 1;
    report.line('S', 'l', next);
    const std::uint64_t number = must(report, "stream l: append", log_->append(entry(next)));
    if (number != next)
      report.violation("stream l: entry " + std::to_string(next) + " got the number " + std::to_string(number));
    commit_ = next;
  }
  must(report, "stream l: write", log_->write());
  report.line('A', 'l', commit_);
  acknowledged_ = commit_;
  if (random_.one_in(4)) {
    read_on(report);
    must(report, "stream l: consume", log_->consume(read_));
  }
}

void LogStream::close(Report& report) {
  must(report, "stream l: close", log_->close());
  log_.reset();
}

}  // namespace memlith::power
