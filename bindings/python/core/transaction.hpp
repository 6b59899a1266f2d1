// Transactions as Python's code has them: objects that any thread or task may end.
//
// Part: python. `with` calls functions of this file, not of Python, so that no signal handler raises between the
// beginning of a transaction and the block that ends it. A transaction whose object is dropped is undone.
#ifndef MEMLITH_PYTHON_TRANSACTION_HPP
#define MEMLITH_PYTHON_TRANSACTION_HPP

#include <nanobind/nanobind.h>

#include "gate.hpp"

namespace memlith::python {

// The open transaction of `store` in which this context's code runs, or null. With the interpreter lock.
OwnerPtr transaction_of_context(const Store* store);

void define_transaction(nanobind::module_& module);

}  // namespace memlith::python

#endif
