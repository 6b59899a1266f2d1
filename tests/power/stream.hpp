// The content that power-workload stores, as a function of a seed and a commit's number, so that after a crash the
// right value of every byte follows from the seed alone.
//
// A stream is a sequence of commits over some regions of one store. Each region is an array of cells; commit n fills
// some of them with bytes that name the seed, the stream, the region, the cell and n. The first cell of every region is
// in every commit, so the first one tells which commit was found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace memlith::power {

constexpr std::uint64_t kCellBytes = 256;
using Cell = std::span<std::byte, kCellBytes>;

// The size of a region is (cells + cells_per_step * min(n / commits_per_step, steps_max)) cells and tail_bytes of
// zeros.
struct RegionPlan {
  const char* name;
  std::uint64_t cells;
  std::uint64_t cells_per_step;
  std::uint64_t steps_max;
  std::uint64_t tail_bytes;
};

struct StreamPlan {
  char letter;  // in reports
  std::vector<RegionPlan> regions;
  std::uint64_t commits_per_step;
  std::uint64_t run_cells_max;  // the largest stretch that one commit fills
};

struct Change {
  std::size_t region;
  std::uint64_t cell;
};

class Stream {
 public:
  Stream(StreamPlan plan, std::uint64_t seed);

  [[nodiscard]] const StreamPlan& plan() const { return plan_; }
  [[nodiscard]] std::uint64_t size_after(std::size_t region, std::uint64_t commit) const;
  // The records that commit `commit` fills, and their bytes.
  [[nodiscard]] std::vector<Change> changes(std::uint64_t commit) const;
  void fill(Cell cell, const Change& change, std::uint64_t commit) const;

  // The commit that a region's first cell names; 0 for zeros.
  [[nodiscard]] static std::uint64_t commit_in(std::span<const std::byte> first_region);
  // Compares all regions with their state after exactly `commit`. Nothing, or the story of the first difference.
  [[nodiscard]] std::optional<std::string> check(const std::vector<std::span<const std::byte>>& regions,
                                                 std::uint64_t commit);

 private:
  [[nodiscard]] std::uint64_t cells_after(std::size_t region, std::uint64_t commit) const;
  [[nodiscard]] std::string story(std::span<const std::byte> found, const Change& change, std::uint64_t expected) const;
  void go_to(std::uint64_t commit);

  StreamPlan plan_;
  std::uint64_t seed_;
  std::uint64_t at_ = 0;                            // the commit that latest_ is about
  std::vector<std::vector<std::uint64_t>> latest_;  // by region and cell: the last commit that filled it
};

}  // namespace memlith::power
