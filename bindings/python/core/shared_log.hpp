// Application logs that several processes have open: memlith.AppLog with processes=True (memlith_applog_open_shared).
//
// Part: python. The interpreter lock guards which handle the log has. A handle that a forked child has inherited is
// replaced by a new one at the next call. So is one whose keeper has ended, but the call that finds that out fails: the
// process learns that what it appended and did not write may be lost, and that reading begins anew.
#ifndef MEMLITH_PYTHON_SHARED_LOG_HPP
#define MEMLITH_PYTHON_SHARED_LOG_HPP

#include <nanobind/nanobind.h>

namespace memlith::python {

void define_shared_log(nanobind::module_& module);

}  // namespace memlith::python

#endif
