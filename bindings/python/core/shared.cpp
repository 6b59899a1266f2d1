#include "shared.hpp"

#include <memlith/shared.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "errors.hpp"
#include "unlocked.hpp"
#include "waits.hpp"

namespace nb = nanobind;

namespace memlith::python {

namespace {

// A region, as a buffer of its bytes. It stays mapped as long as the buffer is referenced. All but the calls that are
// made without the interpreter's lock is guarded by that lock.
class SharedRegion {
 public:
  SharedRegion(const nb::bytes& store, const std::string& name, std::uint64_t bytes, bool create,
               const nb::bytes& program) {
    const std::string path = store.c_str();
    const std::string keeper = program.c_str();
    memlith_shared_options options{};
    options.struct_size = sizeof options;
    options.flags = create ? MEMLITH_CREATE : 0;
    options.program = keeper.empty() ? nullptr : keeper.c_str();
    const Unlocked unlocked;
    check(memlith_shared_open(path.c_str(), name.c_str(), bytes, &options, &handle_));
  }
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;
  ~SharedRegion() { (void)memlith_shared_close(handle_); }

  // The region must be open.
  memlith_shared* handle() const {
    if (is_closed_) fail(MEMLITH_INVALID, "the shared region is closed");
    return handle_;
  }
  void close() {
    is_closed_ = true;
    close_when_unused();
  }
  void take_buffer() { ++buffers_; }
  void release_buffer() {
    --buffers_;
    if (is_closed_) close_when_unused();
  }
  void begin_call() { ++calls_; }
  void end_call() {
    --calls_;
    if (is_closed_) close_when_unused();
  }

 private:
  void close_when_unused() {
    if (buffers_ == 0 && calls_ == 0) (void)memlith_shared_close(std::exchange(handle_, nullptr));
  }

  memlith_shared* handle_ = nullptr;
  bool is_closed_ = false;
  std::uint64_t buffers_ = 0;  // that are in use
  std::uint64_t calls_ = 0;    // transactions, and waits that are under way
};

// Keeps the region open.
class Call {
 public:
  explicit Call(SharedRegion& region) : region_(region) { region_.begin_call(); }
  ~Call() { region_.end_call(); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  SharedRegion& region_;
};

class SharedTransaction {
 public:
  SharedTransaction(SharedRegion& region, std::uint32_t mode) : region_(nb::find(&region)), mode_(mode) {
    check(memlith_shared_begin(region.handle(), &handle_));
    region.begin_call();
  }
  SharedTransaction(const SharedTransaction&) = delete;
  SharedTransaction& operator=(const SharedTransaction&) = delete;
  ~SharedTransaction() { end(memlith_shared_abort(handle_)); }

  // `memory`: a contiguous buffer within the region.
  void touch_before(nb::handle memory, std::uint64_t timeout_ms) {
    need_open();
    Py_buffer view{};
    if (PyObject_GetBuffer(memory.ptr(), &view, PyBUF_ANY_CONTIGUOUS) != 0) throw nb::python_error();
    struct Release {
      Py_buffer* view;
      ~Release() { PyBuffer_Release(view); }
    } const release{&view};
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    while (true) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
      // The main thread asks again and again, to hear signals between.
      const std::int64_t slice = std::max<std::int64_t>(0, runs_handlers() ? std::min<std::int64_t>(left, 100) : left);
      try {
        const Unlocked unlocked;
        check(memlith_shared_touch_before(handle_, view.buf, static_cast<std::uint64_t>(view.len),
                                          static_cast<std::uint64_t>(slice)));
        return;
      } catch (const Failure& failure) {
        if (memlith_category(failure.code) != MEMLITH_CONFLICT || slice >= left) throw;
      }
      look_at_signals();
      need_open();  // a handler may have ended it
    }
  }
  std::uint64_t commit() {
    need_open();
    std::uint64_t ticket = 0;
    {
      const Unlocked unlocked;
      check(memlith_shared_commit(handle_, mode_, &ticket));
    }
    end(MEMLITH_OK);
    ticket_ = ticket;
    return ticket;
  }
  // Ends a block of `with`.
  void exit(nb::handle kind, nb::handle, nb::handle) {
    if (kind.is_none() && handle_ != nullptr) {
      try {
        commit();
      } catch (const Failure&) {
        end(memlith_shared_abort(handle_));
        throw;
      }
    }
    abort();
  }
  std::optional<std::uint64_t> ticket() const { return ticket_; }
  void abort() {
    if (handle_ == nullptr) return;
    const std::int32_t code = memlith_shared_abort(handle_);
    end(code);
    check(code);
  }

 private:
  void need_open() const {
    if (handle_ == nullptr) fail(MEMLITH_INVALID, "the transaction has ended");
  }
  // The code of an abort makes no difference: in a forked child there is nothing to abort.
  void end(std::int32_t) {
    if (std::exchange(handle_, nullptr) != nullptr) nb::cast<SharedRegion&>(region_).end_call();
  }

  nb::object region_;
  const std::uint32_t mode_;
  std::optional<std::uint64_t> ticket_;  // that of the commit, once it was made
  memlith_shared_txn* handle_ = nullptr;
};

int region_buffer(PyObject* self, Py_buffer* view, int flags) {
  SharedRegion* const region = nb::inst_ptr<SharedRegion>(nb::handle(self));
  memlith_shared* handle = nullptr;
  try {
    handle = region->handle();
  } catch (const Failure& failure) {
    PyErr_SetString(PyExc_BufferError, failure.sentence.c_str());
    return -1;
  }
  const int got = PyBuffer_FillInfo(view, self, memlith_shared_address(handle),
                                    static_cast<Py_ssize_t>(memlith_shared_size(handle)), 0, flags);
  if (got == 0) region->take_buffer();
  return got;
}

void region_release(PyObject* self, Py_buffer*) { nb::inst_ptr<SharedRegion>(nb::handle(self))->release_buffer(); }

PyType_Slot region_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(region_buffer)},
                              {Py_bf_releasebuffer, reinterpret_cast<void*>(region_release)},
                              {0, nullptr}};

}  // namespace

void define_shared(nb::module_& module) {
  nb::class_<SharedRegion>(module, "SharedRegion", nb::type_slots(region_slots))
      .def(nb::init<const nb::bytes&, const std::string&, std::uint64_t, bool, const nb::bytes&>(), nb::arg("store"),
           nb::arg("name"), nb::arg("bytes"), nb::arg("create"), nb::arg("program"))
      .def("__len__", [](const SharedRegion& region) { return memlith_shared_size(region.handle()); })
      .def_prop_ro("address",
                   [](const SharedRegion& region) {
                     return reinterpret_cast<std::uintptr_t>(memlith_shared_address(region.handle()));
                   })
      .def(
          "wait",
          [](SharedRegion& region, std::uint64_t ticket) {
            memlith_shared* const handle = region.handle();
            const auto wait = [handle, ticket] { check(memlith_shared_wait(handle, ticket)); };
            const Call call(region);
            if (!runs_handlers()) {
              const Unlocked unlocked;
              return wait();
            }
            try {
              run_beside(wait);
            } catch (const nb::python_error&) {
              region.begin_call();  // the wait goes on, and the region stays open for it
              throw;
            }
          },
          nb::arg("ticket"))
      .def("close", &SharedRegion::close, "Closes the region when its memory is no longer used.");
  nb::class_<SharedTransaction>(module, "SharedTransaction")
      .def(nb::init<SharedRegion&, std::uint32_t>(), nb::arg("region"), nb::arg("mode"))
      .def("touch_bytes_before", &SharedTransaction::touch_before, nb::arg("memory"), nb::arg("timeout_ms"))
      .def_prop_ro("ticket", &SharedTransaction::ticket, "Of the commit, once it was made.")
      .def("commit", &SharedTransaction::commit)
      .def("abort", &SharedTransaction::abort,
           "Gives the bytes their old content, and ends the transaction. Does nothing if it has ended.")
      // In C++, so that no signal handler raises in it.
      .def("__exit__", &SharedTransaction::exit, nb::arg("kind").none(), nb::arg("error").none(),
           nb::arg("trace").none(),
           nb::sig("def __exit__(self, kind: object, error: object, trace: object, /) -> None"));
}

}  // namespace memlith::python
