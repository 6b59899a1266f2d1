#include "shared/line.hpp"

#include <algorithm>
#include <utility>

namespace memlith::core::shared {

namespace {
// Requests of a handle without an answer: these answers fit the socket, so that the keeper never waits for a client.
constexpr std::size_t kAsksMax = 64;
}  // namespace

void Line::connect(Descriptor socket) {
  not_for_children_.reset();
  socket_ = std::move(socket);
  not_for_children_.emplace(socket_.get());
  ended_ = false;
}

bool Line::is_idle() {
  const LockGuard lock(mutex_);
  return calls_.empty() && !receiving_;
}

bool Line::send(Request request, std::string_view payload) {
  const Ask ask = std::exchange(request.ask, Ask::piece);
  for (; payload.size() > kPieceBytes; payload.remove_prefix(kPieceBytes)) {
    if (!send_request(socket_.get(), request, -1, payload.substr(0, kPieceBytes))) return false;
  }
  request.ask = ask;
  return send_request(socket_.get(), request, -1, payload);
}

// One of the threads that wait receives for all.
void Line::receive_one() {
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

Result<Answer> Line::ask(Request request, std::string_view payload) {
  PendingCall call;
  {
    const LockGuard lock(mutex_);
    answered_.wait(mutex_, [&]() MEMLITH_REQUIRES(mutex_) { return calls_.size() < kAsksMax; });
    MEMLITH_ASSERT(calls_.size() < kAsksMax);
    call.number = request.number = ++requests_;
    calls_.push_back(&call);
    if (!ended_ && !send(request, payload)) ended_ = true;
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
              "\"{}\": its keeper ended during the call; whether the commit took effect is known when a later begin "
              "has succeeded, or when it was closed and opened again",
              name_);
}

}  // namespace memlith::core::shared
