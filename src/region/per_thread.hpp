// What a thread keeps between calls, so that persisting allocates nothing once it has grown. Floor: region.
#pragma once

#include <pthread.h>

#include <utility>

namespace memlith::core {

// The calling thread's object of type T. Programs persist as late as in atexit handlers, destructors of statics and of
// pthread_setspecific's values, when thread_locals that have destructors are gone; so what leads to the object has none. One that
// is made that late goes with the thread's values, and in the thread that calls exit() with the process.
template <class T>
T& of_this_thread() {
  thread_local T* object = nullptr;
  thread_local bool ending = false;
  struct Owner {
    ~Owner() {
      delete std::exchange(object, nullptr);
      ending = true;
    }
  };
  if (object != nullptr) return *object;
  object = new T;
  if (!ending) {
    [[maybe_unused]] thread_local Owner owner;
    return *object;
  }
  static const std::pair<pthread_key_t, bool> key = [] {
    pthread_key_t made{};
    const int error = ::pthread_key_create(&made, [](void*) { delete std::exchange(object, nullptr); });
    return std::pair(made, error == 0);
  }();
  if (key.second) (void)::pthread_setspecific(key.first, object);  // refused, some bytes stay
  return *object;
}

}  // namespace memlith::core
