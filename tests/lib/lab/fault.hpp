// The kinds of faults, each counted: how often it was planned, how often it really struck.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/sim.hpp"

namespace memlith::lab {

enum class Fault : std::uint8_t {
  // A power cut, and what it does to the writes and names in flight.
  dropped,
  reordered,
  torn_512,
  torn_4096,
  garbage,
  torn_block,
  stale_sector,
  lost_name,
  lost_size,
  // The medium lies.
  misdirected,
  bit_rot,
  other_moment,
  // A call fails while the workload runs; then the power is cut as well.
  write_error,
  write_error_for_ever,
  short_write,
  flush_error,
  flush_forgotten,
  read_error,
  read_flip,
  no_space,
  no_space_for_ever,
  resize_error,
  folder_error,
  name_error,
  full_write,
  // Crashes on top of crashes.
  recovery_crash,
  recovery_crash_twice,
  killed,
  second_life,
};
inline constexpr std::size_t kFaults = 29;

std::string_view name_of(Fault fault);
std::string_view sentence_of(Fault fault);
// Nothing for a word that names no fault.
bool parse_fault(std::string_view word, Fault& fault);

// A call that fails, rather than a power cut.
bool is_call_fault(Fault fault);
inline bool is_medium_lie(Fault fault) {
  return fault == Fault::misdirected || fault == Fault::bit_rot || fault == Fault::other_moment;
}
core::SimFaults::Kind kind_of(Fault fault);
bool is_for_ever(Fault fault);

class FaultSet {
 public:
  static FaultSet all() {
    FaultSet set;
    set.bits_ = (1u << kFaults) - 1;
    return set;
  }
  void add(Fault fault) { bits_ |= 1u << static_cast<unsigned>(fault); }
  void remove(Fault fault) { bits_ &= ~(1u << static_cast<unsigned>(fault)); }
  [[nodiscard]] bool has(Fault fault) const { return (bits_ >> static_cast<unsigned>(fault) & 1) != 0; }
  [[nodiscard]] bool empty() const { return bits_ == 0; }

 private:
  std::uint32_t bits_ = 0;
};

struct FaultCount {
  std::uint64_t planned = 0;
  std::uint64_t fired = 0;
  // The outcome: nothing (the right state came back), a clear error, or, for lies only, the last commit lost
  // because nothing behind it vouches for it.
  std::uint64_t harmless = 0;
  std::uint64_t detected = 0;
  std::uint64_t untellable = 0;
};
using FaultTable = std::array<FaultCount, kFaults>;

inline FaultCount& at(FaultTable& table, Fault fault) { return table[static_cast<std::size_t>(fault)]; }

}  // namespace memlith::lab
