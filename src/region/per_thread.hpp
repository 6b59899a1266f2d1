// Objects that a thread keeps between calls, so that persisting allocates nothing once they have grown. Floor: region.
#pragma once

#include <pthread.h>

#include <utility>

#include "base/sync.hpp"

namespace memlith::core {

// The calling thread's object of type T. Programs may persist as late as in atexit handlers, destructors of statics,
// and destructors of pthread_setspecific's values, when thread_locals with destructors are gone; so the pointer to the
// object has no destructor. An object that is made that late is destroyed with the thread's values; in the thread that
// calls exit(), it lives until the process ends.
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
  if (key.second) (void)::pthread_setspecific(key.first, object);  // if refused, a few bytes leak
  return *object;
}

}  // namespace memlith::core
