// docs/several-processes.md, "Promises": a client of an application log that several processes have open is killed at
// every step that it makes on what they share, and so is the keeper. Others go on, every append is whole, and what was
// acknowledged is there. Mistakes in the keeper and in a client are noticed.
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "processes/kept_logs.hpp"
#include "processes/log_client.hpp"
#include "world.hpp"

namespace memlith::test::log_death_test {
namespace {

using core::Errc;
using core::applog::WhenFull;
using core::processes::LogClient;

constexpr int kSteps = 4000;  // more than there are
constexpr std::uint64_t kRingBytes = core::kPageBytes;

template <class T>
T must(core::Result<T> result) {
  if (!result.ok()) std::abort();
  return std::move(*result);
}

std::string text_of(std::uint64_t number) {
  return std::to_string(number) + ":" + std::string(number * 37 % 401, static_cast<char>('a' + number % 26));
}

// The text of entry n is text_of(n), as all appends here tell their number beforehand.
bool is_entry(const LogClient::Entry& entry) {
  const std::string text = text_of(entry.number);
  return std::string_view(reinterpret_cast<const char*>(entry.content.data()), entry.content.size()) == text;
}

class LogWorld : public SharedWorld {
 protected:
  [[nodiscard]] Child start_log_keeper(bool steps = false, Mutant mutant = Mutant::none) const {
    return start_keeper(steps, mutant,
                        [](core::Session& session) { return std::make_unique<core::processes::KeptLogs>(session); });
  }
  [[nodiscard]] core::Result<std::unique_ptr<LogClient>> open_log(WhenFull when_full = WhenFull::block) const {
    core::processes::LogClientOptions options;
    options.path = path();
    options.name = "log";
    options.create = true;
    options.size_bytes = core::kPageBytes + kRingBytes;
    options.reserve_bytes = core::kPageBytes + 64 * kRingBytes;
    options.when_full = when_full;
    options.program = "/nowhere";  // the test starts keepers
    return LogClient::open(options);
  }
  void TearDown() override { core::active_mutant = Mutant::none; }
};

class LogDeath : public LogWorld {};

// The next entry, durable. Its number, or 0: the keeper has ended.
std::uint64_t append(LogClient& log) {
  const auto report = log.info();
  if (!report.ok()) return 0;
  const std::string text = text_of(report->newest + 1);
  const LogClient::Content content = std::as_bytes(std::span(text));
  const auto number = log.append({&content, 1});
  return number.ok() && log.write().ok() ? *number : 0;
}

// False: the keeper has ended, or what is read is no entry.
bool read_all(LogClient& log) {
  LogClient::Entry entry;
  for (;;) {
    const auto any = log.read(0, entry);
    if (!any.ok() || !*any) return any.ok();
    if (!is_entry(entry)) return false;
  }
}

// Reads, appends, consumes what is older, and appends again, over that.
void live(LogClient& log) {
  if (!read_all(log)) return;
  for (int i = 0; i < 2; ++i) {
    const std::uint64_t number = append(log);
    if (number == 0) return;
    told->acknowledged[0] = number;
    LogClient::Entry entry;
    if (!log.read(0, entry).ok()) return;
    if (number > 3) (void)log.consume(number - 3);
  }
}

TEST_F(LogDeath, OfAClientAtEveryStep) {
  Child keeper = start_log_keeper();
  const auto other = must(open_log());
  ASSERT_NE(append(*other), 0U) << core::last_error_text();
  int deaths = 0;
  for (int at = 1; at < kSteps; ++at) {
    told->steps = 0;
    told->die_at = static_cast<std::uint64_t>(at);
    Child client([&] {
      core::shm::observer = step;
      const auto own = open_log();
      if (!own.ok()) ::_exit(20);
      live(**own);
    });
    const int status = client.wait();
    ASSERT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << "step " << at << ": " << WEXITSTATUS(status);
    ASSERT_TRUE(read_all(*other)) << "after a death at step " << at << ": " << core::last_error_text();
    const std::uint64_t number = append(*other);
    ASSERT_GT(number, told->acknowledged[0]) << "after a death at step " << at;
    ASSERT_TRUE(read_all(*other)) << core::last_error_text();
    // The dead leave what they have appended, and appends wait for room.
    ASSERT_TRUE(number <= 3 || other->consume(number - 3).ok()) << core::last_error_text();
    if (!WIFSIGNALED(status)) break;
    ++deaths;
  }
  std::printf("%d deaths\n", deaths);
  EXPECT_GT(deaths, 20);
}

// Beside one client that appends, another one reads without end, so also in the middle of a change.
TEST_F(LogDeath, OfTheKeeperAtEveryStep) {
  int deaths = 0;
  std::uint64_t newest = 0;
  for (int at = 1; at < kSteps; ++at) {
    told->steps = 0;
    told->stage = 0;
    told->acknowledged[0] = newest;
    told->die_at = static_cast<std::uint64_t>(at);
    Child keeper = start_log_keeper(true);
    Child reader([&] {
      const auto own = open_log();
      if (!own.ok()) ::_exit(0);
      LogClient::Entry entry;
      for (;;) {
        const auto any = (*own)->read(1, entry);
        if (!any.ok() && any.error().category == Errc::corrupt) ::_exit(21);
        if (!any.ok()) ::_exit(0);
        if (*any && !is_entry(entry)) ::_exit(22);
        if (!*any) (*own)->rewind();
      }
    });
    Child client([&] {
      const auto own = open_log();
      if (!own.ok()) ::_exit(0);
      live(**own);
      told->stage = 1;
    });
    EXPECT_EQ(client.wait(), 0);
    const bool is_last = told->stage == 1 && told->steps < static_cast<std::uint64_t>(at);
    keeper.kill();
    ASSERT_EQ(reader.wait(), 0) << "a reader found what is no entry, at step " << at;
    told->die_at = 0;
    keeper = start_log_keeper();
    const auto opened = open_log();
    ASSERT_TRUE(opened.ok()) << "after a death at step " << at << ": " << core::last_error_text();
    const auto report = (*opened)->info();
    ASSERT_TRUE(report.ok()) << core::last_error_text();
    ASSERT_GE(report->durable, told->acknowledged[0]) << "after a death at step " << at;
    ASSERT_LE(report->durable, newest + 2);
    ASSERT_TRUE(read_all(**opened)) << "after a death at step " << at << ": " << core::last_error_text();
    newest = report->durable;
    const bool is_freed = newest <= 3 || ((*opened)->consume(newest - 3).ok() && (*opened)->write().ok());
    ASSERT_TRUE(is_freed) << core::last_error_text();
    if (is_last) break;
    ++deaths;
  }
  std::printf("%d deaths\n", deaths);
  EXPECT_GT(deaths, 20);
}

// Appenders that wait for room, and a reader that waits for an entry, die in their waits. Others wait and go on.
TEST_F(LogDeath, OfThoseThatWait) {
  Child keeper = start_log_keeper();
  const auto other = must(open_log(WhenFull::fail));
  const std::string large(1000, 'x');
  const LogClient::Content content = std::as_bytes(std::span(large));
  const auto wait_in_child = [&](bool for_room) {
    told->stage = 0;
    Child client([&] {
      const auto own = or_leave(open_log(), 20);
      told->stage = 1;
      LogClient::Entry entry;
      if (for_room) {
        (void)own->append({&content, 1});
      } else {
        while (!or_leave(own->read(1000, entry), 21)) {
        }
      }
      told->stage = 2;
    });
    await_stage(1);
    ::usleep(20'000);
    EXPECT_EQ(told->stage, 1U) << "it did not wait";
    return client;
  };
  for (int i = 0; i < 3; ++i) wait_in_child(false).kill();
  Child reader = wait_in_child(false);
  while (other->append({&content, 1}).ok()) {
  }
  ASSERT_TRUE(other->write().ok()) << core::last_error_text();
  EXPECT_EQ(reader.wait(), 0);
  for (int i = 0; i < 3; ++i) wait_in_child(true).kill();
  Child appender = wait_in_child(true);
  LogClient::Entry entry;
  ASSERT_TRUE(must(other->read(0, entry)));
  const std::uint64_t before = must(other->info()).newest;
  ASSERT_TRUE(other->consume(entry.number).ok());
  EXPECT_EQ(appender.wait(), 0);
  EXPECT_EQ(must(other->info()).newest, before + 1);
}

// ---- mutants: what the tests above rest on notices each

class LogMutants : public LogWorld {};

TEST_F(LogMutants, AnAnswerBeforeTheFlushIsNoticed) {
  for (const Mutant mutant : {Mutant::none, Mutant::answer_before_durable}) {
    Child keeper = start_log_keeper(false, mutant);
    std::uint64_t acknowledged = 0;
    {
      const auto client = must(open_log());
      acknowledged = append(*client);
      ASSERT_NE(acknowledged, 0U) << core::last_error_text();
      keeper.kill();
    }
    keeper = start_log_keeper();
    const auto client = must(open_log());
    EXPECT_EQ(must(client->info()).durable >= acknowledged, mutant == Mutant::none);
  }
}

}  // namespace
}  // namespace memlith::test::log_death_test
