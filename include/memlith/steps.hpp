// memlith: durable steps: a program that goes on where it was killed, each effect once. Guide: docs/steps.md.
//
//   auto store = memlith::Store::open("state", {.create = true});
//   auto journal = memlith::steps::Journal::open(*store);
//   auto run = journal->run("order-4711");            // found again after a crash, or begun
//   auto left = run->step("reserve", [](memlith::steps::Step& step) {
//     return one_less(step.records(), "marble");      // what the step changes and returns: one commit, once
//   });
//   auto receipt = run->effect("charge", [](std::string_view key) { return pay(500, key); },
//                              {.key = run->key()});    // intent first, then the call, then the result
//   if (auto done = run->finish(*receipt); !done) ...
//
// The records are those of memlith.steps of Python: each lists the other's runs, and executes them if their results are
// bytes (codec="raw"). Nothing here throws, except what the functions that you pass throw: nothing was recorded then.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "memlith/steps_records.hpp"

namespace memlith::steps {

struct RunOptions {
  bool weak = false;         // steps are durable within the store's window, in order
  std::string version = {};  // of the program
};
struct StepOptions {
  std::string version = {};
};
struct EffectOptions {
  std::string key = {};  // empty: after a crash the effect is listed, and not called again by itself
  std::string version = {};
};

// ---- runs ----------------------------------------------------------------------------------------------------------

// The commit of a step, as the step changes it.
class Step {
 public:
  // Memory, heaps, logs and other kv stores take part here.
  [[nodiscard]] Transaction& transaction() const { return *transaction_; }
  // Records of the kv store ".records", in which the journal lies: Journal::records() opens its maps.
  [[nodiscard]] KvTransaction& records() const { return *records_; }
  // A message for others, in the outbox of the store (memlith.steps.Outbox of Python; the log "steps.outbox").
  Result<void> send(std::string_view message) {
    auto log = shared_->open_outbox();
    if (!log) return log.error();
    std::string entry{static_cast<char>(detail::kVersion), 3};
    detail::put_number(entry, static_cast<std::uint16_t>(id_.size()));
    detail::put_number(entry, position_);
    entry.append("raw").append(id_).append(message);
    const memlith_bytes one{entry.data(), entry.size()};
    return memlith::detail::result_of(memlith_txn_append(transaction_->handle(), *log, &one, 1));
  }

 private:
  friend class Run;
  Step(Transaction& transaction, KvTransaction& records, detail::Shared& shared, std::string_view id,
       std::uint32_t position)
      : transaction_(&transaction), records_(&records), shared_(&shared), id_(id), position_(position) {}
  Transaction* transaction_;
  KvTransaction* records_;
  detail::Shared* shared_;
  std::string_view id_;
  std::uint32_t position_;
};

// A run that this program executes. Move-only; to be destroyed before its journal's store is closed. One thread at a
// time uses a run; different threads use different runs, and share flushes.
//
// Errors of all calls: INCOMPATIBLE, the program calls something else than what is recorded, or the run is done, and
// the message names both; CONFLICT, another taker goes on with the run, or another transaction has a record that the
// step needs (nothing happened: call the step again); INVALID, the run was cancelled, or a name is no name; CORRUPT;
// and those of Transaction::commit, after which nothing was recorded.
class Run {
 public:
  [[nodiscard]] const std::string& id() const { return id_; }
  // A text that no other call of this or another run has, and that is the same whenever the run is executed.
  [[nodiscard]] std::string key() const {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (int shift = 60; shift >= 0; shift -= 4) text += kDigits[token_ >> shift & 15];
    return text + "-" + std::to_string(at_);
  }

  // Calls act(Step&), which returns a T, a Result<T>, or nothing. Its changes, its result and the run's position are
  // one commit, durable on ok unless the run is weak. A call that is recorded returns what it returned then. An error
  // of `act` undoes its changes and comes back; if the program goes on, the next commit records the error.
  template <class Act>
  auto step(std::string_view name, Act&& act, const StepOptions& options = {}) -> Result<detail::value_t<Act, Step&>> {
    using T = detail::value_t<Act, Step&>;
    auto found = next(Kind::step, name, options.version);
    if (!found) return found.error();
    if (found->has_value()) return replayed<T>(**found);
    Call call{Kind::step, State::done, detail::now_us(), std::string(name), options.version, {}, {}, {}};
    std::optional<Result<T>> value;
    auto done = commit(weak_, [&](Transaction& transaction, KvTransaction& records, RunInfo& run) -> Result<void> {
      Step step(transaction, records, *shared_, id_, at_);
      value.emplace(detail::called<T>(std::forward<Act>(act), step));
      if (!*value) return value->error();
      call.payload = detail::encoded(*value);
      return record(records, run, call);
    });
    if (done) {
      went_on();
    } else if (value.has_value() && !*value && value->error().category() != MEMLITH_CONFLICT) {
      survived(std::move(call), value->error());
    }
    if (!done) return done.error();
    return std::move(*value);
  }

  // Calls act(std::string_view key), for the world outside. That the effect begins is durable before, the result after
  // it. After a crash in between, or an error of `act`, the outcome is unknown: with a key `act` is called again, with
  // the recorded key; without one the call is INVALID until happened() or repeat() has decided.
  template <class Act>
  auto effect(std::string_view name, Act&& act, const EffectOptions& options = {})
      -> Result<detail::value_t<Act, std::string_view>> {
    using T = detail::value_t<Act, std::string_view>;
    auto found = next(Kind::effect, name, options.version);
    if (!found) return found.error();
    Call call{Kind::effect, State::began, detail::now_us(), std::string(name), options.version, options.key, {}, {}};
    if (found->has_value()) {
      if ((*found)->state != State::began) return replayed<T>(**found);
      if (auto ours = owned(run_); !ours) return ours.error();
      if ((*found)->key.empty()) {
        return Error(MEMLITH_INVALID, "run \"" + id_ + "\": it is unknown whether effect " + call.name +
                                          " has happened, which has no key; find out, and call happened() or repeat()");
      }
      call = **found;
    } else {
      auto begun =
          commit(false, [&](Transaction&, KvTransaction& records, RunInfo& run) { return record(records, run, call); });
      if (!begun) return begun.error();
      loaded_ = at_ == calls_.size();  // `act` may throw, and the effect be called again
      calls_.push_back(call);
    }
    Result<T> value = detail::called<T>(std::forward<Act>(act), std::string_view(call.key));
    if (!value) {
      survived(std::move(call), value.error());
      return value;
    }
    call.state = State::done;
    call.payload = detail::encoded(value);
    call.time_us = detail::now_us();
    auto done =
        commit(weak_, [&](Transaction&, KvTransaction& records, RunInfo& run) { return record(records, run, call); });
    if (!done) return done.error();
    went_on();
    return value;
  }

  // The effect that began and has no recorded outcome, if there is one.
  Result<std::optional<Call>> unknown() {
    auto txn = shared_->kv.begin({.read_only = true});
    if (!txn) return txn.error();
    auto run = shared_->known(*txn, id_);
    if (!run) return run.error();
    return shared_->unknown(*txn, *run);
  }
  // Says that the effect of unknown() has happened, and what it returned; or that it has not, so that the next call of
  // it calls it. Durable on ok. NOT_FOUND: there is no such effect.
  template <class T = std::string>
  Result<void> happened(const T& value = {}) {
    return decide([&](KvTransaction& records, RunInfo& run, Call& call) {
      call.state = State::done;
      call.payload = std::string(Codec<T>::encode(value));
      const std::uint32_t position = run.position++;
      return records.put(shared_->map, detail::call_key(id_, position), detail::packed(call, position));
    });
  }
  Result<void> repeat() {
    return decide([&](KvTransaction& records, RunInfo& run, Call&) {
      return shared_->remove(records, detail::call_key(id_, run.position));
    });
  }

  // Waits until so long after the first call, whatever crashes meanwhile.
  Result<void> sleep(std::chrono::microseconds time) {
    auto found = next(Kind::sleep, "", "");
    if (!found) return found.error();
    std::uint64_t due = detail::now_us() + static_cast<std::uint64_t>(std::max<std::int64_t>(time.count(), 0));
    if (found->has_value()) {
      detail::Reader from{(*found)->payload};
      due = from.number<std::uint64_t>();
    } else {
      Call call{Kind::sleep, State::done, detail::now_us(), {}, {}, {}, {}, {}};
      detail::put_number(call.payload, due);
      auto done =
          commit(weak_, [&](Transaction&, KvTransaction& records, RunInfo& run) { return record(records, run, call); });
      if (!done) return done.error();
    }
    went_on();
    const std::uint64_t now = detail::now_us();
    if (at_ >= calls_.size() && due > now) std::this_thread::sleep_for(std::chrono::microseconds(due - now));
    return {};
  }

  // The value of the next signal of that name, which is taken with the run's commit; nothing if there was none within
  // the time, counted from the first call. A negative time: waits for ever.
  template <class T = std::string>
  Result<std::optional<T>> wait_for(std::string_view name,
                                    std::chrono::microseconds time = std::chrono::microseconds(-1)) {
    if (auto right = detail::check_name(name, "the name of a signal"); !right) return right.error();
    auto found = next(Kind::signal, name, "");
    if (!found) return found.error();
    Call call{Kind::signal, State::began, detail::now_us(), std::string(name), {}, {}, {}, {}};
    std::uint64_t deadline = time.count() < 0 ? 0 : detail::now_us() + static_cast<std::uint64_t>(time.count());
    bool is_first = !found->has_value();
    if (!is_first) {
      call = **found;
      detail::Reader from{call.payload};
      deadline = call.state == State::began ? from.number<std::uint64_t>() : 0;
    }
    while (call.state == State::began) {
      auto looked = take_signal(call, deadline, std::exchange(is_first, false));
      if (!looked) return looked.error();
      if (call.state != State::began) break;
      std::unique_lock lock(shared_->mutex);
      shared_->changed.wait_for(lock, kBetweenLooks);
    }
    went_on();
    if (call.state == State::timeout) return std::optional<T>();
    auto value = Codec<T>::decode(call.payload);
    if (!value) return value.error();
    return std::optional<T>(std::move(*value));
  }

  // Records the end of the run and its result. Durable on ok, unless the run is weak. A run that is done stays as it
  // is.
  template <class T = std::string>
  Result<void> finish(const T& result = {}) {
    if (auto read = load(); !read) return read;
    if (run_.status == Status::done) return {};
    if (at_ < calls_.size()) {
      return Error(MEMLITH_INCOMPATIBLE, "run \"" + id_ + "\" ends behind " + std::to_string(at_) +
                                             " steps, and has recorded " + std::to_string(calls_.size()));
    }
    auto done = commit(weak_, [&](Transaction&, KvTransaction& records, RunInfo& run) -> Result<void> {
      if (auto put = put_raised(records); !put) return put;
      run.position = at_;
      run.status = Status::done;
      run.error.clear();
      auto put = records.put(shared_->map, detail::key('o', id_), std::string(Codec<T>::encode(result)));
      if (!put) return put;
      return shared_->put(records, run);
    });
    if (done) loaded_ = false;
    return done;
  }
  // The result of a run that is done, durable on ok. NOT_FOUND: it is not done.
  template <class T = std::string>
  Result<T> result() {
    auto txn = shared_->kv.begin({.read_only = true});
    if (!txn) return txn.error();
    auto bytes = txn->get(shared_->map, detail::key('o', id_));
    if (!bytes) return bytes.error();
    auto value = Codec<T>::decode(*bytes);
    if (auto durable = txn->commit(); !durable) return durable.error();
    return value;
  }

 private:
  friend class Journal;
  static constexpr std::chrono::milliseconds kBetweenLooks{100};
  Run(std::shared_ptr<detail::Shared> shared, const RunInfo& run, bool weak)
      : shared_(std::move(shared)), id_(run.id), token_(run.token), attempt_(run.attempt), weak_(weak) {}

  // The records, as they are in the store.
  Result<void> load() {
    if (loaded_) return {};
    auto txn = shared_->kv.begin({.read_only = true});
    if (!txn) return txn.error();
    auto run = shared_->known(*txn, id_);
    if (!run) return run.error();
    auto calls = shared_->calls(*txn, id_);
    if (!calls) return calls.error();
    const bool began = !calls->empty() && calls->back().state == State::began;
    if (run->token == token_ && calls->size() - (began ? 1 : 0) != run->position) {
      return Error(MEMLITH_CORRUPT, "run \"" + id_ + "\" has " + std::to_string(calls->size()) +
                                        " recorded steps, and its position is " + std::to_string(run->position) +
                                        "; run `memlith verify` on the store");
    }
    if (!weak_) {  // what is returned again may be in memory only, and its flush under way
      if (auto durable = txn->commit(); !durable) return durable.error();
    }
    run_ = std::move(*run);
    calls_ = std::move(*calls);
    loaded_ = true;
    return {};
  }
  // The record of the call that comes next, if there is one.
  Result<std::optional<Call>> next(Kind kind, std::string_view name, std::string_view version) {
    if (kind != Kind::sleep) {
      if (auto right = detail::check_name(name, "the name of a step"); !right) return right.error();
    }
    if (auto read = load(); !read) return read.error();
    if (at_ >= calls_.size()) {
      if (at_ < detail::kCallsMax) return std::optional<Call>();
      return Error(MEMLITH_INVALID, "run \"" + id_ + "\" has " + std::to_string(at_) +
                                        " steps, the most that a run may have; go on in a new run");
    }
    const Call& call = calls_[at_];
    if (call.kind == kind && call.name == name && call.version == version) return std::optional(call);
    return Error(MEMLITH_INCOMPATIBLE, "run \"" + id_ + "\" has recorded " +
                                           detail::text_of(call.kind, call.name, call.version) + " as call " +
                                           std::to_string(at_) + ", and the program calls " +
                                           detail::text_of(kind, name, version) +
                                           " there: execute the run with the code that began it, or begin a new run");
  }
  // One commit of the store, if the run is still this object's.
  template <class Change>
  Result<void> commit(bool weak, Change&& change) {
    auto done = try_commit(weak, std::forward<Change>(change));
    if (!done) loaded_ = false;
    return done;
  }
  template <class Change>
  Result<void> try_commit(bool weak, Change&& change) {
    if (auto ready = shared_->prepare(); !ready) return ready;
    memlith_txn* handle = nullptr;
    if (const std::int32_t code = memlith_begin(shared_->store, &handle); code != MEMLITH_OK) return Error(code);
    Transaction transaction(handle);  // aborts what ends without a commit
    auto records = shared_->kv.begin({.wait_ms = 1000});
    if (!records) return records.error();
    auto run = shared_->known(*records, id_);
    if (!run) return run.error();
    if (auto ours = owned(*run); !ours) return ours;
    if (auto changed = change(transaction, *records, *run); !changed) return changed;
    if (auto joined = records->join(transaction); !joined) return joined;
    if (!weak) return transaction.commit();
    auto ticket = transaction.commit_weak();
    if (!ticket) return ticket.error();
    return {};
  }
  [[nodiscard]] Result<void> owned(const RunInfo& run) const {
    if (run.status == Status::cancelled) return Error(MEMLITH_INVALID, "run \"" + id_ + "\" was cancelled");
    if (run.token != token_ || run.attempt != attempt_) {
      return Error(MEMLITH_CONFLICT,
                   "run \"" + id_ + "\" was taken by another thread or program meanwhile, which goes on with it");
    }
    if (run.status != Status::done) return {};
    return Error(MEMLITH_INCOMPATIBLE, "run \"" + id_ + "\" is done, with " + std::to_string(run.position) +
                                           " steps, and the program calls one more");
  }
  // Puts the call's record and the run's position, in one commit: never one without the other.
  Result<void> record(KvTransaction& records, RunInfo& run, const Call& call) {
    if (auto put = put_raised(records); !put) return put;
    auto put = records.put(shared_->map, detail::call_key(id_, at_), detail::packed(call, at_));
    if (!put) return put;
    run.position = call.state == State::began ? at_ : at_ + 1;
    run.failures = 0;
    run.error.clear();
    return shared_->put(records, run);
  }
  Result<void> put_raised(KvTransaction& records) {
    for (const auto& [position, call] : raised_) {
      auto put = records.put(shared_->map, detail::call_key(id_, position), detail::packed(call, position));
      if (!put) return put;
    }
    return {};
  }
  Result<void> take_signal(Call& call, std::uint64_t deadline, bool is_first) {
    if (!is_first) {  // a look, before a commit
      auto txn = shared_->kv.begin({.read_only = true});
      if (!txn) return txn.error();
      auto run = shared_->known(*txn, id_);
      if (!run) return run.error();
      if (auto ours = owned(*run); !ours) return ours;
      auto there = signal(*txn, call.name);
      if (!there) return there.error();
      if (!there->has_value() && (deadline == 0 || detail::now_us() < deadline)) return {};
    }
    return commit(weak_, [&](Transaction&, KvTransaction& records, RunInfo& run) -> Result<void> {
      auto there = signal(records, call.name);
      if (!there) return there.error();
      Call found = call;
      found.payload.clear();
      if (there->has_value()) {
        found.state = State::done;
        found.payload = std::move((*there)->second);
        if (auto gone = records.remove(shared_->map, (*there)->first); !gone) return gone;
      } else if (deadline != 0 && detail::now_us() >= deadline) {
        found.state = State::timeout;
      } else {
        detail::put_number(found.payload, deadline);
      }
      call = found;
      return record(records, run, found);
    });
  }
  // The first signal of that name: its key and its value.
  Result<std::optional<std::pair<std::string, std::string>>> signal(KvTransaction& txn, std::string_view name) {
    std::optional<std::pair<std::string, std::string>> found;
    const std::string prefix = detail::signals_prefix(id_, name);
    auto read = txn.get_range(shared_->map, prefix, detail::behind(prefix),
                              [&](std::string_view which, std::string_view value) {
                                found.emplace(which, value);
                                return false;
                              });
    if (!read) return read.error();
    return found;
  }
  template <class Change>
  Result<void> decide(Change&& change) {
    loaded_ = false;  // the records change
    return commit(false, [&](Transaction&, KvTransaction& records, RunInfo& run) -> Result<void> {
      auto call = shared_->unknown(records, run);
      if (!call) return call.error();
      if (!call->has_value()) {
        return Error(MEMLITH_NOT_FOUND, "run \"" + id_ + "\" has no effect whose outcome is unknown");
      }
      if (auto changed = change(records, run, **call); !changed) return changed;
      return shared_->put(records, run);
    });
  }
  template <class T>
  Result<T> replayed(const Call& call) {
    went_on();
    if (call.state != State::raised) return detail::decoded<T>(call.payload);
    detail::Reader from{call.arguments};
    const auto code = static_cast<std::int32_t>(from.number<std::uint32_t>());
    return Error(from.ended() ? code : MEMLITH_INVALID, call.payload);
  }
  void survived(Call call, const Error& error) {
    call.state = State::raised;
    call.payload = error.message();
    call.arguments.clear();
    detail::put_number(call.arguments, static_cast<std::uint32_t>(error.code()));
    raised_[at_++] = std::move(call);
  }
  void went_on() {
    ++at_;
    raised_.clear();
  }

  std::shared_ptr<detail::Shared> shared_;
  std::string id_;
  std::uint64_t token_;
  std::uint32_t attempt_;
  bool weak_;
  RunInfo run_;              // as load() found it
  std::vector<Call> calls_;  // likewise
  bool loaded_ = false;
  std::uint32_t at_ = 0;                  // the call that comes next
  std::map<std::uint32_t, Call> raised_;  // errors that the program has survived; recorded with the next call
};

// ---- a store's runs ------------------------------------------------------------------------------------------------

// The runs of a store. Move-only; to be closed before its store. Any thread may call any method.
class Journal {
 public:
  // Opens the journal of the store, and with `create` makes it if there is none. NOT_FOUND: there is none. The kv store
  // ".records" is the journal's: records() gives its maps to steps.
  static Result<Journal> open(const Store& store, bool create = true) { return open(store.handle(), create); }
  static Result<Journal> open(memlith_store* store, bool create = true) {
    memlith_kv_options options{};
    options.struct_size = sizeof options;
    options.flags = create ? MEMLITH_CREATE : 0;
    memlith_kv* handle = nullptr;
    if (const std::int32_t code = memlith_kv_open(store, ".records", &options, &handle); code != MEMLITH_OK) {
      return Error(code);
    }
    auto shared = std::make_shared<detail::Shared>(store, Kv(handle));
    auto map = shared->kv.map(detail::kMap, {.create = create});
    if (!map) return map.error();
    shared->map = *map;
    return Journal(std::move(shared));
  }
  // Runs of the journal are destroyed before. After BUSY, or without room for commits that wait, it is still open.
  Result<void> close() {
    if (shared_->outbox != nullptr) {
      const std::int32_t code = memlith_applog_close(shared_->outbox);
      if (!memlith::detail::is_still_open(code)) shared_->outbox = nullptr;
      if (code != MEMLITH_OK) return Error(code);
    }
    return shared_->kv.close();
  }
  // The kv store in which the journal lies; its maps beside the journal's are the program's.
  [[nodiscard]] const Kv& records() const { return shared_->kv; }

  // The run of that name: found again, or begun. The program calls its steps from the beginning. An older object of the
  // same run loses it: its next commit is a CONFLICT. INCOMPATIBLE: the run is of another version, or its results are
  // none of C++. BUSY: it belongs to the workers of Python.
  Result<Run> run(std::string_view id, const RunOptions& options = {}) const {
    if (auto right = detail::check_name(id, "the name of a run"); !right) return right.error();
    RunInfo taken;
    auto done = change(
        [&](KvTransaction& txn) -> Result<void> {
          auto found = shared_->find(txn, id);
          if (!found) return found.error();
          if (found->has_value()) {
            taken = std::move(**found);
            if (auto right = check(taken, options); !right) return right;
            if (taken.status == Status::done || taken.status == Status::cancelled) return {};
            ++taken.attempt;
            if (taken.status == Status::stopped) taken.status = Status::ready;
          } else {
            taken = RunInfo{};
            taken.id = id;
            taken.created_us = detail::now_us();
            taken.token = detail::random_number();
            taken.version = options.version;
            taken.codec = "raw";
          }
          return shared_->put(txn, taken);
        },
        Durability::weak);  // the order of commits makes it durable with the first step
    if (!done) return done.error();
    return Run(shared_, taken, options.weak);
  }

  // The runs in the order of their names; those whose names begin so.
  [[nodiscard]] Result<std::vector<RunInfo>> runs(std::string_view begin = {}) const {
    auto txn = shared_->kv.begin({.read_only = true});
    if (!txn) return txn.error();
    std::vector<RunInfo> found;
    std::optional<Error> wrong;
    const std::string from = detail::key('r', begin);
    auto read = txn->get_range(shared_->map, from, detail::behind(detail::key('r', {})),
                               [&](std::string_view which, std::string_view bytes) {
                                 if (!which.starts_with(from)) return false;
                                 auto run = detail::unpacked_run(which.substr(2), bytes);
                                 if (run) {
                                   found.push_back(std::move(*run));
                                 } else {
                                   wrong = run.error();
                                 }
                                 return !wrong.has_value();
                               });
    if (!read) return read.error();
    if (wrong.has_value()) return *wrong;
    for (RunInfo& each : found) {
      if (auto leased = learn_lease(*txn, each); !leased) return leased.error();
    }
    return found;
  }
  // NOT_FOUND: there is no such run.
  [[nodiscard]] Result<RunInfo> info(std::string_view id) const {
    auto txn = shared_->kv.begin({.read_only = true});
    if (!txn) return txn.error();
    auto run = shared_->known(*txn, id);
    if (!run) return run;
    if (auto leased = learn_lease(*txn, *run); !leased) return leased.error();
    return run;
  }
  [[nodiscard]] Result<std::vector<Call>> calls(std::string_view id) const {
    auto txn = shared_->kv.begin({.read_only = true});
    if (!txn) return txn.error();
    return shared_->calls(*txn, id);
  }

  // Sends a value to the run, which gets it from wait_for(name), now or later, each once. Durable on ok. INVALID: the
  // run has ended, or its values are not of C++.
  template <class T>
  Result<void> signal(std::string_view id, std::string_view name, const T& value) const {
    if (auto right = detail::check_name(name, "the name of a signal"); !right) return right;
    return change_run(id, [&](KvTransaction& txn, RunInfo& run) -> Result<void> {
      if (has_ended(run.status) || run.codec != "raw") {
        return Error(MEMLITH_INVALID, "run \"" + run.id + "\" is " + name_of(run.status) + " and of codec \"" +
                                          run.codec + "\": it takes no signal of C++");
      }
      const std::string prefix = detail::signals_prefix(id, name);
      std::string newest;
      auto read = txn.get_range(shared_->map, prefix, detail::behind(prefix), [&](std::string_view which, auto) {
        newest = which.substr(prefix.size());
        return true;
      });
      if (!read) return read;
      std::uint64_t number = 0;
      for (const char byte : newest) number = number << 8 | static_cast<unsigned char>(byte);
      number += newest.empty() ? 0 : 1;
      auto put = txn.put(shared_->map, prefix + detail::big(number), std::string(Codec<T>::encode(value)));
      if (!put || run.status != Status::waiting || run.waits_for != name) return put;
      return shared_->set_due(txn, run, detail::now_us());
    });
  }
  Result<void> signal(std::string_view id, std::string_view name, const char* value = "") const {
    return signal(id, name, std::string(value));
  }
  // Ends a run before its next commit; its finished steps stay. Durable on ok. INVALID: it has ended before.
  Result<void> cancel(std::string_view id) const {
    return change_run(id, [&](KvTransaction& txn, RunInfo& run) -> Result<void> {
      if (has_ended(run.status)) {
        return Error(MEMLITH_INVALID, "run \"" + run.id + "\" has ended: it is " + name_of(run.status));
      }
      run.status = Status::cancelled;
      if (auto gone = shared_->remove(txn, detail::key('l', id)); !gone) return gone;
      return shared_->set_due(txn, run, 0);
    });
  }
  // Lets a run go on that has failed, was stopped or was cancelled, from its first unfinished step. An effect whose
  // outcome is unknown is called again: find out before whether it has happened. Durable on ok. INVALID: it is done.
  Result<void> retry(std::string_view id) const {
    return change_run(id, [&](KvTransaction& txn, RunInfo& run) -> Result<void> {
      if (run.status == Status::done) return Error(MEMLITH_INVALID, "run \"" + run.id + "\" is done");
      auto unknown = shared_->unknown(txn, run);
      if (!unknown) return unknown.error();
      if (unknown->has_value() && (*unknown)->key.empty()) {
        if (auto gone = shared_->remove(txn, detail::call_key(id, run.position)); !gone) return gone;
      }
      run.status = Status::ready;
      run.failures = 0;
      run.error.clear();
      run.waits_for.clear();
      if (auto gone = shared_->remove(txn, detail::key('l', id)); !gone) return gone;
      return shared_->set_due(txn, run, run.workflow.empty() ? 0 : detail::now_us());
    });
  }

 private:
  explicit Journal(std::shared_ptr<detail::Shared> shared) : shared_(std::move(shared)) {}

  static Result<void> check(const RunInfo& run, const RunOptions& options) {
    if (run.version != options.version) {
      return Error(MEMLITH_INCOMPATIBLE, "run \"" + run.id + "\" was begun by version \"" + run.version +
                                             "\" of its program, and this is \"" + options.version +
                                             "\": execute it with the code that began it, or begin a new run");
    }
    if (run.codec != "raw") {
      return Error(MEMLITH_INCOMPATIBLE, "run \"" + run.id + "\" keeps its results by the codec \"" + run.codec +
                                             "\" of Python, and C++ executes those of \"raw\"");
    }
    if (!run.workflow.empty() && run.status != Status::done && run.status != Status::cancelled) {
      return Error(MEMLITH_BUSY, "run \"" + run.id + "\" belongs to the workers of workflow " + run.workflow);
    }
    return {};
  }
  template <class Change>
  Result<void> change(Change&& change, Durability durability = Durability::sync) const {
    if (auto ready = shared_->prepare(); !ready) return ready;
    auto done = shared_->kv.transact(std::forward<Change>(change), durability, 1000);
    if (!done) return done.error();
    return {};
  }
  template <class Change>
  Result<void> change_run(std::string_view id, const Change& act) const {
    auto done = change([&](KvTransaction& txn) -> Result<void> {
      auto run = shared_->known(txn, id);
      if (!run) return run.error();
      if (auto changed = act(txn, *run); !changed) return changed;
      return shared_->put(txn, *run);
    });
    const std::lock_guard lock(shared_->mutex);  // one that has just looked waits by now
    shared_->changed.notify_all();
    return done;
  }
  Result<void> learn_lease(KvTransaction& txn, RunInfo& run) const {
    auto bytes = txn.find(shared_->map, detail::key('l', run.id));
    if (!bytes) return bytes.error();
    if (!bytes->has_value()) return {};
    detail::Reader from{**bytes};
    (void)from.number<std::uint64_t>();  // of whose opening of the store
    run.lease_until_us = from.number<std::uint64_t>();
    return {};
  }

  std::shared_ptr<detail::Shared> shared_;
};

}  // namespace memlith::steps
