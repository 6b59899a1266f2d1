// memlith._core: the C interface for memlith's Python code, and nothing else of Python.
#include <memlith/copy.h>
#include <memlith/memlith.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <private/inside.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "applog.hpp"
#include "archive.hpp"
#include "dictionary.hpp"
#include "errors.hpp"
#include "memory.hpp"
#include "shared.hpp"
#include "shared_log.hpp"
#include "shared_store.hpp"
#include "store.hpp"
#include "transaction.hpp"
#include "waits.hpp"

namespace nb = nanobind;

NB_MODULE(_core, module) {
  using namespace memlith::python;
  nb::set_leak_warnings(false);  // daemon threads keep what they use until the process has ended
  define_errors(module);
  define_memory(module);
  define_record_store(module);
  define_store(module);
  define_transaction(module);
  define_dictionary(module);
  define_applog(module);
  define_archive(module);
  define_shared(module);
  define_shared_store(module);
  define_shared_log(module);
  // The numbers that _store.py names. A number of C's is written nowhere else.
  constexpr std::pair<const char*, std::uint32_t> kNumbers[] = {{"OPEN_CREATE", MEMLITH_OPEN_CREATE},
                                                                {"OPEN_READ_ONLY", MEMLITH_OPEN_READ_ONLY},
                                                                {"OPEN_EXCLUSIVE", MEMLITH_OPEN_EXCLUSIVE},
                                                                {"OPEN_FOLLOW", MEMLITH_OPEN_FOLLOW},
                                                                {"CREATE", MEMLITH_CREATE},
                                                                {"APPLOG_BLOCK", MEMLITH_APPLOG_BLOCK},
                                                                {"APPLOG_FAIL", MEMLITH_APPLOG_FAIL},
                                                                {"APPLOG_GROW", MEMLITH_APPLOG_GROW},
                                                                {"REGION_THREAD_SCOPE", MEMLITH_REGION_THREAD_SCOPE},
                                                                {"SCOPE_PROCESS", MEMLITH_SCOPE_PROCESS},
                                                                {"SCOPE_THREAD", MEMLITH_SCOPE_THREAD},
                                                                {"TRACKER_AUTO", MEMLITH_TRACKER_AUTO},
                                                                {"TRACKER_SCAN", MEMLITH_TRACKER_SCAN},
                                                                {"TRACKER_FAULT", MEMLITH_TRACKER_FAULT},
                                                                {"TRACKER_EXPLICIT", MEMLITH_TRACKER_EXPLICIT}};
  for (const auto& [name, number] : kNumbers) module.attr(name) = number;
  module.def("version", [] { return std::string(memlith_version()); }, "The version of the library.");
  module.def(
      "copy_store",
      [](const nb::bytes& path, const nb::bytes& target) {
        const auto report = std::make_shared<memlith_copy_report>();
        report->struct_size = sizeof *report;
        run_hearing_signals([report, from = std::string(path.c_str()), to = std::string(target.c_str())] {
          check(memlith_store_copy(from.c_str(), to.c_str(), nullptr, report.get()));
        });
        return report->ticket;
      },
      nb::arg("path"), nb::arg("target"), "Copies a store, and returns the ticket of the commit that the copy has.");
  module.def(
      "describe_tracker",
      [](std::uint32_t tracker) {
        char line[512];
        check(memlith_tracker_describe(tracker, line, sizeof line));
        return std::string(line);
      },
      nb::arg("tracker"), "How a tracker works on this kernel.");
}
