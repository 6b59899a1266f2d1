#include "shared/durable_answers.hpp"

#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "shared/channel.hpp"

namespace memlith::core::shared {

DurableAnswers::DurableAnswers(Session& session, int failed)
    : session_(session), failed_(failed), thread_([this] { work(); }) {}

DurableAnswers::~DurableAnswers() {
  {
    const LockGuard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void DurableAnswers::add(std::shared_ptr<Connection> to, const Answer& answer, Lsn ticket, PersistTimer timer) {
  {
    const LockGuard lock(mutex_);
    MEMLITH_ASSERT(to != nullptr && !ending_);
    due_.push_back({std::move(to), answer, ticket, timer});
  }
  changed_.notify_one();
}

void DurableAnswers::work() {
  for (;;) {
    std::vector<Due> all;
    {
      const LockGuard lock(mutex_);
      changed_.wait(mutex_, [this]() MEMLITH_REQUIRES(mutex_) { return ending_ || !due_.empty(); });
      if (due_.empty()) return;
      all.swap(due_);
    }
    answer(all);
  }
}

void DurableAnswers::answer(std::vector<Due>& all) {
  MEMLITH_ASSERT(!all.empty());
  Lsn newest;
  for (const Due& each : all) newest = std::max(newest, each.ticket);
  // ORDER durable-before-answer: a crash behind an answer that came before would take an acknowledged commit back.
  // [mutant answer_before_durable]
  const Status durable = session_.store().wait(newest);
  for (Due& each : all) {
    if (durable.ok()) each.timer.note_persist(*session_.store().stats());
    each.answer.ticket = each.ticket.value;
    each.answer.set(durable);
    // A client that takes no answers is as good as dead: the keeper then sees that the socket has ended.
    if (!send_answer(each.to->socket.get(), each.answer)) ::shutdown(each.to->socket.get(), SHUT_RDWR);
  }
  if (!durable.ok()) (void)::eventfd_write(failed_, 1);
}

}  // namespace memlith::core::shared
