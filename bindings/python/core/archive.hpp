// Archives of a store for memlith/archive.py, over memlith/archive.h. Part: python.
#ifndef MEMLITH_PYTHON_ARCHIVE_HPP
#define MEMLITH_PYTHON_ARCHIVE_HPP

#include <nanobind/nanobind.h>

namespace memlith::python {

void define_archive(nanobind::module_& module);

}  // namespace memlith::python

#endif
