// An application log of a run, with a kv store that agrees with it or alone, beside a model of what they have to hold;
// and what they hold, as text that the oracle can compare.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "applog/part.hpp"
#include "kv/kv.hpp"
#include "kv/part.hpp"
#include "region/region_part.hpp"
#include "region/transaction.hpp"
#include "run.hpp"
#include "sim/history.hpp"

namespace memlith::lab {

inline constexpr const char* kLogName = "log";
inline constexpr const char* kKvName = "kv";
inline constexpr const char* kAuditName = "audit";
inline constexpr const char* kTallyName = "tally";

struct AppLogPlan {
  std::uint64_t size = 0;      // of the ring
  std::uint64_t max_size = 0;  // larger: it may grow
  bool with_kv = false;
  // Each commit of the kv store has an entry in a second log, which it reads, and a region that counts what was
  // consumed, twice: as announced to the transaction, and as stored.
  bool with_audit = false;
  bool on_board = false;  // the bytes lie where other processes read them
};

// The entries that a user sees.
struct AppLogModel {
  std::uint64_t consumed = 0;
  std::deque<std::string> entries;             // from consumed + 1 on
  std::map<std::string, std::string> records;  // of the kv store
  std::uint64_t audit_consumed = 0;
  std::deque<std::string> audit;

  void consume_to(std::uint64_t number);
  void audit_to(std::uint64_t consumed_there, const std::string& entry);
  [[nodiscard]] std::uint64_t newest() const { return consumed + entries.size(); }
  void put_into(Content& content, const AppLogPlan& has) const;
};

void open_applog(Run& run, const AppLogPlan& plan);

struct AppLogLife final : Structure {
  using Structure::Structure;

  // ---- words
  void append(std::uint64_t bytes);  // if there is room
  void write();
  void read(std::uint64_t entries);                        // without consuming them
  void consume(std::uint64_t entries);                     // of a log alone
  void consume_with_kv(std::uint64_t entries, bool wait);  // of one with a kv store
  void persist_kv();
  void truncate_after(std::uint64_t entries);
  void truncate_before(std::uint64_t entries);
  void restart(std::uint64_t skipped);
  void read_by_number(bool backwards);
  void set_term(std::uint64_t term);
  // One commit for what was stored to the heap and for records of the kv store that say what the heap holds.
  void commit_heap(bool wait);

  // ---- what they need
  AppLogPlan plan;
  std::unique_ptr<core::Region> log_region;
  std::unique_ptr<core::Region> kv_region;
  std::unique_ptr<core::Region> audit_region;
  std::unique_ptr<core::Region> tally;
  std::unique_ptr<core::kv::Kv> kv;  // neither this nor a log writes anything when it is destroyed
  core::kv::PageNumber map = 0;
  std::unique_ptr<core::applog::AppLog> audit;
  std::unique_ptr<core::applog::AppLog> log;
  AppLogModel memory;
  AppLogModel framed;             // what frames of the redo log have
  std::uint64_t read_to = 0;      // the number of the newest entry that was read
  std::uint64_t audited = 0;      // likewise of the second log
  std::vector<std::size_t> soon;  // commits whose frames were not waited for

  using Framing = std::function<void(AppLogModel& framed)>;
  using Records = std::vector<std::pair<std::string, std::string>>;
  bool make(const AppLogPlan& wanted);
  // `also`: what the commit changes beside the logs and the kv store.
  bool commit(std::string_view text, bool wait, const std::function<core::Status()>& act, const Framing& frame,
              const Change& also = nullptr);
  bool commit_kv(std::string_view text, bool wait, const Records& puts,
                 const std::function<core::Status(core::Transaction&, std::unique_ptr<core::Participant>)>& join,
                 const std::function<void()>& captured, const Change& also = nullptr);
  void frame_memory();
  core::Status join_audit(core::Transaction& transaction, std::uint64_t number, const std::string& entry);
  bool write_before_cut();
  [[nodiscard]] const std::string& entry(std::uint64_t number) const;
};

// The model that the storeys of an open store show. Errors: what is not sound.
core::Status learn(core::applog::AppLog& log, AppLogModel& model);
core::Status learn(core::kv::Kv& kv, AppLogModel& model);
core::Status learn_audit(core::applog::AppLog& audit, AppLogModel& model);
// The content of each application log and kv store among the store's objects, in the place of its bytes.
core::Status show_storeys(core::Store& store, Content& content);
// True if each line of such a text is one of the states'.
bool is_mixture_of_lines(std::span<const std::byte> found, const std::vector<std::span<const std::byte>>& states);

}  // namespace memlith::lab
