#include "shared/client.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <thread>
#include <utility>

#include "base/process.hpp"
#include "region/address.hpp"
#include "shared/meet.hpp"

namespace memlith::core::shared {

namespace {

KeeperWish wish_of(const ClientOptions& options, std::string path) {
  return {std::move(path), options.create, options.program, options.patience};
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
  MEMLITH_TRY_ASSIGN(Joined joined, meet(wish_of(options, path), request));
  auto client = std::unique_ptr<Client>(new Client(options));
  client->options_.path = path;
  client->process_ = process_mark();
  client->line_.connect(std::move(joined.socket));
  MEMLITH_TRY(client->map(joined.answer, std::move(joined.memories)));
  return client;
}

Status Client::go_on() {
  const bool is_idle = transactions_.empty() && line_.is_idle();
  if (!is_idle || weak_ > durable_ || control_.keeper_has_failed()) return poisoned();
  ClientOptions options = options_;
  options.create = false;  // the region is there
  options.bytes = memory_.bytes();
  options.address = 0;
  MEMLITH_TRY_ASSIGN(const Request request, request_of(options));
  MEMLITH_TRY_ASSIGN(Joined joined, meet(wish_of(options, options.path), request));
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
  line_.connect(std::move(joined.socket));
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
  return control_.has_keeper() && !line_.has_ended() ? kOk : poisoned();
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
  MEMLITH_TRY_ASSIGN(const Answer answer, line_.ask(request));
  MEMLITH_TRY(answer.status());
  const LockGuard lock(mutex_);
  durable_ = std::max(durable_, ticket);
  return kOk;
}

}  // namespace memlith::core::shared
