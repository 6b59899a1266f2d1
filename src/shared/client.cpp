#include "shared/client.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <thread>
#include <utility>

#include "base/process.hpp"
#include "region/address.hpp"
#include "shared/start.hpp"

namespace memlith::core::shared {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPauseLeast = std::chrono::milliseconds(1);
constexpr auto kPauseMost = std::chrono::milliseconds(20);
// Requests of a handle without an answer: these answers fit the socket, so that the keeper never waits for a client.
constexpr std::size_t kAsksMax = 64;

struct Joined {
  Descriptor socket;
  Answer answer;
  Memories memories;
};

// Null: no keeper listens, or it has ended meanwhile.
Result<std::unique_ptr<Joined>> join(const Meeting& meeting, const Request& request) {
  auto socket = meeting.connect();
  if (!socket.ok() && socket.error().category == Errc::not_found) return std::unique_ptr<Joined>();
  MEMLITH_TRY(socket.status());
  auto joined = std::make_unique<Joined>();
  joined->socket = std::move(*socket);
  // A socket that a child of this process has, too, does not end with this process.
  const Result<Descriptor> life = shm::life_of_this_process();
  if (!life.ok() && life.error().category != Errc::unsupported) return life.error();
  if (!send_request(joined->socket.get(), request, life.ok() ? life->get() : -1) ||
      !receive_answer(joined->socket.get(), joined->answer, &joined->memories)) {
    return std::unique_ptr<Joined>();
  }
  MEMLITH_TRY(joined->answer.status());
  if (joined->memories.region.get() < 0 || joined->memories.control.get() < 0) {
    return fail(Errc::too_many_files, Detail::open, "no descriptor is left for a shared region");
  }
  return joined;
}

// True if a keeper has to be started now: none lives, begins or ends.
Result<bool> needs_keeper(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return true;  // the keeper says why not, or makes the store
  MEMLITH_TRY_ASSIGN(const Meeting meeting, Meeting::at(path));
  MEMLITH_TRY_ASSIGN(const bool locked, meeting.is_locked());
  return !locked;
}

// Finds the keeper, or starts one. Of two that start one at once, one sees the other's.
Result<Joined> meet(const ClientOptions& options, const std::string& path, const Request& request) {
  const auto until = Clock::now() + options.patience;
  auto pause = kPauseLeast;
  for (;;) {
    auto meeting = Meeting::at(path);
    if (meeting.ok()) {
      MEMLITH_TRY_ASSIGN(const std::unique_ptr<Joined> joined, join(*meeting, request));
      if (joined != nullptr) return std::move(*joined);
    } else if (meeting.error().category != Errc::not_found) {
      return meeting.error();
    }
    MEMLITH_TRY_ASSIGN(const bool needs, needs_keeper(path));
    if (needs) {
      MEMLITH_TRY_ASSIGN(const std::string program, find_program(options.program));
      const Status started = start_keeper(program, path, options.create);
      if (!started.ok() && started.category != Errc::exists) return started;
    }
    if (Clock::now() >= until) {
      return fail(Errc::busy, Detail::lock, "{}: its keeper did not begin or end within {} ms", path,
                  options.patience.count());
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kPauseMost);
  }
}

Result<Request> request_of(const ClientOptions& options) {
  Request request;
  if (options.region.empty() || options.region.size() >= request.name.size()) {
    return fail(Errc::invalid, Detail::argument, "a region's name has 1 to {} bytes", request.name.size() - 1);
  }
  options.region.copy(request.name.data(), request.name.size() - 1);
  request.bytes = options.bytes;
  request.address = options.address;
  request.creates = options.create ? 1 : 0;
  return request;
}

}  // namespace

Result<std::unique_ptr<Client>> Client::open(const ClientOptions& options) {
  MEMLITH_TRY_ASSIGN(const Request request, request_of(options));
  std::error_code error;
  const std::string path = std::filesystem::absolute(options.path, error).string();
  if (error) return fail_errno(error.value(), Detail::open, "{}: cannot find the folder", options.path);
  MEMLITH_TRY_ASSIGN(Joined joined, meet(options, path, request));
  auto client = std::unique_ptr<Client>(new Client(options));
  client->options_.path = path;
  client->process_ = process_mark();
  client->socket_ = std::move(joined.socket);
  client->not_for_children_.emplace(client->socket_.get());
  MEMLITH_TRY(client->map(joined.answer, std::move(joined.memories)));
  return client;
}

Status Client::go_on() {
  const bool is_idle = transactions_.empty() && calls_.empty() && !receiving_;
  if (!is_idle || weak_ > durable_ || control_.keeper_has_failed()) return poisoned();
  ClientOptions options = options_;
  options.create = false;  // the region is there
  options.bytes = memory_.bytes();
  options.address = 0;
  MEMLITH_TRY_ASSIGN(const Request request, request_of(options));
  MEMLITH_TRY_ASSIGN(Joined joined, meet(options, options.path, request));
  if (joined.answer.address != reinterpret_cast<std::uint64_t>(memory_.data())) return poisoned();
  MEMLITH_TRY_ASSIGN(Control control, Control::map(std::move(joined.memories.control)));
  MEMLITH_ASSERT(memory_.data() != nullptr && memory_.bytes() > 0);
  // In one step: other threads may load from it.
  shm::Mapping::Options where;
  where.address = memory_.data();
  where.replaces = true;
  MEMLITH_TRY_ASSIGN(shm::Mapping memory, shm::Mapping::map(joined.memories.region.get(), memory_.bytes(), where));
  memory_.forget();
  memory_ = std::move(memory);
  control_ = std::move(control);
  number_ = joined.answer.client;
  not_for_children_.reset();
  socket_ = std::move(joined.socket);
  not_for_children_.emplace(socket_.get());
  ended_ = false;
  weak_ = durable_ = 0;  // all was durable, and tickets are of a keeper
  return kOk;
}

Status Client::map(const Answer& answer, Memories memories) {
  MEMLITH_ASSERT(memory_.data() == nullptr && memories.region.get() >= 0);
  MEMLITH_TRY_ASSIGN(control_, Control::map(std::move(memories.control)));
  number_ = answer.client;
  MEMLITH_TRY(check_mappable(answer.address, answer.bytes));
  // A forked child would store to it without a range of its own, so it has not the memory.
  shm::Mapping::Options where;
  where.address = reinterpret_cast<std::byte*>(answer.address);
  auto mapped = shm::Mapping::map(memories.region.get(), answer.bytes, where);
  if (!mapped.ok() && mapped.error().category == Errc::address_taken) {
    return fail(Errc::address_taken, Detail::mapping,
                "region \"{}\": something else of this process lies between {:#x} and {:#x}, where the region belongs. "
                "A process opens a shared region once, and closes a handle whose keeper has ended before it opens "
                "again",
                name_, answer.address, answer.address + answer.bytes);
  }
  MEMLITH_TRY(mapped.status());
  memory_ = std::move(*mapped);
  return kOk;
}

// In a forked child there is no memory, and the socket is the parent's, too.
Client::~Client() {
  if (process_ != process_mark()) {
    control_.forget();
    memory_.forget();
    return;
  }
  for (;;) {
    SharedTransaction* open = nullptr;
    {
      const LockGuard lock(mutex_);
      if (!transactions_.empty()) open = transactions_.back().get();
    }
    if (open == nullptr) break;
    (void)abort(*open);
  }
}

Status Client::check_process() const {
  if (process_ == process_mark()) return kOk;
  return fail(Errc::invalid, Detail::thread,
              "region \"{}\": this handle is of the process that forked this one; open the shared region here, too",
              name_);
}

Status Client::poisoned() const {
  return fail(Errc::poisoned, Detail::object,
              "region \"{}\": its keeper has ended, and with it what was not durable. Abort open transactions and "
              "begin again. If begin fails with this, too, a weak commit may be lost, or the disk has failed: close "
              "the handle and open the region again, which is as the last durable commit left it",
              name_);
}

Status Client::check() const {
  MEMLITH_TRY(check_process());
  return control_.has_keeper() && !ended_.load(std::memory_order_relaxed) ? kOk : poisoned();
}

Status Client::wait(std::uint64_t ticket) {
  {
    const LockGuard lock(mutex_);
    MEMLITH_TRY(check());
  }
  if (ticket == 0) return kOk;  // of a commit without ranges
  Request request;
  request.ask = Ask::wait;
  request.ticket = ticket;
  MEMLITH_TRY_ASSIGN(const Answer answer, ask(request));
  MEMLITH_TRY(answer.status());
  const LockGuard lock(mutex_);
  durable_ = std::max(durable_, ticket);
  return kOk;
}

// One of the threads that wait receives for all.
void Client::receive_one() {
  MEMLITH_ASSERT(!receiving_);
  receiving_ = true;
  mutex_.unlock();
  Answer answer;
  const bool received = receive_answer(socket_.get(), answer, nullptr);
  mutex_.lock();
  MEMLITH_ASSERT(receiving_);  // no other thread has received meanwhile
  receiving_ = false;
  if (received) {
    const auto found = std::find_if(calls_.begin(), calls_.end(),
                                    [&answer](const PendingCall* each) { return each->number == answer.number; });
    if (found != calls_.end()) {
      (*found)->answer = answer;
      (*found)->answered = true;
    }
  } else {
    ended_ = true;
  }
  answered_.notify_all();
}

Result<Answer> Client::ask(Request request) {
  PendingCall call;
  {
    const LockGuard lock(mutex_);
    answered_.wait(mutex_, [&]() MEMLITH_REQUIRES(mutex_) { return calls_.size() < kAsksMax; });
    MEMLITH_ASSERT(calls_.size() < kAsksMax);
    call.number = request.number = ++requests_;
    calls_.push_back(&call);
    if (!ended_ && !send_request(socket_.get(), request)) ended_ = true;
    while (!call.answered && !ended_) {
      if (!receiving_) {
        receive_one();
      } else {
        answered_.wait(mutex_, [&]() MEMLITH_REQUIRES(mutex_) { return call.answered || ended_ || !receiving_; });
      }
    }
    const std::size_t ended = std::erase(calls_, &call);
    MEMLITH_ASSERT(ended == 1);
    answered_.notify_all();
  }
  MEMLITH_ASSERT(!call.answered || call.answer.number == call.number);
  if (call.answered) return call.answer;
  return fail(Errc::io, Detail::object,
              "region \"{}\": its keeper ended during the call; whether the commit took effect is known when a "
              "later begin has succeeded, or when the region was closed and opened again",
              name_);
}

}  // namespace memlith::core::shared
