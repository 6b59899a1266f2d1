// A dictionary of a store as Python sees it: what memlith.Dict, Deque and Cache are made of.
//
// Part: python.
#ifndef MEMLITH_PYTHON_DICTIONARY_HPP
#define MEMLITH_PYTHON_DICTIONARY_HPP

#include <nanobind/nanobind.h>

namespace memlith::python {

void define_record_store(nanobind::module_& module);  // before what is one
void define_dictionary(nanobind::module_& module);

}  // namespace memlith::python

#endif
