#include "shared/keeper.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/no_throw.hpp"
#include "shared/channel.hpp"
#include "shared/durable_answers.hpp"
#include "shared/kept_region.hpp"

namespace memlith::core::shared {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kClientsMax = 1024;
constexpr auto kPause = std::chrono::milliseconds(10);
// A keeper that was killed may hold the store for a moment longer than its lock of the folder.
constexpr auto kPatience = std::chrono::seconds(2);

class Keeper {
 public:
  Keeper(const KeeperOptions& options, const Meeting& meeting, Session& session, Descriptor listener, Descriptor failed)
      : options_(options),
        meeting_(meeting),
        session_(session),
        listener_(std::move(listener)),
        failed_(std::move(failed)),
        service_(options.service ? options.service(session) : nullptr),
        newest_(session.store().durable_lsn()),
        answers_(session, failed_.get()) {}

  // Until there are no clients, or something failed.
  Status run();

 private:
  [[nodiscard]] int rest_ms() const;
  void accept_clients();
  bool serve(const std::shared_ptr<Connection>& client);
  void act(const std::shared_ptr<Connection>& client, const Request& request);
  [[nodiscard]] Status check_open(const Connection& client) const;
  void number(Connection& client);
  Status serve_further(const std::shared_ptr<Connection>& client, const Request& request, Answer& answer,
                       std::optional<std::array<int, 2>>& memories, bool& later);
  Status open(Connection& client, const Request& request, Answer& answer, std::optional<std::array<int, 2>>& memories);
  Result<KeptRegion*> region_of(const Request& request);
  Status commit(const std::shared_ptr<Connection>& client, const Request& request, Answer& answer, bool& later);
  Status wait(const std::shared_ptr<Connection>& client, const Request& request, const Answer& answer, bool& later);

  const KeeperOptions& options_;
  const Meeting& meeting_;
  Session& session_;
  Descriptor listener_;
  Descriptor failed_;
  std::map<std::string, std::unique_ptr<KeptRegion>> regions_;
  const std::unique_ptr<Service> service_;
  std::vector<std::shared_ptr<Connection>> clients_;
  std::uint32_t clients_ever_ = 0;
  Clock::time_point alone_since_ = Clock::now();
  Lsn newest_;  // ticket
  Status failure_ = kOk;
  DurableAnswers answers_;  // ends first
};

int Keeper::rest_ms() const {
  if (!clients_.empty()) return -1;
  const auto grace = clients_ever_ == 0 ? options_.first_grace : options_.grace;
  const auto rest = std::chrono::ceil<std::chrono::milliseconds>(alone_since_ + grace - Clock::now());
  return static_cast<int>(std::max<std::int64_t>(rest.count(), 0));
}

Status Keeper::run() {
  std::vector<pollfd> all;
  while (failure_.ok()) {
    all.assign({{listener_.get(), POLLIN, 0}, {failed_.get(), POLLIN, 0}});
    for (const auto& client : clients_) {
      all.push_back({client->socket.get(), POLLIN, 0});
      all.push_back({client->process.get(), POLLIN, 0});  // a negative descriptor is left out
    }
    MEMLITH_ASSERT(all.size() == 2 + 2 * clients_.size());
    const bool has_work = service_ != nullptr && service_->work();
    const int ready = ::poll(all.data(), all.size(), has_work ? 0 : rest_ms());
    if (ready < 0 && errno != EINTR) return fail_errno(errno, Detail::none, "the keeper cannot wait for its clients");
    if (ready == 0 && rest_ms() == 0) break;
    if (ready <= 0) continue;
    if (all[1].revents != 0) {
      eventfd_t ignored = 0;
      (void)::eventfd_read(failed_.get(), &ignored);
      failure_ = session_.store().failure();
      continue;
    }
    std::vector<std::shared_ptr<Connection>> left;
    for (std::size_t i = 0; i < clients_.size(); ++i) {
      const bool asks = all[2 + 2 * i].revents != 0;
      const bool has_ended = all[3 + 2 * i].revents != 0;
      const std::shared_ptr<Connection>& client = clients_[i];
      if ((!asks || serve(client)) && !has_ended) {
        left.push_back(client);
      } else {
        if (client->region != nullptr) client->region->undo(client->number);
        if (client->is_served) service_->leave(client->number);
      }
    }
    if (left.empty() && !clients_.empty()) alone_since_ = Clock::now();
    clients_ = std::move(left);
    if (all[0].revents != 0) accept_clients();
  }
  // Before the sockets end: a client that sees the end of a keeper that was killed starts another one.
  for (const auto& [name, region] : regions_) {
    if (!failure_.ok()) region->say_failed();
  }
  if (!failure_.ok() && service_ != nullptr) service_->say_failed();
  meeting_.remove();
  return failure_;
}

void Keeper::accept_clients() {
  for (;;) {
    Descriptor socket(above_standard(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
    if (socket.get() < 0) {
      // Without a free descriptor the client stays in the queue.
      if (errno != EAGAIN && errno != EWOULDBLOCK) std::this_thread::sleep_for(kPause);
      return;
    }
    auto client = std::make_shared<Connection>();
    client->socket = std::move(socket);
    clients_.push_back(std::move(client));
  }
}

// Serves requests that the client sent before it ended. False: it has ended.
bool Keeper::serve(const std::shared_ptr<Connection>& client) {
  Request request;
  for (;;) {
    const Received received = receive_request(client->socket.get(), request, client->payload, client->process);
    if (received != Received::message) return received == Received::nothing_yet;
    if (request.protocol == kProtocol && request.ask == Ask::piece) continue;
    act(client, request);
    client->payload.clear();
  }
}

void Keeper::act(const std::shared_ptr<Connection>& client, const Request& request) {
  Answer answer;
  answer.number = request.number;
  std::optional<std::array<int, 2>> memories;
  bool later = false;
  const Status done = no_throw([&]() -> Status {
    if (request.protocol != kProtocol) {
      return fail(Errc::incompatible, Detail::version,
                  "the keeper of this store is of another version of memlith (protocol {}, not {}); end the programs "
                  "that share the store, and use one version",
                  kProtocol, request.protocol);
    }
    if (request.ask >= Ask::service) return serve_further(client, request, answer, memories, later);
    if (request.ask == Ask::open) return open(*client, request, answer, memories);
    if (client->region == nullptr) return fail(Errc::invalid, Detail::argument, "no region was opened");
    if (request.ask == Ask::commit) return commit(client, request, answer, later);
    return wait(client, request, answer, later);
  });
  if (later) return;
  answer.set(done);
  const std::span<const int> brings = memories.has_value() ? std::span<const int>(*memories) : std::span<const int>();
  if (!send_answer(client->socket.get(), answer, brings)) ::shutdown(client->socket.get(), SHUT_RDWR);
  if (done.category == Errc::io || done.category == Errc::poisoned) failure_ = session_.store().failure();
}

Status Keeper::check_open(const Connection& client) const {
  if (client.number != 0) return fail(Errc::invalid, Detail::argument, "this connection has opened something already");
  if (clients_.size() <= kClientsMax) return kOk;
  return fail(Errc::busy, Detail::object, "{} handles of what processes share are open in this store", kClientsMax);
}

// No two handles ever have the same number.
void Keeper::number(Connection& client) {
  client.number = ++clients_ever_;
  MEMLITH_ASSERT(client.number != 0);
}

Status Keeper::serve_further(const std::shared_ptr<Connection>& client, const Request& request, Answer& answer,
                             std::optional<std::array<int, 2>>& memories, bool& later) {
  if (service_ == nullptr) {
    return fail(Errc::unsupported, Detail::argument, "the keeper of this store keeps shared regions alone");
  }
  if (request.ask == Ask::service) {
    MEMLITH_TRY(check_open(*client));
    number(*client);
    client->is_served = true;
    MEMLITH_TRY_ASSIGN(memories, service_->open(client->number, request, answer));
    return kOk;
  }
  if (!client->is_served) return fail(Errc::invalid, Detail::argument, "nothing was opened");
  const PersistTimer timer;
  MEMLITH_TRY_ASSIGN(const std::optional<Lsn> ticket,
                     service_->serve(client->number, request, client->payload, answer));
  if (!ticket.has_value()) return kOk;
  answers_.add(client, answer, *ticket, timer);
  later = true;
  return kOk;
}

Status Keeper::open(Connection& client, const Request& request, Answer& answer,
                    std::optional<std::array<int, 2>>& memories) {
  MEMLITH_TRY(check_open(client));
  MEMLITH_TRY_ASSIGN(KeptRegion* const region, region_of(request));
  const std::uint64_t bytes = region->region().size();
  if (request.bytes > bytes) {
    return fail(Errc::invalid, Detail::argument,
                "region \"{}\" has {} bytes, fewer than the {} that are asked for; a shared region does not grow: "
                "memlith_region_grow makes it larger while no process shares it",
                region->region().name(), bytes, request.bytes);
  }
  client.region = region;
  number(client);
  memories = region->memories();
  answer.client = client.number;
  answer.address = reinterpret_cast<std::uint64_t>(region->region().address());
  answer.bytes = bytes;
  return kOk;
}

Result<KeptRegion*> Keeper::region_of(const Request& request) {
  const std::string name(request.name.data(), ::strnlen(request.name.data(), request.name.size()));
  if (const auto found = regions_.find(name); found != regions_.end()) return found->second.get();
  MEMLITH_TRY_ASSIGN(std::unique_ptr<KeptRegion> region, KeptRegion::open(session_, request));
  const auto [place, is_new] = regions_.emplace(name, std::move(region));
  MEMLITH_ASSERT(is_new && place->second != nullptr);
  return place->second.get();
}

Status Keeper::commit(const std::shared_ptr<Connection>& client, const Request& request, Answer& answer, bool& later) {
  const PersistTimer timer;
  const bool waits = request.waits != 0;
  MEMLITH_ASSERT(client->region != nullptr && client->number != 0);
  MEMLITH_TRY_ASSIGN(const Lsn ticket, client->region->commit({client->number, request.tx}, waits));
  newest_ = std::max(newest_, ticket);
  answer.ticket = ticket.value;
  if (waits) {
    answers_.add(client, answer, ticket, timer);
    later = true;
  } else {
    timer.note_capture(*session_.store().stats());
  }
  return kOk;
}

Status Keeper::wait(const std::shared_ptr<Connection>& client, const Request& request, const Answer& answer,
                    bool& later) {
  const Lsn ticket{request.ticket};
  if (ticket > newest_) return fail(Errc::invalid, Detail::argument, "there is no ticket {} yet", ticket.value);
  if (ticket <= session_.store().durable_lsn()) return kOk;
  answers_.add(client, answer, ticket, PersistTimer());
  later = true;
  return kOk;
}

Result<std::unique_ptr<Session>> open_folder(const KeeperOptions& options) {
  StoreOptions wanted;
  wanted.create = options.create;
  wanted.makes_sums = true;
  MEMLITH_TRY_ASSIGN(Place place, place_of_store(options.path, StoreKind::folder));
  return Session::open(std::move(place), std::move(wanted));
}

Result<std::unique_ptr<Session>> open_session(const KeeperOptions& options) {
  const auto until = Clock::now() + kPatience;
  for (;;) {
    auto session = options.open ? options.open() : open_folder(options);
    if (session.ok() || session.error().category != Errc::busy || Clock::now() >= until) return session;
    std::this_thread::sleep_for(kPause);
  }
}

Status keep_open(const KeeperOptions& options, const Meeting& meeting, Session& session) {
  Descriptor failed(above_standard(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  if (failed.get() < 0) return fail_errno(errno, Detail::none, "cannot make an eventfd");
  MEMLITH_TRY_ASSIGN(Descriptor listener, meeting.listen());
  Keeper keeper(options, meeting, session, std::move(listener), std::move(failed));
  if (options.ready) options.ready();
  return keeper.run();
}

}  // namespace

Status keep(const KeeperOptions& options) {
  // The store is made durable, with its folder, when it is opened.
  if (options.create && ::mkdir(options.path.c_str(), 0755) != 0 && errno != EEXIST) {
    return fail_errno(errno, Detail::open, "{}: cannot make this folder", options.path);
  }
  MEMLITH_TRY_ASSIGN(const Meeting meeting, Meeting::at(options.path));
  MEMLITH_TRY_ASSIGN(const bool locked, meeting.lock());
  if (!locked) return fail(Errc::exists, Detail::lock, "{}: another keeper has this store", options.path);
  MEMLITH_TRY_ASSIGN(std::unique_ptr<Session> session, open_session(options));
  const Status kept = no_throw([&] { return keep_open(options, meeting, *session); });
  const KeptSentence sentence;
  const Status closed = Session::close(std::move(session));
  return kept.ok() ? closed : kept;
}

}  // namespace memlith::core::shared
