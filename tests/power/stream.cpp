#include "power/stream.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/random.hpp"

namespace memlith::power {

namespace {

constexpr std::size_t kWords = kCellBytes / sizeof(std::uint64_t);
constexpr std::uint64_t kScatteredMax = 24;
constexpr std::uint64_t kOneRunIn = 30;

std::uint64_t mix(std::initializer_list<std::uint64_t> numbers) {
  std::uint64_t state = 0x6d656d6c697468;
  for (const std::uint64_t number : numbers) state = core::Random(state ^ number).next();
  return state;
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{0}; });
}

std::uint64_t word(std::span<const std::byte> bytes, std::size_t index) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}

}  // namespace

Stream::Stream(StreamPlan plan, std::uint64_t seed)
    : plan_(std::move(plan)), seed_(mix({seed, static_cast<std::uint64_t>(plan_.letter)})) {
  latest_.resize(plan_.regions.size());
}

std::uint64_t Stream::cells_after(std::size_t region, std::uint64_t commit) const {
  const RegionPlan& plan = plan_.regions[region];
  return plan.cells + plan.cells_per_step * std::min(commit / plan_.commits_per_step, plan.steps_max);
}

std::uint64_t Stream::size_after(std::size_t region, std::uint64_t commit) const {
  return cells_after(region, commit) * kCellBytes + plan_.regions[region].tail_bytes;
}

std::vector<Change> Stream::changes(std::uint64_t commit) const {
  core::Random random(mix({seed_, commit}));
  std::vector<Change> changes;
  for (std::size_t region = 0; region < plan_.regions.size(); ++region) changes.push_back({region, 0});
  const std::size_t region = random.below(plan_.regions.size());
  const std::uint64_t cells = cells_after(region, commit);
  if (random.one_in(kOneRunIn)) {
    const std::uint64_t first = random.below(cells);
    const std::uint64_t count = std::min(cells - first, 1 + random.below(plan_.run_cells_max));
    for (std::uint64_t cell = first; cell < first + count; ++cell) changes.push_back({region, cell});
    return changes;
  }
  for (std::uint64_t left = random.below(kScatteredMax + 1); left > 0; --left) {
    const std::size_t one = random.below(plan_.regions.size());
    changes.push_back({one, random.below(cells_after(one, commit))});
  }
  return changes;
}

void Stream::fill(Cell cell, const Change& change, std::uint64_t commit) const {
  core::Random random(mix({seed_, change.region, change.cell, commit}));
  std::array<std::uint64_t, kWords> words{};
  words[0] = mix({seed_, change.region, change.cell});  // whose it is
  words[1] = commit;
  for (std::size_t i = 2; i < kWords; ++i) words[i] = random.next();
  std::memcpy(cell.data(), words.data(), kCellBytes);
}

std::uint64_t Stream::commit_in(std::span<const std::byte> first_region) { return word(first_region, 1); }

void Stream::go_to(std::uint64_t commit) {
  if (commit < at_) {
    at_ = 0;
    for (auto& cells : latest_) cells.clear();
  }
  for (std::size_t region = 0; region < latest_.size(); ++region) latest_[region].resize(cells_after(region, commit));
  while (at_ < commit) {
    ++at_;
    for (const Change& change : changes(at_)) latest_[change.region][change.cell] = at_;
  }
}

std::string Stream::story(std::span<const std::byte> found, const Change& change, std::uint64_t expected) const {
  const std::uint64_t commit = word(found, 1);
  std::array<std::byte, kCellBytes> whole{};
  fill(whole, change, commit);
  std::string text = "region " + std::string(plan_.regions[change.region].name) + ", byte " +
                     std::to_string(change.cell * kCellBytes) + ": expected commit " + std::to_string(expected) +
                     ", found ";
  if (all_zero(found)) return text + "zeros";
  if (std::memcmp(whole.data(), found.data(), kCellBytes) == 0) return text + "commit " + std::to_string(commit);
  return text +
         (word(found, 0) == word(whole, 0) ? "a mixture around commit " + std::to_string(commit) : "foreign bytes");
}

std::optional<std::string> Stream::check(const std::vector<std::span<const std::byte>>& regions, std::uint64_t commit) {
  go_to(commit);
  for (std::size_t region = 0; region < regions.size(); ++region) {
    const std::span<const std::byte> bytes = regions[region];
    if (bytes.size() != size_after(region, commit)) {
      return "region " + std::string(plan_.regions[region].name) + ": after commit " + std::to_string(commit) +
             " expected " + std::to_string(size_after(region, commit)) + " bytes, found " +
             std::to_string(bytes.size());
    }
    const std::vector<std::uint64_t>& latest = latest_[region];
    for (std::uint64_t cell = 0; cell < latest.size(); ++cell) {
      const auto found = bytes.subspan(cell * kCellBytes, kCellBytes);
      std::array<std::byte, kCellBytes> expected{};
      if (latest[cell] != 0) fill(expected, {region, cell}, latest[cell]);
      if (std::memcmp(expected.data(), found.data(), kCellBytes) != 0)
        return story(found, {region, cell}, latest[cell]);
    }
    if (!all_zero(bytes.subspan(latest.size() * kCellBytes))) {
      return "region " + std::string(plan_.regions[region].name) + ": the bytes behind its last cell are not zero";
    }
  }
  return std::nullopt;
}

}  // namespace memlith::power
