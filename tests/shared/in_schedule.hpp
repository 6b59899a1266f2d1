// A keeper and two clients of it, as threads under the laboratory's scheduler: every order of their steps within a
// bound of preemptions, with the death of the first client at each step. A step is one on memory that they share, or a
// wait: what the keeper does in its own memory, no client can see.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lab/exploration.hpp"
#include "mutants/mutants.hpp"
#include "shared/meet.hpp"
#include "shared/service.hpp"
#include "sim/decorators.hpp"
#include "sim/sim.hpp"
#include "support/expect.hpp"

namespace memlith::test {

class WithMutant {
 public:
  explicit WithMutant(core::Mutant mutant) { core::active_mutant = mutant; }
  ~WithMutant() { core::active_mutant = core::Mutant::none; }
};

inline std::unique_ptr<core::Session> open_simulated(core::SimVolume& volume) {
  core::StoreOptions options;
  options.create = true;
  options.manual_checkpoint = options.manual_flush = true;
  options.slot_bytes = 16 * core::kKiB;
  options.log_bytes = 8 * options.slot_bytes;
  options.log_max_bytes = 8 * options.slot_bytes;
  options.log.batch_bytes = 4096;
  options.log.stream_chunk_bytes = 4096;
  options.log.window_bytes = 4096;
  auto session = core::Session::open({std::make_unique<core::VolumeDecorator>(volume), ""}, std::move(options));
  EXPECT_TRUE(session.ok()) << core::last_error_text();
  return session.ok() ? std::move(*session) : nullptr;
}

class SharedMemories {
 public:
  // Those that this process has mapped.
  SharedMemories() {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      std::uintptr_t begin = 0;
      std::uintptr_t end = 0;
      if (line.find("/memfd:memlith") == std::string::npos) continue;
      MEMLITH_ASSERT(std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) == 2);
      all_.emplace_back(begin, end);
    }
    MEMLITH_ASSERT(!all_.empty());
  }
  [[nodiscard]] bool have(const void* object) const {
    const auto at = reinterpret_cast<std::uintptr_t>(object);
    return std::ranges::any_of(all_, [at](const auto& each) { return each.first <= at && at < each.second; });
  }

 private:
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> all_;
};

// Kept: the Service. Client: the handle of a client.
template <class Kept, class Client>
class KeptCase {
 public:
  // The keeper's end of a connection, and the client's handle.
  struct Connected {
    core::Descriptor socket;
    std::unique_ptr<Client> client;
    int clients_socket = -1;
  };

  KeptCase(lab::Scheduler& scheduler, const core::SimImage& store)
      : scheduler_(scheduler), volume_(store), session_(open_simulated(volume_)), kept_(*session_) {}

 protected:
  // `join(Joined)` makes a handle, `begin` is called when there are two, `judge` when all is over; the threads of the
  // clients do `first` and `second` meanwhile.
  template <class Join, class Begin, class First, class Second, class Judge>
  std::string run(const core::shared::Request& open, const Join& join, const Begin& begin, const First& first,
                  const Second& second, const Judge& judge) {
    for (std::uint32_t i = 0; i < 2; ++i) connect(i, open, join);
    core::Thread keeper([this] { keep(); });
    begin();
    scheduler_.let_others_run();
    core::Thread one([&] {
      scheduler_.may_die([this] { ::shutdown(clients_[0].clients_socket, SHUT_RDWR); });
      first();
    });
    core::Thread other([&] { second(); });
    const SharedMemories memories;
    scheduler_.sees = [&memories](const void* object) { return memories.have(object); };
    scheduler_.begin_deciding();
    one.join();
    other.join();
    scheduler_.end_deciding();
    scheduler_.sees = nullptr;
    std::string complaint = wrong_.empty() ? judge() : wrong_;
    for (Connected& each : clients_) each.client = nullptr;
    ends_ = true;
    keeper.join();
    return complaint;
  }
  bool told(const core::Status& status) {
    if (!status.ok()) wrong_ = std::string(core::last_error_text());
    return status.ok();
  }
  void complain(const char* what) { wrong_ = what; }
  [[nodiscard]] const std::string& wrong() const { return wrong_; }
  [[nodiscard]] Client& client(std::size_t i) const { return *clients_[i].client; }
  [[nodiscard]] bool has_died() const { return scheduler_.has_died(); }

 private:
  template <class Join>
  void connect(std::uint32_t i, const core::shared::Request& open, const Join& join) {
    std::array<int, 2> ends{};
    MEMLITH_ASSERT(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0);
    clients_[i].socket = core::Descriptor(ends[0]);
    clients_[i].clients_socket = ends[1];
    core::shared::Joined joined;
    const auto memories = must(kept_.open(i + 1, open, joined.answer));
    joined.socket = core::Descriptor(ends[1]);
    joined.memories.region = core::Descriptor(::fcntl(memories[0], F_DUPFD_CLOEXEC, 3));
    joined.memories.control = core::Descriptor(::fcntl(memories[1], F_DUPFD_CLOEXEC, 3));
    clients_[i].client = must(join(std::move(joined)));
  }

  // As Keeper::run: what a client sent before it ended counts.
  void keep() {
    const auto speaks = [this](Connected& each) {
      pollfd packet{each.socket.get(), POLLIN, 0};
      return each.socket.get() >= 0 && ::poll(&packet, 1, 0) > 0;
    };
    for (;;) {
      core::controller->block("wait for clients", nullptr, core::kForEver,
                              [&] { return ends_ || speaks(clients_[0]) || speaks(clients_[1]); });
      for (std::uint32_t i = 0; i < 2; ++i) {
        if (speaks(clients_[i]) && !serve(i + 1, clients_[i])) {
          kept_.leave(i + 1);
          clients_[i].socket = core::Descriptor();
        }
      }
      if (ends_ && clients_[0].socket.get() < 0 && clients_[1].socket.get() < 0) return;
    }
  }
  bool serve(std::uint32_t number, Connected& client) {
    core::shared::Request request;
    std::string payload;
    core::Descriptor life;
    const auto received = core::shared::receive_request(client.socket.get(), request, payload, life);
    if (received != core::shared::Received::message) return false;
    core::shared::Answer answer;
    answer.number = request.number;
    auto served = kept_.serve(number, request, payload, answer);
    core::Status done = served.status();
    if (served.ok() && served->has_value()) {
      done = session_->store().wait(**served);
      answer.ticket = (*served)->value;
    }
    answer.set(done);
    (void)core::shared::send_answer(client.socket.get(), answer);
    return true;
  }

  lab::Scheduler& scheduler_;
  core::SimVolume volume_;
  std::unique_ptr<core::Session> session_;
  Kept kept_;
  std::array<Connected, 2> clients_;
  bool ends_ = false;
  std::string wrong_;
};

}  // namespace memlith::test
