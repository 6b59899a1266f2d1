#include "engine_threads.hpp"

#include <semaphore.h>

#include <utility>

#include "images.hpp"
#include "real.hpp"

namespace memlith::preload {

namespace {
constexpr int kFirst = 4;    // one for flushes, one for checkpoints, one for the figures, one for LateCommits
constexpr int kFurther = 4;  // three for flushes, one for checkpoints (src/store/background.hpp)
}  // namespace

struct EngineThreads::Spare {
  pthread_t thread{};
  sem_t wanted{};
  void* (*body)(void*) = nullptr;
  void* context = nullptr;

  Spare() { ::sem_init(&wanted, 0, 0); }
  ~Spare() { ::sem_destroy(&wanted); }
  Spare(const Spare&) = delete;
  Spare& operator=(const Spare&) = delete;
};

EngineThreads& engine_threads() {
  static EngineThreads& all = *new EngineThreads;
  return all;
}

void* EngineThreads::wait(void* given) {
  NoSignals::hold_for_ever();
  void* (*body)(void*) = nullptr;
  void* context = nullptr;
  {
    const std::unique_ptr<Spare> spare(static_cast<Spare*>(given));
    while (::sem_wait(&spare->wanted) != 0) {
    }
    body = spare->body;
    context = spare->context;
  }
  return body(context);
}

int EngineThreads::make(std::unique_ptr<Spare>& made) {
  made = std::make_unique<Spare>();
  const int result = real().pthread_create(&made->thread, nullptr, &wait, made.get());
  if (result != 0) made.reset();
  return result;
}

void EngineThreads::prepare() {
  const std::lock_guard lock(mutex_);
  if (opened_ > kFurther) return;
  spares_.reserve(kFirst + kFurther);
  for (int more = opened_++ == 0 ? kFirst : 1; more > 0; --more) {
    std::unique_ptr<Spare> made;
    if (make(made) != 0) return;  // start() tries again, and the engine hears of it
    spares_.push_back(std::move(made));
  }
}

int EngineThreads::start(pthread_t& thread, void* (*body)(void*), void* context) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Spare> taken;
  if (spares_.empty()) {
    if (const int error = make(taken); error != 0) return error;
  } else {
    taken = std::move(spares_.back());
    spares_.pop_back();
  }
  taken->body = body;
  taken->context = context;
  thread = taken->thread;
  ::sem_post(&taken.release()->wanted);  // the thread frees it
  return 0;
}

// A thread that the child does not have may have changed it meanwhile, and so the child does not look at it.
void EngineThreads::in_child() { std::construct_at(this); }

}  // namespace memlith::preload
