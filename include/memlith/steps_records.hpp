// memlith: the records of durable steps, as C++ and Python (memlith.steps) read and write them: docs/steps.md. Part of
// memlith/steps.hpp.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "memlith/applog.h"
#include "memlith/kv.hpp"

namespace memlith::steps {

enum class Status : std::uint8_t { ready, waiting, done, failed, cancelled, stopped };
inline const char* name_of(Status status) {
  constexpr std::array kNames = {"ready", "waiting", "done", "failed", "cancelled", "stopped"};
  return kNames[static_cast<std::size_t>(status)];
}
inline bool has_ended(Status status) {
  return status == Status::done || status == Status::failed || status == Status::cancelled;
}

enum class Kind : std::uint8_t { step = 1, effect, sleep, signal };
enum class State : std::uint8_t { began = 1, done, raised, timeout };

// A run, as it is recorded.
struct RunInfo {
  std::string id;
  Status status = Status::ready;
  std::uint32_t position = 0;  // of the call that comes next
  std::uint32_t attempt = 1;   // how often it was taken; an earlier taker's commit is refused
  std::uint32_t failures = 0;
  std::uint64_t created_us = 0;  // since 1970
  std::uint64_t changed_us = 0;
  std::uint64_t due_us = 0;          // 0: it has no timer
  std::uint64_t token = 0;           // tells two runs of one name apart
  std::uint64_t lease_until_us = 0;  // 0: no worker has taken it; in a store that is in use, it is running until then
  std::string workflow;              // empty: a program executes it, and no worker
  std::string version;
  std::string codec;
  std::string waits_for;  // the name of a signal
  std::string error;
};

// A call of a run: a step, an effect, a sleep or a wait.
struct Call {
  Kind kind = Kind::step;
  State state = State::began;
  std::uint64_t time_us = 0;
  std::string name;
  std::string version;
  std::string key;        // of an effect
  std::string payload;    // the result; of an error, its message; of what waits, when that ends
  std::string arguments;  // of an effect, by Python; of an error, its code
};

// A message of the outbox, the application log "steps.outbox".
struct Message {
  std::string run;             // that sent it; empty if no run did
  std::uint32_t position = 0;  // of its step
  std::string codec;           // how Python made the content; "raw": its own bytes
  std::string content;
};

// How results become bytes. Text and trivially copyable types are their own bytes; specialize this for others.
template <class T>
struct Codec {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> && !std::is_same_v<T, std::string_view>,
                "specialize memlith::steps::Codec for it; text is a std::string");
  static std::string encode(const T& value) { return {reinterpret_cast<const char*>(&value), sizeof value}; }
  static Result<T> decode(std::string_view bytes) {
    if (bytes.size() != sizeof(T)) {
      return Error(MEMLITH_INCOMPATIBLE, "a recorded result has " + std::to_string(bytes.size()) + " bytes, and not " +
                                             std::to_string(sizeof(T)) + ": give the changed step a new version");
    }
    T value;
    std::memcpy(static_cast<void*>(&value), bytes.data(), sizeof value);
    return value;
  }
};
template <>
struct Codec<std::string> {
  static const std::string& encode(const std::string& value) { return value; }
  static Result<std::string> decode(std::string_view bytes) { return std::string(bytes); }
};

// ---- records -------------------------------------------------------------------------------------------------------

namespace detail {

inline constexpr std::uint8_t kVersion = 1;
inline constexpr std::size_t kNameBytesMax = 250;
inline constexpr std::uint32_t kCallsMax = 100000;
inline constexpr char kMap[] = "=.steps";
inline constexpr char kMeta[] = "memlith.python";

template <class Number>
void put_number(std::string& to, Number number) {
  for (std::size_t i = 0; i < sizeof number; ++i) to += static_cast<char>(static_cast<std::uint64_t>(number) >> 8 * i);
}
inline void put_text(std::string& to, std::string_view text) {
  put_number(to, static_cast<std::uint32_t>(text.size()));
  to += text;
}
template <class Number>
std::string big(Number number) {
  std::string bytes;
  for (std::size_t i = sizeof number; i-- > 0;) bytes += static_cast<char>(static_cast<std::uint64_t>(number) >> 8 * i);
  return bytes;
}

// Reads a record. After its end, everything is empty and `whole` is false.
struct Reader {
  std::string_view left;
  bool whole = true;
  template <class Number>
  Number number() {
    std::uint64_t value = 0;
    if (left.size() < sizeof(Number)) {
      whole = false;
      return 0;
    }
    for (std::size_t i = 0; i < sizeof(Number); ++i) {
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(left[i])) << 8 * i;
    }
    left.remove_prefix(sizeof(Number));
    return static_cast<Number>(value);
  }
  std::string text() {
    const auto bytes = number<std::uint32_t>();
    whole = whole && bytes <= left.size();
    if (!whole) return {};
    std::string found(left.substr(0, bytes));
    left.remove_prefix(bytes);
    return found;
  }
  [[nodiscard]] bool ended() const { return whole && left.empty(); }
};

inline Error damaged(std::string_view id) {
  return {MEMLITH_CORRUPT,
          "run \"" + std::string(id) + "\": a record makes no sense; run `memlith verify` on the store"};
}
inline Error of_version(std::string_view id, unsigned version) {
  return {MEMLITH_INCOMPATIBLE, "run \"" + std::string(id) + "\" has records of version " + std::to_string(version) +
                                    "; this memlith reads version " + std::to_string(kVersion)};
}

inline std::string packed(const RunInfo& run) {
  std::string to{static_cast<char>(kVersion), static_cast<char>(run.status), 0, 0};
  for (const std::uint32_t each : {run.position, run.attempt, run.failures}) put_number(to, each);
  for (const std::uint64_t each : {run.created_us, run.changed_us, run.due_us, run.token}) put_number(to, each);
  for (const std::string* each : {&run.workflow, &run.version, &run.codec, &run.waits_for, &run.error}) {
    put_text(to, *each);
  }
  return to;
}
inline Result<RunInfo> unpacked_run(std::string_view id, std::string_view bytes) {
  Reader from{bytes};
  const auto version = from.number<std::uint8_t>();
  if (from.whole && version != kVersion) return of_version(id, version);
  RunInfo run;
  run.id = id;
  const auto status = from.number<std::uint8_t>();
  run.status = static_cast<Status>(status);
  (void)from.number<std::uint16_t>();
  for (std::uint32_t* each : {&run.position, &run.attempt, &run.failures}) *each = from.number<std::uint32_t>();
  for (std::uint64_t* each : {&run.created_us, &run.changed_us, &run.due_us, &run.token}) {
    *each = from.number<std::uint64_t>();
  }
  for (std::string* each : {&run.workflow, &run.version, &run.codec, &run.waits_for, &run.error}) *each = from.text();
  if (!from.ended() || status > static_cast<unsigned>(Status::stopped)) return damaged(id);
  return run;
}

inline std::string packed(const Call& call, std::uint32_t position) {
  std::string to{static_cast<char>(kVersion), static_cast<char>(call.kind), static_cast<char>(call.state), 0};
  put_number(to, position);
  put_number(to, call.time_us);
  for (const std::string* each : {&call.name, &call.version, &call.key, &call.payload, &call.arguments}) {
    put_text(to, *each);
  }
  return to;
}
inline Result<Call> unpacked_call(std::string_view id, std::uint32_t position, std::string_view bytes) {
  Reader from{bytes};
  const auto version = from.number<std::uint8_t>();
  if (from.whole && version != kVersion) return of_version(id, version);
  Call call;
  const auto kind = from.number<std::uint8_t>();
  const auto state = from.number<std::uint8_t>();
  call.kind = static_cast<Kind>(kind);
  call.state = static_cast<State>(state);
  (void)from.number<std::uint8_t>();
  const auto stored = from.number<std::uint32_t>();
  call.time_us = from.number<std::uint64_t>();
  for (std::string* each : {&call.name, &call.version, &call.key, &call.payload, &call.arguments}) *each = from.text();
  const bool known = kind >= 1 && kind <= 4 && state >= 1 && state <= 4;
  if (!from.ended() || !known || stored != position) return damaged(id);
  return call;
}

// Keys, as a dictionary of Python has them: bytes behind 0x20.
inline std::string key(char kind, std::string_view id) { return std::string{' ', kind}.append(id); }
inline std::string calls_prefix(std::string_view id) { return key('s', id) + '\0'; }
inline std::string call_key(std::string_view id, std::uint32_t position) { return calls_prefix(id) + big(position); }
inline std::string signals_prefix(std::string_view id, std::string_view name) {
  return (key('g', id) + '\0').append(name) + '\0';
}
inline std::string timer_key(const RunInfo& run) { return key('t', run.workflow) + '\0' + big(run.due_us) + run.id; }
// The end of the keys that begin so. The last byte of a prefix is below 0xff.
inline std::string behind(std::string prefix) {
  prefix.back() = static_cast<char>(static_cast<unsigned char>(prefix.back()) + 1);
  return prefix;
}

inline std::uint64_t now_us() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}
inline std::uint64_t random_number() {
  std::random_device device;
  return static_cast<std::uint64_t>(device()) << 32 | device();
}
inline Result<void> check_name(std::string_view name, const char* what) {
  if (!name.empty() && name.size() <= kNameBytesMax && name.find('\0') == std::string_view::npos) return {};
  return Error(MEMLITH_INVALID, std::string(what) + " has 1 to " + std::to_string(kNameBytesMax) +
                                    " bytes and no zero byte; this one has " + std::to_string(name.size()));
}
inline std::string text_of(Kind kind, std::string_view name, std::string_view version) {
  constexpr std::array kWords = {"step", "effect", "a sleep", "a wait for signal"};
  std::string text = kWords[static_cast<std::size_t>(kind) - 1];
  if (!name.empty()) text.append(" ").append(name);
  if (!version.empty()) text.append(" of version ").append(version);
  return text;
}

// The journal's part that its runs share.
struct Shared {
  explicit Shared(memlith_store* of, Kv opened) : store(of), kv(std::move(opened)) {}
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() {
    if (outbox != nullptr) (void)memlith_applog_close(outbox);
  }
  memlith_store* store;
  Kv kv;
  KvMap map = 0;
  std::mutex mutex;
  memlith_applog* outbox = nullptr;  // opened by the first message; guarded by `mutex`
  bool counts_unknown = false;       // guarded by `mutex`
  std::condition_variable changed;   // a signal was sent, or a run cancelled

  Result<memlith_applog*> open_outbox() {
    const std::lock_guard lock(mutex);
    if (outbox != nullptr) return outbox;
    memlith_applog_options options{};
    options.struct_size = sizeof options;
    options.flags = MEMLITH_CREATE;
    options.when_full = MEMLITH_APPLOG_GROW;
    const std::int32_t code = memlith_applog_open(store, "steps.outbox", &options, &outbox);
    if (code != MEMLITH_OK) return Error(code);
    return outbox;
  }
  // A dictionary of Python keeps its length. From the first change here on it is unknown, and Python counts again.
  Result<void> prepare() {
    const std::lock_guard lock(mutex);
    if (counts_unknown) return {};
    auto meta = kv.map(kMeta, {.create = true});
    if (!meta) return meta.error();
    auto done = kv.transact([&](KvTransaction& txn) -> Result<void> {
      if (auto put = txn.put(*meta, std::string("k").append(kMap), "dictionary of raw"); !put) return put;
      return txn.put(*meta, std::string("n").append(kMap), "");
    });
    if (!done) return done.error();
    counts_unknown = true;
    return {};
  }
  Result<std::optional<RunInfo>> find(KvTransaction& txn, std::string_view id) const {
    auto bytes = txn.find(map, key('r', id));
    if (!bytes) return bytes.error();
    if (!bytes->has_value()) return std::optional<RunInfo>();
    auto run = unpacked_run(id, **bytes);
    if (!run) return run.error();
    return std::optional(std::move(*run));
  }
  Result<RunInfo> known(KvTransaction& txn, std::string_view id) const {
    auto run = find(txn, id);
    if (!run) return run.error();
    if (run->has_value()) return std::move(**run);
    return Error(MEMLITH_NOT_FOUND,
                 "there is no run \"" + std::string(id) + "\" in this store; `memlith steps list` lists them");
  }
  Result<void> put(KvTransaction& txn, RunInfo& run) const {
    run.changed_us = now_us();
    return txn.put(map, key('r', run.id), packed(run));
  }
  Result<void> set_due(KvTransaction& txn, RunInfo& run, std::uint64_t due_us) const {
    if (!run.workflow.empty() && run.due_us != 0) {
      if (auto gone = remove(txn, timer_key(run)); !gone) return gone;
    }
    run.due_us = due_us;
    if (run.workflow.empty() || due_us == 0) return {};
    return txn.put(map, timer_key(run), "");
  }
  Result<void> remove(KvTransaction& txn, const std::string& which) const {
    auto gone = txn.remove(map, which);
    if (!gone && gone.error().category() != MEMLITH_NOT_FOUND) return gone;
    return {};
  }
  // The effect of a run that began and has no recorded outcome.
  Result<std::optional<Call>> unknown(KvTransaction& txn, const RunInfo& run) const {
    auto bytes = txn.find(map, call_key(run.id, run.position));
    if (!bytes) return bytes.error();
    if (!bytes->has_value()) return std::optional<Call>();
    auto call = unpacked_call(run.id, run.position, **bytes);
    if (!call) return call.error();
    if (call->kind != Kind::effect || call->state != State::began) return std::optional<Call>();
    return std::optional(std::move(*call));
  }
  Result<std::vector<Call>> calls(KvTransaction& txn, std::string_view id) const {
    std::vector<Call> found;
    std::optional<Error> wrong;
    const std::string prefix = calls_prefix(id);
    auto read = txn.get_range(map, prefix, behind(prefix), [&](std::string_view, std::string_view bytes) {
      auto call = unpacked_call(id, static_cast<std::uint32_t>(found.size()), bytes);
      if (!call) {
        wrong = call.error();
        return false;
      }
      found.push_back(std::move(*call));
      return true;
    });
    if (!read) return read.error();
    if (wrong.has_value()) return *wrong;
    return found;
  }
};

template <class T>
struct value_of {
  using type = T;
};
template <class T>
struct value_of<Result<T>> {
  using type = T;
};
// The type of what a function gives, without its Result.
template <class Act, class... Arguments>
using value_t = typename value_of<std::invoke_result_t<Act, Arguments...>>::type;

template <class T>
std::string encoded(const Result<T>& value) {
  if constexpr (std::is_void_v<T>) {
    return {};
  } else {
    return std::string(Codec<T>::encode(*value));
  }
}
template <class T>
Result<T> decoded(std::string_view bytes) {
  if constexpr (std::is_void_v<T>) {
    return {};
  } else {
    return Codec<T>::decode(bytes);
  }
}
template <class T, class Act, class... Arguments>
Result<T> called(Act&& act, Arguments&&... arguments) {
  if constexpr (std::is_void_v<std::invoke_result_t<Act, Arguments...>>) {
    std::forward<Act>(act)(std::forward<Arguments>(arguments)...);
    return {};
  } else {
    return std::forward<Act>(act)(std::forward<Arguments>(arguments)...);
  }
}

}  // namespace detail

// The message that an entry of the log "steps.outbox" is. CORRUPT, INCOMPATIBLE: it is none that this memlith reads.
inline Result<Message> message_of(std::string_view entry) {
  detail::Reader from{entry};
  const auto version = from.number<std::uint8_t>();
  const std::size_t codec_bytes = from.number<std::uint8_t>();
  const std::size_t run_bytes = from.number<std::uint16_t>();
  Message message;
  message.position = from.number<std::uint32_t>();
  if (!from.whole || from.left.size() < codec_bytes + run_bytes) {
    return Error(MEMLITH_CORRUPT, "a message of the outbox makes no sense; run `memlith verify` on the store");
  }
  if (version != detail::kVersion) return detail::of_version("of the outbox", version);
  message.codec = from.left.substr(0, codec_bytes);
  message.run = from.left.substr(codec_bytes, run_bytes);
  message.content = from.left.substr(codec_bytes + run_bytes);
  return message;
}

}  // namespace memlith::steps
