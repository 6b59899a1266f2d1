// Errors of the C interface as Python exceptions: the classes of memlith/_errors.py, chosen by the code's category.
//
// Part: python. A `Failure` carries the code and memlith's own sentence through code that holds no interpreter lock;
// the translator makes the exception of it.
#ifndef MEMLITH_PYTHON_ERRORS_HPP
#define MEMLITH_PYTHON_ERRORS_HPP

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>

namespace memlith::python {

struct Failure {
  std::int32_t code;
  std::string sentence;
};

// Throws the Failure of this thread's last call, if `code` is one.
void check(std::int32_t code);

// The same for a failure that ends when there is room. Others are left to later calls.
void check_room(std::int32_t code);

[[noreturn]] void fail(std::int32_t category, std::string sentence);

void define_errors(nanobind::module_& module);

}  // namespace memlith::python

#endif
