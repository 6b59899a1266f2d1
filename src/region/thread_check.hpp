// MEMLITH_CHECK_THREADS=1: a page to which two threads stored between persists of thread scope is reported on standard
// error, with the places in the code. Floor: region. For tests: every store to a region costs microseconds.
//
// The fault tracker knows threads by page. A persist of one of these threads takes the other's store along, half done
// perhaps, or leaves the caller's own store out, and returns ok. The report is made by the next persist or rollback of
// thread scope; a program that persists with process scope only may share pages, and hears nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

namespace memlith::core {

// A store of a thread to a page.
struct StorePlace {
  std::uintptr_t code = 0;   // the instruction; 0: memlith_prepare
  std::uint32_t thread = 0;  // the kernel's number; 0: there was no store
  std::uint32_t offset = 0;  // in the page
};

class ThreadCheck {
 public:
  // True if the environment asks for checks.
  static bool is_wanted();

  ThreadCheck(std::string store, std::string region) : store_(std::move(store)), region_(std::move(region)) {}

  // The check sees no more: the program has installed a handler of SIGTRAP of its own. Said once.
  static void tell_of_other_handler();

  struct SharedPage {
    std::uint64_t page = 0;
    StorePlace first;
    StorePlace second;
  };
  static constexpr std::size_t kPagesMax = 16;  // of a report
  void report(std::span<const SharedPage> pages) const;
  // Pages of which `but` says so are not reported: several threads may store to them.
  void leave_out(std::function<bool(std::uint64_t page)> but) { but_ = std::move(but); }

 private:
  std::string store_;  // its path
  std::string region_;
  std::function<bool(std::uint64_t page)> but_;
};

}  // namespace memlith::core
