#include "shared_log.hpp"

#include <memlith/applog.h>
#include <nanobind/stl/string.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "applog.hpp"
#include "errors.hpp"
#include "unlocked.hpp"

namespace nb = nanobind;

namespace memlith::python {

namespace {

class SharedLog final : public LogCalls {
 public:
  SharedLog(const nb::bytes& path, const std::string& name, std::uint64_t size, std::uint64_t max_size,
            std::uint32_t when_full, bool create, const nb::bytes& program)
      : LogCalls(when_full), path_(path.c_str()), name_(name), program_(program.c_str()) {
    options_.struct_size = sizeof options_;
    options_.flags = create ? MEMLITH_CREATE : 0;
    options_.when_full = without_waits(when_full);
    options_.size = size;
    options_.max_size = max_size;
    options_.program = program_.empty() ? nullptr : program_.c_str();
    handle_ = open();
  }

  void write() {
    use(false, [](memlith_applog* log) { check(memlith_applog_write(log, MEMLITH_COMMIT_SYNC, nullptr)); });
  }
  // Open as before if there is no room for what was appended.
  void close() {
    if (is_closed_) return;
    if (handle_ != nullptr && handle_->process == ::getpid()) write();
    is_closed_ = true;
    handle_ = nullptr;
  }
  bool closed() const { return is_closed_; }
  std::string name() const { return name_; }

 private:
  struct Handle {
    // Nothing in a forked child: it is the parent's.
    ~Handle() {
      if (process == ::getpid()) (void)memlith_applog_close(log);
    }
    const pid_t process = ::getpid();
    memlith_applog* log = nullptr;
    std::mutex reader;
  };
  using HandlePtr = std::shared_ptr<Handle>;

  HandlePtr open() const {
    const Unlocked unlocked;
    auto made = std::make_shared<Handle>();
    check(memlith_applog_open_shared(path_.c_str(), name_.c_str(), &options_, &made->log));
    return made;
  }
  HandlePtr handle() {
    if (is_closed_) fail(MEMLITH_INVALID, "the application log \"" + name_ + "\" is closed");
    if (handle_ != nullptr && handle_->process == ::getpid()) return handle_;
    HandlePtr made = open();
    if (handle_ == nullptr || handle_->process != ::getpid()) handle_ = std::move(made);  // no other thread was faster
    return handle_;
  }
  void use(bool as_reader, const std::function<void(memlith_applog* handle)>& work) override {
    const HandlePtr current = handle();
    try {
      const Unlocked unlocked;
      std::unique_lock<std::mutex> reader;
      if (as_reader) reader = std::unique_lock(current->reader);
      work(current->log);
    } catch (const Failure& failure) {
      if (memlith_category(failure.code) == MEMLITH_POISONED && handle_ == current) handle_ = nullptr;
      throw;
    }
  }

  const std::string path_;
  const std::string name_;
  const std::string program_;
  memlith_applog_options options_{};  // constant
  bool is_closed_ = false;
  HandlePtr handle_;  // null: its keeper has ended
};

}  // namespace

void define_shared_log(nb::module_& module) {
  nb::class_<SharedLog, LogCalls>(module, "SharedLog",
                                  "An application log of several processes, as memlith.AppLog uses it.")
      .def(nb::init<const nb::bytes&, const std::string&, std::uint64_t, std::uint64_t, std::uint32_t, bool,
                    const nb::bytes&>(),
           nb::arg("path"), nb::arg("name"), nb::arg("size"), nb::arg("max_size"), nb::arg("when_full"),
           nb::arg("create"), nb::arg("program"))
      .def("write", &SharedLog::write)
      .def("close", &SharedLog::close)
      .def_prop_ro("closed", &SharedLog::closed)
      .def_prop_ro("name", &SharedLog::name);
}

}  // namespace memlith::python
