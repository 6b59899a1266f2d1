#include "registry.hpp"

#include <chrono>
#include <thread>

#include "give_back.hpp"
#include "names.hpp"

namespace memlith_rocksdb {

namespace {
constexpr auto kPatience = std::chrono::seconds(60);
constexpr auto kPause = std::chrono::milliseconds(10);
}  // namespace

Registry& Registry::of_process() {
  static Registry* const registry = new Registry;  // threads of the program may outlive main()
  return *registry;
}

Result<void> Registry::give_back_unless_busy(const std::string& folder, As as) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    const Result<GivenBack> given = give_back(folder);
    if (given) return {};
    if (given.error().category() != MEMLITH_BUSY) return given.error();
    if (as == As::reader) return {};
    if (std::chrono::steady_clock::now() > deadline) return given.error();
    std::this_thread::sleep_for(kPause);
  }
}

Result<void> Registry::attend(const std::string& folder, As as) {
  if (!is_there(memlith_folder(folder))) return {};
  const Result<std::string> real = real_folder(folder);
  if (!real) return real.error();
  const std::lock_guard lock(mutex_);
  return open_.contains(*real) ? Result<void>() : give_back_unless_busy(*real, as);
}

Result<std::shared_ptr<Journal>> Registry::begin_writer(const std::string& folder, const RocksdbOptions& options) {
  const Result<std::string> real = real_folder(folder);
  if (!real) return real.error();
  const std::lock_guard lock(mutex_);
  if (const auto found = open_.find(*real); found != open_.end()) {
    ++found->second.writers;
    return found->second.journal;
  }
  if (Result<void> attended = give_back_unless_busy(*real, As::writer); !attended) return attended.error();
  Result<std::shared_ptr<Journal>> journal = Journal::open(*real, options);
  if (!journal) return journal.error();
  open_[*real] = {*journal, 1};
  return *journal;
}

Result<void> Registry::end_writer(const std::string& folder) {
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(folder);
  if (found == open_.end() || --found->second.writers > 0) return {};
  const std::shared_ptr<Journal> journal = std::move(found->second.journal);
  open_.erase(found);
  // Left as by a crash, if the disk does not play along: the next opening recovers.
  if (Result<void> finished = journal->finish(); !finished) return finished;
  return give_back_unless_busy(folder, As::writer);
}

std::shared_ptr<Journal> Registry::find(const std::string& folder) {
  const Result<std::string> real = real_folder(folder);
  if (!real) return nullptr;
  const std::lock_guard lock(mutex_);
  const auto found = open_.find(*real);
  return found == open_.end() ? nullptr : found->second.journal;
}

}  // namespace memlith_rocksdb
