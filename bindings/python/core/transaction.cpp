#include "transaction.hpp"

#include <memlith/memlith.h>
#include <nanobind/stl/optional.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "errors.hpp"
#include "store.hpp"

namespace nb = nanobind;

namespace memlith::python {

namespace {

// In a context: says that its code runs in a transaction. One of a transaction that has ended means nothing.
struct Mark {
  OwnerPtr owner;
};

// The context variable, a tuple of marks. Lives as long as the process.
PyObject* variable = nullptr;

nb::tuple marks() { return nb::cast<nb::tuple>(nb::handle(variable).attr("get")()); }

const OwnerPtr& owner_in(nb::handle mark) { return nb::inst_ptr<Mark>(mark)->owner; }

// The marks of this context, without those that mean nothing, and without `count` of the transaction.
nb::list marks_without(const OwnerPtr& owner, int count) {
  nb::list left;
  for (const nb::handle mark : marks()) {
    const OwnerPtr& each = owner_in(mark);
    if (each == owner ? count-- <= 0 : each->open.load()) left.append(mark);
  }
  return left;
}

void enter_context(const OwnerPtr& owner) {
  nb::list all = marks_without(owner, 0);
  all.append(nb::cast(Mark{owner}));
  nb::handle(variable).attr("set")(nb::tuple(all));
}

void leave_context(const OwnerPtr& owner, int count) {
  if (marks().size() == 0) return;
  nb::handle(variable).attr("set")(nb::tuple(marks_without(owner, count)));
}

constexpr int kAll = 1 << 30;

class Transaction {
 public:
  // `shown` is what `with ... as` names; None: this object.
  Transaction(nb::object store, nb::object shown, bool arrays, bool weak, std::optional<double> wait)
      : holder_(std::move(store)),
        store_(nb::cast<Store*>(holder_)),
        shown_(std::move(shown)),
        arrays_(arrays),
        weak_(weak),
        wait_(wait) {}
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  ~Transaction() {
    if (!began_ || !is_open()) return;
    if (store_->inherited()) {
      owner_->open = false;
      return;
    }
    try {
      store_->abort(owner_);
    } catch (const Failure&) {  // the store is closed or poisoned: its end undoes the transaction
    }
  }

  bool is_open() const { return owner_ != nullptr && owner_->open; }

  void start(std::optional<double> wait, bool whole) {
    const auto owner = std::make_shared<Owner>(store_, arrays_);
    enter_context(owner);  // first: it can fail
    try {
      store_->begin(owner, wait, whole);
    } catch (...) {
      leave_context(owner, kAll);
      throw;
    }
    owner_ = owner;
    began_ = true;
  }

  nb::object enter() { return enter_within(wait_, false); }
  nb::object enter_within(std::optional<double> wait, bool whole) {
    if (!arrays_) {
      enter_block(wait);
    } else if (is_open()) {
      enter_context(owner_);
    } else if (owner_ != nullptr) {
      fail(MEMLITH_INVALID, "the transaction has ended; begin another one");
    } else {
      start(wait, whole);
    }
    return shown_.is_none() && arrays_ ? nb::find(this) : shown_;
  }

  // Returns the ticket to wait for, 0 for none.
  std::uint64_t end(bool durable) {
    const OwnerPtr owner = needed();
    const Leaving leaving{owner};
    return store_->commit(owner, durable);
  }
  void commit() { wait(end(!weak_)); }
  void rollback() {
    const OwnerPtr owner = needed();
    const Leaving leaving{owner};
    store_->abort(owner);
  }

  // Ends a block. A transaction that was ended within the block stays as it is.
  std::uint64_t exit_weak(nb::handle kind) { return end_block(kind, false); }
  std::uint64_t end_block(nb::handle kind, bool durable) {
    store_->check_usable();
    if (!is_open()) return 0;
    if (!arrays_ && (store_->leave_inner_block(owner_, !kind.is_none()) || !began_)) return 0;
    if (kind.is_none()) return end(durable);
    rollback();
    return 0;
  }
  void exit(nb::handle kind, nb::handle, nb::handle) { wait(end_block(kind, !weak_)); }

  bool weak() const { return weak_; }
  const OwnerPtr& needed() const {
    store_->check_usable();
    if (!is_open()) fail(MEMLITH_INVALID, "the transaction has ended, or has not begun");
    return owner_;
  }

 private:
  struct Leaving {
    const OwnerPtr& owner;
    ~Leaving() {
      try {
        leave_context(owner, kAll);
      } catch (nb::python_error& error) {  // no memory: a mark stays, which means nothing any more
        error.discard_as_unraisable("memlith");
      }
    }
  };

  // A block of dictionaries is a part of the context's transaction, or begins one.
  void enter_block(std::optional<double> wait) {
    store_->check_usable();
    const OwnerPtr outer = transaction_of_context(store_);
    if (outer == nullptr || !store_->enter_inner_block(outer)) return start(wait, false);
    if (owner_ == outer) return;
    owner_ = outer;
    began_ = false;
  }

  void wait(std::uint64_t ticket) {
    if (ticket != 0 && !weak_) store_->wait(ticket);
  }

  nb::object holder_;
  Store* store_;
  nb::object shown_;
  const bool arrays_;
  const bool weak_;
  const std::optional<double> wait_;
  OwnerPtr owner_;
  bool began_ = false;  // by this object
};

// A block in which a context's code runs in a transaction that began elsewhere.
class Use {
 public:
  explicit Use(nb::object transaction) : transaction_(std::move(transaction)) {}
  void enter() {
    owner_ = nb::cast<const Transaction&>(transaction_).needed();
    enter_context(owner_);
  }
  void exit(nb::handle, nb::handle, nb::handle) { leave_context(owner_, 1); }

 private:
  nb::object transaction_;  // or it would be undone
  OwnerPtr owner_;
};

constexpr char kExit[] = "def __exit__(self, kind: object, error: object, trace: object, /) -> None";

}  // namespace

OwnerPtr transaction_of_context(const Store* store) {
  for (const nb::handle mark : marks()) {
    const OwnerPtr& owner = owner_in(mark);
    if (owner->store == store && owner->open) return owner;
  }
  return nullptr;
}

void define_transaction(nb::module_& module) {
  nb::class_<Mark>(module, "Mark");
  variable = nb::module_::import_("contextvars")
                 .attr("ContextVar")("memlith.transactions", nb::arg("default") = nb::make_tuple())
                 .release()
                 .ptr();
  nb::class_<Transaction>(module, "Transaction")
      .def(nb::init<nb::object, nb::object, bool, bool, std::optional<double>>(), nb::arg("store"),
           nb::arg("shown").none(), nb::arg("arrays"), nb::arg("weak"), nb::arg("wait").none())
      .def("enter_within", &Transaction::enter_within, nb::arg("wait").none(), nb::arg("whole"),
           nb::sig("def enter_within(self, wait: float | None, whole: bool) -> typing.Any"))
      .def("exit_weak", &Transaction::exit_weak, nb::arg("kind").none(),
           "Ends a block, and returns the ticket of its commit, or 0.")
      .def_prop_ro("weak", &Transaction::weak)
      .def_prop_ro("open", &Transaction::is_open, "False before the beginning and after the end.")
      .def("commit", &Transaction::commit, "Commits, and returns when that is durable.")
      .def("rollback", &Transaction::rollback, "Undoes everything.")
      .def("__enter__", &Transaction::enter, nb::sig("def __enter__(self) -> typing.Any"))
      .def("__exit__", &Transaction::exit, nb::arg("kind").none(), nb::arg("error").none(), nb::arg("trace").none(),
           nb::sig(kExit));
  nb::class_<Use>(module, "Use")
      .def(nb::init<nb::object>(), nb::arg("transaction"))
      .def("__enter__", &Use::enter)
      .def("__exit__", &Use::exit, nb::arg("kind").none(), nb::arg("error").none(), nb::arg("trace").none(),
           nb::sig(kExit));
}

}  // namespace memlith::python
