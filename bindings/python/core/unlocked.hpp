// Releases the interpreter lock for as long as it lives.
//
// Part: python. When the interpreter ends, Pythons before 3.14 end a thread that asks for the lock by unwinding it,
// which C++ does not survive in a destructor. Such a thread of a daemon's waits here until the process has ended.
#ifndef MEMLITH_PYTHON_UNLOCKED_HPP
#define MEMLITH_PYTHON_UNLOCKED_HPP

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace memlith::python {

class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  // Unwinding passes no object, so the reference binds to null, as libstdc++ has it; UBSan is told not to mind.
  __attribute__((no_sanitize("null"))) ~Unlocked() {
    try {
      PyEval_RestoreThread(state_);
    } catch (abi::__forced_unwind&) {
      while (true) ::pause();
    }
  }

 private:
  PyThreadState* const state_;
};

}  // namespace memlith::python

#endif
