#include "sidecar.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <iterator>

#include "device/medium.hpp"

namespace memlith::sqlite::shared {

namespace {

// The control block takes no block that SQLite's own index may need.
constexpr std::uint64_t kForSqliteBytes = 64 * 1024;

// Zeros are a control block on which nothing is known to be durable. A process that went without a word may have been
// killed in a flush that failed.
void fill(ControlBlock& control, bool remains) {
  control.flush_ns.store(1'000'000, std::memory_order_relaxed);
  if (!remains) return;
  control.begun.store(1, std::memory_order_relaxed);
  control.doubt.store(Doubt{1}.word(), std::memory_order_relaxed);
}

bool is_in_doubt(const ControlBlock& control) {
  const bool in_flight = std::any_of(std::begin(control.flights), std::end(control.flights),
                                     [](const Flight& each) { return each.number.load() != 0; });
  return control.failed.load() != 0 || control.doubt.load() != 0 || in_flight;
}

}  // namespace

core::Result<std::unique_ptr<Sidecar>> Sidecar::attach(const std::string& path) {
  if (core::file_system_at(path).medium == core::Medium::network) {
    return core::fail(core::Errc::unsupported, core::Detail::open, "{}: its file system is a network's", path);
  }
  MEMLITH_TRY_ASSIGN(Meeting meeting, Meeting::attend({path + "-memlith", path, kForSqliteBytes}, fill));
  // A process that was killed leads no more. Otherwise the next flush would wait before it looks for the leader.
  for (Flight& each : (*meeting).flights) {
    std::uint32_t leader = each.leader.load(std::memory_order_acquire);
    if (leader != 0 && !meeting.self().lives(leader)) (void)each.leader.compare_exchange_strong(leader, 0);
  }
  return std::unique_ptr<Sidecar>(new Sidecar(std::move(meeting), path + "-wal"));
}

Sidecar::~Sidecar() {
  if (!meeting_) return;
  // Looked at when no other process is there any more: one that dies in a flush leaves its doubt.
  meeting_.leave([this](const ControlBlock& control) {
    struct stat info{};
    const bool has_log = ::stat(log_.c_str(), &info) == 0 && info.st_size > 0;
    return !has_log || !is_in_doubt(control);
  });
}

std::uint32_t Sidecar::try_lead(bool looks) {
  for (std::uint32_t i = 0; i < kLeaders; ++i) {
    Flight& flight = control().flights[i];
    std::uint32_t leader = flight.leader.load(std::memory_order_acquire);
    const bool may_be_gone = leader != 0 && (looks || !seems_in_flight(control(), flight));
    if (leader != 0 && (!may_be_gone || meeting_.self().lives(leader))) continue;
    if (flight.leader.compare_exchange_strong(leader, process())) return i;
  }
  return kLeaders;
}

void Sidecar::end_leading(std::uint32_t leader) { control().flights[leader].leader.store(0); }

std::uint32_t Sidecar::take_slot() {
  for (std::uint32_t i = 0; i < kSlots; ++i) {
    Slot& slot = control().slots[i];
    std::uint32_t owner = slot.process.load(std::memory_order_acquire);
    if (meeting_.self().lives(owner) || !slot.process.compare_exchange_strong(owner, process())) continue;
    slot.waiting.store(0, std::memory_order_relaxed);  // of a process that was killed, perhaps
    slot.ticket.store(0, std::memory_order_relaxed);
    slot.passed.store(0, std::memory_order_relaxed);
    slot.wake.store(0, std::memory_order_relaxed);
    std::uint32_t used = control().slots_used.load(std::memory_order_relaxed);
    while (used < i + 1 && !control().slots_used.compare_exchange_weak(used, i + 1)) {
    }
    return i;
  }
  return kSlots;
}

void Sidecar::give_slot(std::uint32_t slot) {
  control().slots[slot].waiting.store(0, std::memory_order_relaxed);
  control().slots[slot].process.store(0, std::memory_order_release);
}

bool Sidecar::is_alive(std::uint32_t slot) const {
  return meeting_.self().lives(control().slots[slot].process.load(std::memory_order_acquire));
}

}  // namespace memlith::sqlite::shared
