// Clients of an application log that several processes have open, beside its keeper, under the laboratory's scheduler:
// every order of their steps within a bound of preemptions, with the death of a client at each step. docs/testing.md,
// "Schedules".
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "in_schedule.hpp"
#include "processes/asks.hpp"
#include "processes/kept_logs.hpp"
#include "processes/log_client.hpp"

namespace memlith::test::log_exploration_test {
namespace {

using namespace core;
using core::processes::KeptLogs;
using core::processes::LogClient;
using lab::Explored;
using lab::Scheduler;

constexpr std::uint64_t kRingBytes = kPageBytes;  // four entries fill it
constexpr std::uint64_t kMostBytes = 4 * kPageBytes;
constexpr std::size_t kEntryBytes = 900;

std::string text_of(const std::string& name) { return name + std::string(kEntryBytes - name.size(), name.back()); }
// Nothing: it is no such text.
std::optional<std::string> name_in(LogClient::Content content) {
  const std::string text(reinterpret_cast<const char*>(content.data()), content.size());
  const std::string name = text.substr(0, text.find(' ') + 2);
  return text.find(' ') != std::string::npos && text == text_of(name) ? std::optional(name) : std::nullopt;
}

shared::Request open_request() {
  shared::Request request = processes::request_for(processes::LogAsk::open);
  std::memcpy(request.name.data(), "log", 3);
  request.creates = processes::kCreate;
  request.tx = kPageBytes + kRingBytes;
  request.bytes = kPageBytes + kMostBytes;
  return request;
}

// A store whose log is full of four entries, as it is before each schedule.
const SimImage& prepared() {
  static const SimImage image = [] {
    SimVolume volume;
    auto session = open_simulated(volume);
    {
      KeptLogs kept(*session);
      shared::Answer answer;
      EXPECT_TRUE(kept.open(1, open_request(), answer).ok()) << last_error_text();
      for (const char* const name : {"old 1", "old 2", "old 3", "old 4"}) {
        const std::uint64_t bytes = kEntryBytes;
        shared::Request request = processes::request_for(processes::LogAsk::append);
        request.bytes = 1;
        const std::string payload(reinterpret_cast<const char*>(&bytes), sizeof bytes);
        EXPECT_TRUE(kept.serve(1, request, payload + text_of(name), answer).ok()) << last_error_text();
      }
    }
    EXPECT_TRUE(Session::close(std::move(session)).ok());
    return volume.image();
  }();
  return image;
}

class Case : KeptCase<KeptLogs, LogClient> {
 public:
  Case(Scheduler& scheduler, applog::WhenFull when_full) : KeptCase(scheduler, prepared()), when_full_(when_full) {}

  using Act = void (*)(Case&, LogClient&);
  // The first client may die.
  std::string run(Act first, Act second) {
    return KeptCase::run(
        open_request(), [this](shared::Joined joined) { return LogClient::join("log", when_full_, std::move(joined)); },
        [] {}, [&] { first(*this, client(0)); }, [&] { second(*this, client(1)); }, [this] { return judge(); });
  }

  // ---- acts

  void append(LogClient& log, const std::string& name) {
    const std::string text = text_of(name);
    const LogClient::Content content = std::as_bytes(std::span(text));
    if (!told(log.append({&content, 1}).status()) || !told(log.write().status())) return;
    acknowledged_.insert(name);
  }
  // The next entries are whole, and come in their order: those of before, and those that took the place of such.
  void read(LogClient& log, int entries) {
    LogClient::Entry entry;
    std::uint64_t old_before = 0;
    std::uint64_t new_before = 0;
    for (; entries > 0; --entries) {
      const auto any = log.read(0, entry);
      if (!told(any.status()) || !*any) return;
      const auto name = name_in(entry.content);
      if (!name.has_value()) return complain("an entry is not whole");
      const bool is_old = name->starts_with("old ");
      if (is_old && *name != "old " + std::to_string(entry.number)) return complain("an entry has another number");
      if (is_old && new_before != 0) return complain("an entry is read that was dropped before");
      std::uint64_t& before = is_old ? old_before : new_before;
      if (entry.number <= before) return complain("an entry is read again");
      before = entry.number;
    }
  }
  void read_one_by_number(LogClient& log, std::uint64_t number) {
    std::vector<std::byte> content;
    const auto any = log.read_at(number, content);
    if (told(any.status()) && *any && !name_in(content).has_value()) complain("an entry is not whole");
  }
  void consume(LogClient& log, std::uint64_t first) { told(log.truncate_before(first)); }
  void cut(LogClient& log, std::uint64_t last) { told(log.truncate_after(last)); }
  void restart(LogClient& log, std::uint64_t next) { told(log.restart(next)); }

 private:
  std::string judge() {
    LogClient& other = client(1);
    const auto report = other.info();
    if (!told(report.status())) return wrong();
    std::set<std::string> there;
    std::uint64_t number = report->consumed;
    LogClient::Entry entry;
    for (other.rewind();;) {
      const auto any = other.read(0, entry);
      if (!told(any.status())) return wrong();
      if (!*any) break;
      const auto name = name_in(entry.content);
      if (entry.number != ++number || !name.has_value()) return "what is left is no log";
      if (!there.insert(*name).second) return "an entry is there twice";
    }
    for (const std::string& each : acknowledged_) {
      if (!there.contains(each)) return "an acknowledged entry is gone";
    }
    // And the log goes on.
    consume(other, number);
    append(other, "last 1");
    return wrong();
  }

  const applog::WhenFull when_full_;
  std::set<std::string> acknowledged_;
};

// The consumer's client writes over what it has consumed.
void consume_and_append(Case& all, LogClient& log) {
  all.consume(log, 3);
  all.append(log, "new 1");
}
void cut_and_append(Case& all, LogClient& log) {
  all.cut(log, 1);
  all.append(log, "new 1");
}
void restart_and_append(Case& all, LogClient& log) {
  all.restart(log, 3);
  all.append(log, "new 1");
}
void append_one(Case& all, LogClient& log) { all.append(log, "new 1"); }
void read_some(Case& all, LogClient& log) { all.read(log, 3); }
void read_and_append(Case& all, LogClient& log) {
  all.read(log, 2);
  all.append(log, "another 1");
}
void read_third(Case& all, LogClient& log) { all.read_one_by_number(log, 3); }
void read_first(Case& all, LogClient& log) { all.read_one_by_number(log, 1); }
// Reads what is there, and waits for the next entry.
void wait_for_entry(Case& all, LogClient& log) {
  all.read(log, 4);
  LogClient::Entry entry;
  (void)log.read(10, entry);
}

struct Planned {
  const char* name;
  Case::Act first;
  Case::Act second;
  applog::WhenFull when_full = applog::WhenFull::fail;
  Mutant mutant = Mutant::none;
};
std::string name_of(const testing::TestParamInfo<Planned>& each) { return each.param.name; }

class LogSchedules : public testing::TestWithParam<Planned> {
 protected:
  static Explored explore() {
    (void)prepared();
    const WithMutant with(GetParam().mutant);
    const auto act = [](Scheduler& scheduler) {
      return Case(scheduler, GetParam().when_full).run(GetParam().first, GetParam().second);
    };
    return lab::explore(act, 1, 100'000);
  }
};

TEST_P(LogSchedules, LeaveWholeEntriesWhereverAClientDies) {
  if (MEMLITH_LAB_FIBERS == 0) GTEST_SKIP() << "no death of a task with a sanitizer";
  const Explored explored = explore();
  EXPECT_EQ(explored.wrong, "");
  EXPECT_TRUE(explored.complete);
  EXPECT_GT(explored.deaths, 10u);
  std::printf("schedules: %lu, with a death %lu\n", explored.schedules, explored.deaths);
}
INSTANTIATE_TEST_SUITE_P(Of, LogSchedules,
                         testing::Values(Planned{"Consuming", consume_and_append, read_some},
                                         Planned{"ConsumingBesideGet", consume_and_append, read_third},
                                         Planned{"ConsumingBesideAWait", consume_and_append, wait_for_entry},
                                         Planned{"Cutting", cut_and_append, read_some},
                                         Planned{"Restarting", restart_and_append, read_some},
                                         Planned{"Growing", append_one, read_and_append, applog::WhenFull::grow}),
                         name_of);

class LogScheduleMutants : public LogSchedules {};

TEST_P(LogScheduleMutants, AreShown) {
  if (MEMLITH_LAB_FIBERS == 0) GTEST_SKIP() << "no death of a task with a sanitizer";
  EXPECT_NE(explore().wrong, "");
}
INSTANTIATE_TEST_SUITE_P(Of, LogScheduleMutants,
                         testing::Values(Planned{"NotConfirmed", consume_and_append, read_first, applog::WhenFull::fail,
                                                 Mutant::applog_not_confirmed},
                                         Planned{"ConsumedNotShown", consume_and_append, read_some,
                                                 applog::WhenFull::fail, Mutant::applog_consumed_not_shown},
                                         Planned{"ChangesNotShown", cut_and_append, read_some, applog::WhenFull::fail,
                                                 Mutant::applog_changes_not_shown}),
                         name_of);

}  // namespace
}  // namespace memlith::test::log_exploration_test
