// Transactions of mapped regions.
#include <fmt/format.h>

#include <cstring>

#include "region/transaction.hpp"
#include "run.hpp"

namespace memlith::lab {

using namespace core;

namespace {

void put(std::vector<std::byte>& target, std::uint64_t offset, const std::vector<std::byte>& bytes) {
  std::memcpy(target.data() + offset, bytes.data(), bytes.size());
}

}  // namespace

// All writes lie in mapped regions, of which at most one has grown since it was captured.
bool Run::can_write(const std::vector<Write>& writes) const {
  if (store_ == nullptr) return false;
  std::map<std::string, bool> grown;
  for (const Write& write : writes) {
    const auto found = regions_.find(write.object);
    if (found == regions_.end() || write.offset + write.bytes > found->second.region->size()) return false;
    if (found->second.captured.size() < found->second.expected.size()) grown[write.object] = true;
  }
  return grown.size() <= 1;
}

void Run::check_memory(const std::vector<Write>& writes, std::string_view when) {
  for (const Write& write : writes) {
    const Memory& memory = regions_.at(write.object);
    if (std::memcmp(memory.region->address(), memory.expected.data(), memory.expected.size()) != 0) {
      broken(fmt::format("{}, region {} has other bytes than it must have", when, write.object));
    }
  }
}

// `captured` is what the commit makes of the regions, `expected` what their memory is then.
bool Run::commit_transaction(std::string_view text, const Contents& captured, const Contents& expected, bool wait,
                             const std::function<Result<Lsn>()>& capture) {
  std::optional<std::size_t> growth;
  for (const auto& [name, bytes] : captured) {
    if (regions_.at(name).captured.size() == bytes.size()) continue;
    growth = history.started(
        "commit the new size of " + name,
        [name = name, size = bytes.size()](Content& content) { content.objects[name].resize(size); }, now());
  }
  const std::size_t commit = history.started(
      std::string(text),
      [captured](Content& content) {
        for (const auto& [name, bytes] : captured) content.objects[name] = bytes;
      },
      now());
  const std::uint64_t before = fired();
  const Lsn head = store_->log().head();
  const auto end = capture();
  Status status = end.status();
  if (end.ok() && wait) status = store_->sync(*end);
  const bool ok = status.category == Errc::full ? false : passed(status, text, before);
  if (growth.has_value()) {
    const bool written = ok || store_->log().head() != head;
    settle(*growth, written && store_->sync(store_->log().head()).ok());
    if (!ok && written) {
      for (const auto& [name, bytes] : captured) regions_.at(name).captured.resize(bytes.size());
    }
  }
  if (wait || !ok) settle(commit, ok);
  if (!ok) return false;
  if (!wait) soon_.emplace_back(commit, *end);
  for (const auto& [name, bytes] : captured) region_content_[name] = regions_.at(name).captured = bytes;
  for (const auto& [name, bytes] : expected) regions_.at(name).expected = bytes;
  return true;
}

void Run::transaction(const std::vector<Write>& writes, Ending ending, const std::vector<std::string>& persisted) {
  if (!can_write(writes)) return;
  Transaction transaction(*store_);
  std::vector<std::pair<Write, std::vector<std::byte>>> done;
  for (const Write& write : writes) {
    Region& region = *regions_.at(write.object).region;
    const std::uint64_t middle = write.bytes / 2;
    const std::uint64_t rest = write.bytes / 4;
    // The parts overlap, so that an abort has two images of some bytes.
    for (const Write& part : {Write{write.object, write.offset, write.bytes - rest},
                              Write{write.object, write.offset + middle, write.bytes - middle}}) {
      if (!transaction.touch_before(region, region.address() + part.offset, part.bytes).ok()) broken("touch_before");
      done.emplace_back(part, bytes_of(fill_of(part_++), part));
      std::memcpy(region.address() + part.offset, done.back().second.data(), part.bytes);
    }
  }
  for (const std::string& name : persisted) persist({name});
  Contents captured;
  Contents expected;
  for (const auto& [write, bytes] : done) {
    const Memory& memory = regions_.at(write.object);
    std::vector<std::byte>& capture = captured.try_emplace(write.object, memory.captured).first->second;
    std::vector<std::byte>& expect = expected.try_emplace(write.object, memory.expected).first->second;
    capture.resize(expect.size());
    put(capture, write.offset, bytes);
    put(expect, write.offset, bytes);
  }
  const bool wait = ending == Ending::commit;
  const bool committed = ending != Ending::abort && commit_transaction("commit a transaction", captured, expected, wait,
                                                                       [&] { return transaction.capture(wait); });
  committed ? transaction.forget() : transaction.abort();
  check_memory(writes, committed ? "after a transaction" : "after an abort");
}

}  // namespace memlith::lab
