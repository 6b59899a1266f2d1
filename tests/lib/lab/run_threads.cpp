// The words of a run about threads that meet in the middle of a commit's I/O.
#include <fmt/format.h>

#include <utility>

#include "base/sync.hpp"
#include "run.hpp"

namespace memlith::lab {

using namespace core;

namespace {
// Runs `act` at the first call of the hook.
std::function<void()> once(std::function<void()> act) {
  return [done = false, act = std::move(act)]() mutable {
    if (!std::exchange(done, true)) act();
  };
}
}  // namespace

void Run::commit_with_checkpoint_inside(const Write& write) {
  if (store == nullptr || possible({write}, 0).empty()) return;
  // With room in the log: otherwise the commit would run a checkpoint itself, and the inner commit would wait for it
  // forever.
  if (store->log().used_bytes() > store->log().capacity_bytes() / 2) checkpoint();
  Status inner = kOk;
  volume.after_write = once([&] { inner = store->checkpoint(); });
  commit({write});
  volume.after_write = nullptr;
  if (!inner.ok() && fired() == 0) broken(fmt::format("a checkpoint during a commit failed: {}", last_error_text()));
  (void)is_poisoned();
}

void Run::commit_with_forgotten_trim_inside(const Write& write) {
  if (store == nullptr || fired() > 0) return;
  volume.faults().plan(SimFaults::Kind::forget_flush,
                       2);  // those of the homes, the directory and an object, come first
  commit_with_checkpoint_inside(write);
}

void Run::two_batches_crosswise(const Write& first, const Write& second) {
  if (store == nullptr || possible({first, second}, 0).size() != 2) return;
  region_content.erase(first.object);
  region_content.erase(second.object);
  const std::uint64_t group = ++groups;
  const std::uint64_t fill_first = fill_of(part_++);
  const std::uint64_t fill_second = fill_of(part_++);
  const std::size_t one =
      history.started(text_of_commit({first}, 0), change_of_commit({first}, fill_first, 0), now(), group);
  const std::size_t two =
      history.started(text_of_commit({second}, 0), change_of_commit({second}, fill_second, 0), now(), group);
  Status second_status = kOk;
  bool second_begun = false;
  Thread other;
  const std::uint64_t before = fired();
  const auto end = append({first}, fill_first, 0, one);
  Status status = end.status();
  if (end.ok()) {
    // While this thread is about to write the first batch, another writes and flushes the second.
    volume.before_transfer = once([&] {
      other = Thread([&] {
        second_begun = true;
        const auto second_end = append({second}, fill_second, 0, two);
        second_status = second_end.status();
        if (second_end.ok()) {
          second_status = store->sync(*second_end);
          if (second_status.ok()) history.acknowledged(two, now());
        }
      });
      scheduler->let_others_run();
    });
    status = store->sync(*end);
    if (status.ok()) history.acknowledged(one, now());
  }
  if (other.joinable()) other.join();
  volume.before_transfer = nullptr;
  (void)passed(status, "commit", before);
  if (second_begun) (void)passed(second_status, "commit", before);
  if (!second_begun) history.cancelled(two);
}

void Run::threads(const std::vector<std::string>& objects, std::size_t commits_each) {
  if (store == nullptr) return;
  const std::uint64_t group = ++groups;
  bool failed = false;
  std::vector<Thread> threads;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    if (!info_of(objects[i]).has_value()) continue;
    region_content.erase(objects[i]);
    threads.emplace_back([&, i] {
      for (std::size_t n = 0; n < commits_each; ++n) {
        const Write write{objects[i], n * 100, 300};
        const std::uint64_t fill = fill_of(i * commits_each + n);
        const std::size_t commit =
            history.started(text_of_commit({write}, 0), change_of_commit({write}, fill, 0), now(), group);
        const auto end = append({write}, fill, 0, commit);
        if (!end.ok()) {
          failed = true;
          if (!store->log().poisoned()) history.cancelled(commit);
          return;
        }
        if (!store->sync(*end).ok()) {
          failed = true;
          return;
        }
        history.acknowledged(commit, now());
      }
    });
  }
  for (Thread& thread : threads) thread.join();
  if (failed && fired() == 0) broken("a commit of several threads failed although nothing had");
  (void)is_poisoned();
}

}  // namespace memlith::lab
