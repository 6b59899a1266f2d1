// The actions of transactions, recorded while they ran, and the search for those that no serial order explains.
//
// The checker builds the direct serialisation graph of Adya: an edge from one committed transaction to another says
// that the second has to come later in a serial order. A cycle is an anomaly, named by the edges that it needs:
//   G1a, G1b    a read of what was aborted, or was not the last that its transaction wrote
//   G0          a cycle of overwriting (ww)
//   G1c         with reading (wr)
//   G2-item     with overwriting of what was read (rw)
//   G2          with a write of a record that a scan did not find, or found otherwise (predicate edges): phantoms
//   strictness  with the order of time: a transaction that began after another had ended comes later
//   order       with the order of the numbers, in which a crash cuts: it has to be a serial order, too
//   count       a removal of a range told another number of records than there were before its number
//
// Every value that is written is written once, so a value tells who wrote it. That there is no record does not: of
// several states without the record, the one counts that was there when the transaction took place, if only one was.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace memlith::test {

using Seen = std::optional<std::string>;  // a value, or that there is no record

struct Action {
  // `differs`: a read that told only that the record is not `value`. `removal`: of all records from key to `end`.
  enum class Kind : std::uint8_t { read, write, scan, differs, removal };
  Kind kind = Kind::read;
  std::string key;  // of a scan and a removal, where it begins
  Seen value;       // of a write without one: a removal
  // The end of a scan: it saw every record from key to `end`, both included.
  std::string end;
  std::map<std::string, std::string> found;
  std::uint64_t count = 0;  // of a removal: how many records it told that there were
};

struct Recorded {
  std::vector<Action> actions;
  bool committed = false;
  bool wrote = false;
  std::uint64_t number = 0;  // of a committed one that wrote
  // It saw the state after a commit from `from` to `to`.
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  std::uint64_t durable = 0;  // all commits up to that number were durable when it ended; 0: it did not wait for that
  std::uint64_t began = 0;    // moments of one clock
  std::uint64_t ended = 0;
};

struct History {
  std::vector<Recorded> transactions;
  std::vector<std::string> keys;                // all that there may be, in order
  std::map<std::string, std::string> before{};  // records that were there when the history began
};

struct Anomaly {
  std::string kind;
  std::string text;
};

// The first anomaly, in the order above.
std::optional<Anomaly> find_anomaly(const History& history);

// The content of the kv store after `number` commits, by the history alone.
std::map<std::string, std::string> content_after(const History& history, std::uint64_t number);

}  // namespace memlith::test
