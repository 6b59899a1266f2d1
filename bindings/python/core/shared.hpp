// Regions that several processes write, for memlith/_shared.py, over memlith/shared.h. Part: python.
#ifndef MEMLITH_PYTHON_SHARED_HPP
#define MEMLITH_PYTHON_SHARED_HPP

#include <nanobind/nanobind.h>

namespace memlith::python {

void define_shared(nanobind::module_& module);

}  // namespace memlith::python

#endif
