#include "kv/free_runs.hpp"

namespace memlith::core::kv {

bool FreeRuns::add_read(std::uint32_t pages, PageNumber next, Stamp freed) {
  MEMLITH_ASSERT(unread_ != 0 && pages > 0);
  const PageNumber page = unread_;
  const auto behind = runs_.lower_bound(page);
  if (behind != runs_.end() && behind->first < std::uint64_t{page} + pages) return false;
  if (behind != runs_.begin()) {
    const auto& [first, run] = *std::prev(behind);
    if (std::uint64_t{first} + run.pages > page) return false;
  }
  const Run run{pages, last_read_, next, freed};
  runs_.emplace_hint(behind, page, run);
  pages_ += pages;
  unread_ = next;
  last_read_ = page;
  if (freed <= oldest_) {
    make_usable(page, run);
  } else {
    waiting_.emplace(freed, page);
  }
  return true;
}

void FreeRuns::add_first(PageNumber page, std::uint32_t pages, Stamp freed) {
  const auto [at, is_new] = runs_.emplace(page, Run{pages, 0, head_, freed});
  MEMLITH_ASSERT(is_new && pages > 0);
  waiting_.emplace(freed, page);
  pages_ += pages;
  if (head_ == unread_) {
    last_read_ = page;
  } else {
    runs_.at(head_).before = page;
  }
  head_ = page;
}

void FreeRuns::remove(PageNumber page) {
  const auto at = runs_.find(page);
  MEMLITH_ASSERT(at != runs_.end());
  const Run run = at->second;
  if (usable_.erase({run.pages, page}) != 0) usable_pages_ -= run.pages;
  waiting_.erase({run.freed, page});
  pages_ -= run.pages;
  if (run.before != 0) runs_.at(run.before).next = run.next;
  if (head_ == page) head_ = run.next;
  if (run.next != unread_) runs_.at(run.next).before = run.before;
  if (last_read_ == page) last_read_ = run.before;
  runs_.erase(at);
}

void FreeRuns::resize(PageNumber page, std::uint32_t pages) {
  Run& run = runs_.at(page);
  const auto erased = usable_.erase({run.pages, page});
  MEMLITH_ASSERT(erased == 1 && pages > 0);
  usable_pages_ -= run.pages;
  pages_ = pages_ - run.pages + pages;
  run.pages = pages;
  make_usable(page, run);
}

void FreeRuns::use_up_to(Stamp oldest) {
  oldest_ = oldest;
  while (!waiting_.empty() && waiting_.begin()->first <= oldest) {
    const PageNumber page = waiting_.begin()->second;
    waiting_.erase(waiting_.begin());
    make_usable(page, runs_.at(page));
  }
}

std::optional<PageNumber> FreeRuns::fitting(std::uint64_t pages) const {
  if (pages > ~std::uint32_t{0}) return std::nullopt;
  const auto found = usable_.lower_bound({static_cast<std::uint32_t>(pages), 0});
  return found != usable_.end() ? std::optional(found->second) : std::nullopt;
}

std::optional<PageNumber> FreeRuns::next_pair() {
  while (!pairs_.empty()) {
    const PageNumber page = *pairs_.begin();
    pairs_.erase(pairs_.begin());
    const auto left = runs_.find(page);
    if (left == runs_.end() || !is_usable(page, left->second)) continue;
    const auto right = std::next(left);
    if (right == runs_.end() || right->first != std::uint64_t{page} + left->second.pages) continue;
    if (is_usable(right->first, right->second)) return page;
  }
  return std::nullopt;
}

void FreeRuns::make_usable(PageNumber page, const Run& run) {
  usable_.emplace(run.pages, page);
  usable_pages_ += run.pages;
  const auto at = runs_.find(page);
  if (std::next(at) != runs_.end() && std::next(at)->first == std::uint64_t{page} + run.pages) pairs_.insert(page);
  if (at == runs_.begin()) return;
  const auto& [first, before] = *std::prev(at);
  if (std::uint64_t{first} + before.pages == page) pairs_.insert(first);
}

}  // namespace memlith::core::kv
