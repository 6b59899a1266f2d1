#include "own_thread.hpp"

#include <pthread.h>

#include <csignal>
#include <system_error>
#include <thread>

namespace memlith::sqlite {

bool start_thread(std::function<void()> body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  bool runs = true;
  try {
    std::thread(std::move(body)).detach();
  } catch (const std::system_error&) {
    runs = false;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return runs;
}

}  // namespace memlith::sqlite
