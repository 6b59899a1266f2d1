#include "sim/history.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/assert.hpp"
#include "base/checksum.hpp"

namespace memlith::lab {

using core::Lsn;

// ---- content ---------------------------------------------------------------------------------------------------

Fingerprint fingerprint(const Content& content) {
  Fingerprint value = content.exists ? 1 : 0;
  for (const auto& [name, bytes] : content.objects) {
    value = core::checksum(std::as_bytes(std::span(name)), value + 1);
    value = core::checksum(bytes, value + bytes.size());
  }
  return value;
}

std::string describe(const Content& content) {
  if (!content.exists && content.objects.empty()) return "no store";
  std::string text = content.exists ? "a store with" : "no store, but";
  if (content.objects.empty()) text += " no objects";
  for (const auto& [name, bytes] : content.objects) {
    text += fmt::format(" {}[{}]={:08x}", name, bytes.size(), core::checksum(bytes, 0) & 0xffffffff);
  }
  return text;
}

std::string describe_difference(const Content& expected, const Content& found) {
  std::string text;
  if (expected.exists != found.exists) text += expected.exists ? "the store is missing; " : "there is a store; ";
  for (const auto& [name, bytes] : expected.objects) {
    const auto other = found.objects.find(name);
    if (other == found.objects.end()) {
      text += fmt::format("{} is missing; ", name);
      continue;
    }
    const auto& theirs = other->second;
    if (theirs.size() != bytes.size()) {
      text += fmt::format("{} has {} bytes, not {}; ", name, theirs.size(), bytes.size());
    }
    std::size_t stretches = 0;
    const std::size_t common = std::min(theirs.size(), bytes.size());
    for (std::size_t i = 0; i < common;) {
      if (bytes[i] == theirs[i]) {
        ++i;
        continue;
      }
      std::size_t end = i;
      std::size_t same = 0;
      for (std::size_t j = i; j < common && same < 16; ++j) {  // short agreements are chance
        if (bytes[j] == theirs[j]) {
          ++same;
        } else {
          same = 0;
          end = j + 1;
        }
      }
      if (++stretches <= 4) text += fmt::format("{}[{}..{}) differs; ", name, i, end);
      i = end;
    }
    if (stretches > 4) text += fmt::format("{} more stretches of {}; ", stretches - 4, name);
  }
  for (const auto& [name, bytes] : found.objects) {
    if (!expected.objects.contains(name)) text += fmt::format("{} should not be there; ", name);
  }
  if (text.empty()) return "nothing";
  text.resize(text.size() - 2);
  return text;
}

// ---- reports ---------------------------------------------------------------------------------------------------

std::size_t History::started(std::string text, Change change, std::size_t now, std::uint64_t group) {
  const std::lock_guard lock(mutex_);
  Commit commit;
  commit.text = std::move(text);
  commit.change = std::move(change);
  commit.started_at = now;
  commit.group = group;
  commit.number = commits_.size();
  commits_.push_back(std::move(commit));
  return commits_.size() - 1;
}

std::size_t History::size() const {
  const std::lock_guard lock(mutex_);
  return commits_.size();
}

void History::placed(std::size_t commit, Lsn lsn) {
  const std::lock_guard lock(mutex_);
  commits_[commit].lsn = lsn;
}

void History::acknowledged(std::size_t commit, std::size_t now) {
  const std::lock_guard lock(mutex_);
  std::size_t& first = commits_[commit].acknowledged_at;
  first = std::min(first, now);
}

void History::wrote_nothing(std::size_t commit) {
  const std::lock_guard lock(mutex_);
  commits_[commit].framed = false;
}

void History::cancelled(std::size_t commit) {
  const std::lock_guard lock(mutex_);
  commits_[commit].lost_at = 0;
}

void History::closed(std::size_t now) { closings_.emplace_back(now, true); }
void History::opened(std::size_t now) { closings_.emplace_back(now, false); }

bool History::resolve(Fingerprint found, std::size_t now) {
  // Numbers stay valid: the commits are sorted only when the run is over.
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < commits_.size(); ++i) {
    if (commits_[i].lost_at != kNever) continue;
    order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [this](std::size_t a, std::size_t b) {
    const Commit& x = commits_[a];
    const Commit& y = commits_[b];
    return x.group != 0 && x.group == y.group && x.lsn != y.lsn ? x.lsn < y.lsn : x.number < y.number;
  });
  std::vector<Fingerprint> contents;
  Content content = before_;
  contents.push_back(fingerprint(content));
  for (const std::size_t i : order) {
    commits_[i].change(content);
    contents.push_back(fingerprint(content));
  }
  std::size_t first = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (commits_[order[i]].acknowledged_at != kNever) first = i + 1;
  }
  for (std::size_t p = order.size() + 1; p-- > first;) {
    if (contents[p] != found) continue;
    // Those before P are known to be durable now, those behind it never happened.
    for (std::size_t i = 0; i < order.size(); ++i) {
      Commit& commit = commits_[order[i]];
      if (i < p && commit.acknowledged_at == kNever) commit.acknowledged_at = now;
      if (i >= p) commit.lost_at = now;
    }
    return true;
  }
  return false;
}

// ---- questions -------------------------------------------------------------------------------------------------

void History::sort() {
  std::sort(commits_.begin(), commits_.end(), [](const Commit& a, const Commit& b) {
    return a.group != 0 && a.group == b.group && a.lsn != b.lsn ? a.lsn < b.lsn : a.number < b.number;
  });
}

void History::finish() {
  sort();
  std::set<std::size_t> borders{kNever};
  for (const Commit& commit : commits_) {
    if (commit.lost_at != 0) borders.insert(commit.lost_at);
  }
  epochs_.clear();
  std::size_t from = 0;
  for (const std::size_t until : borders) {
    Epoch epoch;
    epoch.until = until;
    Content content = before_;
    epoch.contents.push_back(fingerprint(content));
    for (std::size_t i = 0; i < commits_.size(); ++i) {
      if (commits_[i].lost_at <= from) continue;
      epoch.commits.push_back(i);
      commits_[i].change(content);
      epoch.contents.push_back(fingerprint(content));
    }
    epochs_.push_back(std::move(epoch));
    from = until;
  }
}

const History::Epoch& History::epoch(std::size_t at) const {
  for (const Epoch& epoch : epochs_) {
    if (at < epoch.until || epoch.until == kNever) return epoch;
  }
  MEMLITH_ASSERT(false);
}

Expected History::expected(std::size_t at) const {
  const Epoch& here = epoch(at);
  Expected result;
  result.contents = here.contents;
  std::size_t newest = here.commits.size();
  for (std::size_t i = 0; i < here.commits.size(); ++i) {
    const Commit& commit = commits_[here.commits[i]];
    if (commit.acknowledged_at > at) continue;
    result.first = i + 1;
    if (commit.framed) newest = i;
  }
  for (std::size_t i = 0; i < std::min(newest, result.first); ++i) {
    // Acknowledged before the newest began, so the newest says that it was durable. Of commits side by side the newest
    // may have begun between the flush of the other and its acknowledgement, with no operation in between to tell by.
    const Commit& commit = commits_[here.commits[i]];
    const Commit& last = commits_[here.commits[std::min(newest, result.first - 1)]];
    const bool beside = commit.group != 0 && commit.group == last.group;
    if (commit.acknowledged_at < last.started_at || (!beside && commit.acknowledged_at == last.started_at)) {
      result.vouched = i + 1;
    }
  }
  result.last = result.first;
  while (result.last < here.commits.size() && commits_[here.commits[result.last]].started_at <= at) ++result.last;
  for (const auto& [when, closed] : closings_) {
    if (when <= at) result.closed = closed;
  }
  return result;
}

Content History::content(std::size_t at, std::size_t count) const {
  const Epoch& here = epoch(at);
  Content content = before_;
  for (std::size_t i = 0; i < count; ++i) commits_[here.commits[i]].change(content);
  return content;
}

std::vector<const Commit*> History::commits(std::size_t at) const {
  std::vector<const Commit*> result;
  for (const std::size_t i : epoch(at).commits) result.push_back(&commits_[i]);
  return result;
}

}  // namespace memlith::lab
