#include "run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "applog_life.hpp"
#include "heap_life.hpp"
#include "log/format.hpp"
#include "mutants/mutants.hpp"
#include "run_regions.hpp"
#include "workload_stores.hpp"

namespace memlith::lab {

using namespace core;

std::vector<std::byte> bytes_of(std::uint64_t fill, const Write& write) {
  std::vector<std::byte> bytes(write.bytes);
  for (std::uint64_t i = 0; i < write.bytes; ++i) {
    bytes[i] = static_cast<std::byte>(fill + (write.offset + i) * 7 + ((write.offset + i) >> 8));
  }
  return bytes;
}

// ---- recovery --------------------------------------------------------------------------------------------------

void hide_moment(std::vector<std::byte>& file) {
  if (file.size() < kInUseHeaderBytes) return;
  InUseHeader header;
  std::memcpy(&header, file.data(), sizeof header);
  if (header.kind == kStructureInUse) header = {};
  if (header.kind == stores::kCallerInUse) header.moment = kNoMoment;
  std::memcpy(file.data(), &header, sizeof header);
}

namespace {

// For a read-only store, the log's content is laid over the home files.
Result<std::vector<std::byte>> read_object(Store& store, const ObjectInfo& object) {
  MEMLITH_TRY_ASSIGN(std::vector<std::byte> bytes, store.read_home(object.id));
  MEMLITH_TRY(store.overlay().for_each(object.id, [&](std::uint64_t offset, std::span<const std::byte> piece) {
    if (offset < bytes.size()) {
      std::memcpy(bytes.data() + offset, piece.data(), std::min<std::uint64_t>(piece.size(), bytes.size() - offset));
    }
    return kOk;
  }));
  hide_moment(bytes);
  return bytes;
}

}  // namespace

// Homes carry no checksums, so a bit that flips in a read of a home cannot be noticed. A checkpoint of a store with
// whole physical blocks reads the rest of each block that it writes, of the directory as well: a bit that flips there
// is CORRUPT from then on.
void flip_no_homes(SimVolume& volume, const StoreOptions& options) {
  const std::string folder = volume.path_of("objects/");
  const std::string directory = options.physical_block_bytes > 512 ? std::string() : volume.path_of("objects/0");
  const std::string file = options.kind == StoreKind::one_file ? volume.path_of(options.file_name) : std::string();
  // These have homes, too.
  const std::string device = volume.path_of(kSimDeviceName);
  const std::string name_space = volume.path_of(kSimNamespaceName);
  std::vector<std::string> beside = stores::files_beside(volume);
  for (std::string& name : beside) name = volume.path_of(name);
  volume.faults().flips_in = [=](std::string_view path) {
    if (std::find(beside.begin(), beside.end(), path) != beside.end()) return false;
    return path != file && path != device && path != name_space && (path == directory || !path.starts_with(folder));
  };
}

namespace {
Recovered recover_one(SimVolume& volume, const StoreOptions& options, bool read_only) {
  Recovered result;
  flip_no_homes(volume, options);
  StoreOptions reopen = options;
  reopen.create = false;
  reopen.read_only = read_only;
  reopen.manual_checkpoint = true;  // what comes back does not depend on it, and a thread costs more than the recovery
  const auto failed = [&](Status status) {
    result.status = status;
    result.error = last_error_text();
    return result;
  };
  StoreVolume under;
  auto store = Store::open(under.over(volume), reopen);
  if (!store.ok()) {
    if (store.error().category != Errc::not_found) return failed(store.error());
    result.ok = true;
    // No store yet; a one-file store's file must be what it was.
    if (options.kind == StoreKind::one_file) {
      const SimImage image = volume.image();
      if (const auto file = image.files.find(options.file_name); file != image.files.end() && !file->second->empty()) {
        result.content.objects["file"] = *file->second;
        hide_moment(result.content.objects["file"]);
      }
    }
    result.found = fingerprint(result.content);
    return result;
  }
  result.reads_of_open = volume.faults().seen(SimFaults::Kind::flip_bit);
  result.content.exists = true;
  for (const ObjectInfo& object : (*store)->objects()) {
    auto bytes = read_object(**store, object);
    if (!bytes.ok()) return failed(bytes.error());
    // A one-file store of an empty file that was not there before has nothing to show.
    result.content.objects[object.name] = std::move(*bytes);
  }
  if (!add_inventories(**store, result.content).ok() || !show_storeys(**store, result.content).ok()) {
    result.unsound = last_error_text();
  }
  result.ok = true;
  result.was_clean = (*store)->was_clean();
  result.replayed = (*store)->counters().replayed_commits;
  result.found = fingerprint(result.content);
  return result;
}
}  // namespace

// Where other files lie beside the first, in any order: the content says in which.
Recovered recover(SimVolume& volume, const StoreOptions& options, bool read_only) {
  std::vector<std::string> names = stores::files_beside(volume);
  if (names.empty()) return recover_one(volume, options, read_only);
  names.insert(names.begin(), options.file_name);
  std::uint64_t order = volume.image().hash();
  Recovered result;
  result.ok = result.was_clean = true;
  while (!names.empty()) {
    const auto next = names.begin() + static_cast<std::ptrdiff_t>(order % names.size());
    order /= names.size();
    StoreOptions of_file = options;
    of_file.file_name = *next;
    Recovered one = recover_one(volume, of_file, read_only);
    if (!one.ok) return one;
    const bool first = *next == options.file_name;
    if (first) result.content.exists = one.content.exists;
    for (auto& [object, bytes] : one.content.objects) result.content.objects[first ? object : *next] = std::move(bytes);
    result.was_clean = result.was_clean && one.was_clean;
    result.replayed += one.replayed;
    result.reads_of_open = one.reads_of_open;
    names.erase(next);
  }
  result.found = fingerprint(result.content);
  return result;
}

std::string look_wrong(const SimImage& image, const StoreOptions& options, const Recovered& recovered) {
  SimVolume volume(image, true);
  const Recovered seen = recover(volume, options, true);
  if (!seen.ok) return "opened read-only it says: " + seen.error;
  if (seen.found != recovered.found) {
    return "opened read-only it shows something else: " + describe_difference(recovered.content, seen.content);
  }
  const auto& records = volume.trace().records;
  const bool changed = std::any_of(records.begin(), records.end(), [](const auto& r) { return r.op != SimOp::flush; });
  if (changed) return "opened read-only it is changed: " + volume.trace().describe(kNever);
  return {};
}

void make_repeatable(SimVolume& volume) {
  // The holder note differs from run to run, and a crash state must not.
  volume.edit_write = [](std::string_view, std::uint64_t offset, std::span<std::byte> bytes) {
    constexpr std::string_view kNote = "process ";
    // On a raw device the log begins anywhere.
    if (offset % kPageBytes != 0 || bytes.size() < kNote.size()) return;
    if (std::memcmp(bytes.data(), kNote.data(), kNote.size()) != 0) return;
    std::memset(bytes.data() + kNote.size(), 0, bytes.size() - kNote.size());
  };
}

// ---- Run -------------------------------------------------------------------------------------------------------

Run::Run(StoreOptions options, SimImage start, Content before)
    : volume(std::move(start), true), history(before), options_(std::move(options)), created_(before.exists) {
  make_repeatable(volume);
}

Run::~Run() {
  drop_structures();
  volume.before_transfer = nullptr;
}

void Run::drop_structures() {
  structures_.clear();
  soon.clear();
}

void Run::perform(const std::vector<Step>& steps, const std::vector<std::size_t>& wanted, std::size_t from,
                  std::size_t until, bool again) {
  if (again) open();
  for (std::size_t i = from; i < std::min(until, steps.size()); ++i) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), i) == wanted.end()) continue;
    step_ = i;
    part_ = 0;
    step_marks_.emplace_back(now(), i);
    const bool redo = again && i == from && steps[i].again != nullptr;
    (redo ? steps[i].again : steps[i].act)(*this);
  }
  // Whatever state the last step left the store in, nothing runs on into the exploration.
  drop_structures();
  beside.clear();
  volume.before_transfer = nullptr;
  if (!store && created_ && fired() == 0) return;
  if (store && !poisoned && fired() == 0) {
    store = nullptr;
    return;
  }
  // Something failed: going on without a power cut must give an allowed state as well.
  store = nullptr;
  volume.faults().clear();
  if (flip_in_open_) return;
  const Unobserved looking;
  SimVolume copy(volume.image());
  const Recovered recovered = recover(copy, options_);
  if (!recovered.ok) {
    broken("after the failure, reopening without a power cut says: " + recovered.error);
  } else if (!history.resolve(recovered.found, now() + 1)) {
    broken("after the failure, reopening without a power cut shows no allowed state: " + describe(recovered.content));
  }
}

std::size_t Run::step_at(std::size_t operations) const {
  std::size_t result = step_marks_.empty() ? 0 : step_marks_.front().second;
  for (const auto& [began, step] : step_marks_) {
    if (began <= operations) result = step;
  }
  return result;
}

void Run::broken(std::string what) {
  if (broken_.size() < 3) broken_.push_back(fmt::format("step {}: {}", step_, what));
}

bool Run::passed(Status status, std::string_view what, std::uint64_t fired_before) {
  const std::uint64_t fired_now = fired();
  const std::uint64_t forgiven_before = std::exchange(forgiven, 0);
  (void)is_poisoned();
  if (status.ok()) {
    // Unless it was a call of another thread's.
    if (fired_now > fired_before + forgiven_before && !flipped() && options_.manual_checkpoint) {
      broken(fmt::format("{} returned ok although a call below it had failed", what));
    }
    return true;
  }
  if (fired_now == 0) broken(fmt::format("{} failed although nothing had: {}", what, last_error_text()));
  return false;
}

void Run::note_outcome(std::size_t commit, bool ok) {
  if (ok) {
    // One that was durable before the failure may still be told so.
    if (poisoned && commit >= poisoned_since_) broken("a commit was acknowledged by a poisoned store");
    history.acknowledged(commit, now());
  } else if (!is_poisoned()) {
    history.cancelled(commit);  // the call was refused, and the store continues
  }
  (void)is_poisoned();
}

bool Run::is_poisoned() {
  bool is = store != nullptr && store->log().poisoned();
  for (const auto& [name, other] : beside) is = is || other->log().poisoned();
  if (is) now_poisoned();
  return is;
}

void Run::now_poisoned() {
  if (!poisoned) poisoned_since_ = history.size();
  poisoned = true;
}

bool Run::capture(std::string text, Change change, std::string_view what, bool wait,
                  const std::function<Result<Lsn>()>& act) {
  const std::size_t commit = history.started(std::move(text), std::move(change), now());
  const std::uint64_t before = fired();
  const Lsn head = store->log().head();
  const auto end = act();
  if (end.ok() && !wait) soon.emplace_back(commit, *end);
  if (store->log().head() == head) history.wrote_nothing(commit);
  const bool ok = end.status().category != Errc::full && passed(end.status(), what, before);
  if (wait || !ok) note_outcome(commit, ok);
  return ok;
}

Result<Lsn> Run::durable(Result<Lsn> end, bool wait) {
  if (end.ok() && wait) MEMLITH_TRY(store->sync(*end));
  return end;
}

std::unique_ptr<Region> Run::open_region(const std::string& name, RegionOptions options, std::string_view what) {
  const auto there = info_of(name);
  const std::uint64_t size = options.size_bytes;
  if (!there.has_value() && size == 0) return nullptr;
  const bool sized = there.has_value() && !(options_.kind == StoreKind::one_file && there->size_bytes == 0 && size > 0);
  options.create = true;
  std::size_t commit = 0;
  if (!sized) {
    commit = history.started(
        fmt::format("create region {} of {} bytes", name, size),
        [name, size](Content& content) { content.objects[name].resize(size); }, now());
  }
  const std::uint64_t before = fired();
  auto region = Region::open(*store, name, options);
  const bool ok = passed(region.status(), what, before);
  if (!sized) note_outcome(commit, ok);
  if (ok && !sized) region_content[name].resize(size);
  return ok ? std::move(*region) : nullptr;
}

void Run::expect_persisted(const std::string& name, const std::vector<std::byte>& bytes, std::string what) {
  const auto known = region_content.find(name);
  if (known != region_content.end() && known->second != bytes && !flipped()) broken(std::move(what));
  region_content[name] = bytes;
}

std::vector<std::byte> Run::next_bytes(const Write& write) { return bytes_of(fill_of(part_++), write); }

std::optional<ObjectInfo> Run::info_of(const std::string& name) const {
  return store != nullptr ? store->find(name) : std::nullopt;
}

// ---- store -----------------------------------------------------------------------------------------------------

void Run::open() {
  if (store != nullptr) return;
  if (!created_ && !creation_.has_value()) {
    creation_ = history.started(
        "create the store",
        [one_file = options_.kind == StoreKind::one_file](Content& content) {
          content.exists = true;
          if (one_file) content.objects["file"];  // of no bytes if there was none
        },
        now());
  }
  const std::uint64_t before = fired();
  history.opened(now());
  auto opened = Store::open(store_volume_.over(volume), options_);
  flip_in_open_ = flip_in_open_ || (fired() > before && flipped());
  if (!passed(opened.status(), "open", before)) return;
  store = std::move(*opened);
  poisoned = false;
  if (!created_) history.acknowledged(*creation_, now());
  created_ = true;
  Content content;
  content.exists = true;
  region_content.clear();
  const std::uint64_t fired_by_open = fired();
  for (const ObjectInfo& object : store->objects()) {
    auto bytes = read_object(*store, object);
    if (!passed(bytes.status(), "reading an object", fired_by_open)) {
      store = nullptr;  // a store whose content is unknown must not be used
      return;
    }
    content.objects[object.name] = std::move(*bytes);
  }
  if (!passed(add_inventories(*store, content), "looking at a heap", fired_by_open)) {
    store = nullptr;
    return;
  }
  if (!passed(show_storeys(*store, content), "looking at a log and a kv store", fired_by_open)) {
    store = nullptr;
    return;
  }
  for (const std::string& name : stores::files_beside(volume)) {
    if (open_beside(name, content)) continue;
    beside.clear();
    store = nullptr;
    return;
  }
  if (fired() > fired_by_open) flip_in_open_ = true;  // what was read here is no measure of what is there
  if (!history.resolve(fingerprint(content), now()) && !flipped()) {
    broken("reopening without a power cut shows no allowed state: " + describe(content));
  }
  region_content = std::move(content.objects);
}

bool Run::open_beside(const std::string& name, Content& content) {
  StoreOptions options = options_;
  options.file_name = name;
  set_identity(kIdentity + static_cast<std::uint64_t>(name.back()));  // a new log is told from the others by it
  const std::uint64_t before = fired();
  auto opened = Store::open(volumes_beside_[name].over(volume), options);
  set_identity(kIdentity);
  flip_in_open_ = flip_in_open_ || (fired() > before && flipped());
  if (!passed(opened.status(), "open", before)) return false;
  const std::uint64_t before_reading = fired();
  auto bytes = read_object(**opened, (*opened)->objects().front());
  if (!passed(bytes.status(), "reading an object", before_reading)) return false;
  content.objects[name] = std::move(*bytes);
  beside[name] = std::move(*opened);
  return true;
}

void Run::close() {
  if (store == nullptr) return;
  drop_structures();
  const std::uint64_t before = fired();
  const Status status = store->close();
  const bool ok = passed(status, "close", before);
  if (ok && poisoned) broken("a poisoned store was closed in good order");
  store = nullptr;
  poisoned = false;
  if (ok) history.closed(now());
}

void Run::abandon() {
  drop_structures();
  beside.clear();
  store = nullptr;
  poisoned = false;
}

void Run::create(const std::string& name, std::uint64_t size) {
  if (store == nullptr || info_of(name).has_value()) return;
  const std::size_t commit = history.started(
      fmt::format("create {} of {} bytes", name, size), [name, size](Content& c) { c.objects[name].resize(size); },
      now());
  const std::uint64_t before = fired();
  note_outcome(commit, passed(store->create(name, size, kAddress, kReserve).status(), "create", before));
}

void Run::remove(const std::string& name) {
  const auto object = info_of(name);
  if (!object.has_value() || options_.kind == StoreKind::one_file) return;
  if (auto* const regions = find<Regions>()) regions->unmap(name);
  const std::size_t commit = history.started("remove " + name, [name](Content& c) { c.objects.erase(name); }, now());
  const std::uint64_t before = fired();
  const bool ok = passed(store->remove(object->id), "remove", before);
  // The entry may be gone although the checkpoint or the removal of the file behind it failed.
  if (!ok && !info_of(name).has_value()) {
    history.acknowledged(commit, now());
    if (store->log().poisoned()) now_poisoned();
    return;
  }
  note_outcome(commit, ok);
}

std::vector<Write> Run::possible(const std::vector<Write>& writes, std::uint64_t size) const {
  std::vector<Write> result;
  for (const Write& write : writes) {
    const auto object = info_of(write.object);
    if (!object.has_value()) continue;
    const std::uint64_t end = size > 0 && write.object == writes.front().object ? size : object->size_bytes;
    if (write.offset + write.bytes <= end) result.push_back(write);
  }
  return result;
}

// Everything of a commit but waiting for it. The history is told of its place.
Result<Lsn> Run::append(const std::vector<Write>& writes, std::uint64_t fill, std::uint64_t size, std::size_t commit) {
  std::vector<Extent> extents;
  std::vector<SizeChange> sizes;
  for (const Write& write : writes) extents.push_back({store->find(write.object)->id, write.offset, write.bytes});
  if (size > 0) {
    MEMLITH_TRY(store->reserve_home(extents.front().object, size));
    sizes.push_back({extents.front().object, size});
  }
  MEMLITH_TRY_ASSIGN(FrameWriter writer, store->begin_commit(extents, sizes));
  // Now, because one that fails may be in the log nevertheless.
  if (commit != kNever) history.placed(commit, writer.begin());
  for (std::size_t i = 0; i < writes.size(); ++i) {
    const std::vector<std::byte> bytes = bytes_of(fill + i * 57, writes[i]);
    writer.put(bytes.data(), bytes.size());
  }
  MEMLITH_TRY_ASSIGN(const Lsn end, writer.finish());
  store->wake_checkpointer(end);
  return end;
}

std::string text_of_commit(const std::vector<Write>& writes, std::uint64_t size) {
  std::string text = "commit";
  for (const Write& write : writes) {
    text += fmt::format(" {}[{}..{})", write.object, write.offset, write.offset + write.bytes);
  }
  if (size > 0) text += fmt::format(", {} becomes {} bytes long", writes.front().object, size);
  return text;
}

Change change_of_commit(std::vector<Write> writes, std::uint64_t fill, std::uint64_t size) {
  return [writes = std::move(writes), fill, size](Content& content) {
    if (size > 0) content.objects[writes.front().object].resize(size);
    for (std::size_t i = 0; i < writes.size(); ++i) {
      const std::vector<std::byte> bytes = bytes_of(fill + i * 57, writes[i]);
      auto& object = content.objects[writes[i].object];
      if (writes[i].offset + bytes.size() <= object.size()) {
        std::memcpy(object.data() + writes[i].offset, bytes.data(), bytes.size());
      }
    }
  };
}

void Run::commit(const std::vector<Write>& wanted, std::uint64_t size) {
  const auto first = info_of(wanted.front().object);
  const bool may_shrink = options_.kind == StoreKind::one_file;
  if (size > 0 && first.has_value() && (may_shrink ? first->size_bytes == size : first->size_bytes >= size)) size = 0;
  const std::vector<Write> writes = possible(wanted, size);
  if (writes.empty() || (size > 0 && writes.front().object != wanted.front().object)) return;
  for (const Write& write : writes) region_content.erase(write.object);
  const std::uint64_t fill = fill_of(part_++);
  const std::size_t commit = history.started(text_of_commit(writes, size), change_of_commit(writes, fill, size), now());
  const std::uint64_t before = fired();
  auto end = append(writes, fill, size);
  Status status = end.status();
  if (status.ok()) status = store->sync(*end);
  note_outcome(commit, passed(status, "commit", before));
}

void Run::resize_file(std::uint64_t size, const Write& write) {
  const auto file = info_of("file");
  if (!file.has_value()) return;
  std::vector<Write> writes;
  if (size > file->size_bytes) writes.push_back({"file", file->size_bytes, size - file->size_bytes});
  const std::uint64_t offset = std::min(write.offset, size - 1);
  writes.push_back({"file", offset, std::min(write.bytes, size - offset)});
  commit(writes, size);
}

void Run::fill_log_into(std::uint64_t segment, const std::string& object) {
  while (store != nullptr && info_of(object).has_value()) {
    const std::size_t commits = history.size();
    const LogGeometry& geometry = store->log().geometry();
    if (store->log().head().value > segment * geometry.segment_bytes()) return;
    commit({{object, 0, 900}});
    if (poisoned || history.size() == commits) return;
  }
}

void Run::commit_too_large(const std::string& object, std::uint64_t bytes) {
  const auto info = info_of(object);
  if (!info.has_value() || bytes > info->size_bytes) return;
  const std::uint64_t before = fired();
  const auto end = append({{object, 0, bytes}}, fill_of(part_++), 0);
  if (end.ok()) {
    broken(fmt::format("a commit of {} bytes should not have fitted the log", bytes));
  } else if (end.error().category != Errc::full && fired() == 0) {
    (void)passed(end.error(), "a commit that is too large", before);
  }
}

void Run::batch(const std::vector<std::vector<Write>>& commits, std::size_t until) {
  std::vector<std::pair<std::size_t, Lsn>> begun;
  for (const std::vector<Write>& wanted : commits) {
    const std::vector<Write> writes = possible(wanted, 0);
    if (writes.empty()) continue;
    for (const Write& write : writes) region_content.erase(write.object);
    const std::uint64_t fill = fill_of(part_++);
    const std::size_t commit = history.started(text_of_commit(writes, 0), change_of_commit(writes, fill, 0), now());
    const std::uint64_t before = fired();
    const auto end = append(writes, fill, 0);
    if (!passed(end.status(), "commit", before)) {
      note_outcome(commit, false);
      break;
    }
    begun.emplace_back(commit, *end);
  }
  if (begun.empty()) return;
  const std::size_t count = std::min(until, begun.size());
  const std::uint64_t before = fired();
  const bool ok = count == 0 || passed(store->sync(begun[count - 1].second), "sync", before);
  for (std::size_t i = 0; i < count; ++i) note_outcome(begun[i].first, ok);
}

void Run::wait() {
  if (soon.empty() || store == nullptr) return;
  const std::uint64_t before = fired();
  const bool ok = passed(store->sync(soon.back().second), "waiting for a persist", before);
  for (const auto& [commit, end] : soon) note_outcome(commit, ok);
  soon.clear();
}

void Run::close_and_remove_log() {
  drop_structures();
  // A power cut may bring the name of the log back, so the removal is never acknowledged by itself.
  (void)history.started("close and remove the log", [](Content& content) { content.exists = false; }, now());
  const std::uint64_t before = fired();
  const bool ok = passed(store->close_and_remove_log(), "close", before);
  if (ok && poisoned) broken("a poisoned store was closed in good order");
  store = nullptr;
  poisoned = false;
  creation_.reset();
  created_ = false;
}

void Run::make_holes() { volume.make_sparse(options_.file_name); }

void Run::check_holes() {
  if (store != nullptr && !poisoned && volume.sparse(options_.file_name)) {
    broken("the store is open, and its file has holes");
  }
}

void Run::checkpoints_that_fail() {
  if (store == nullptr || fired() > 0) return;
  volume.faults().done_nevertheless = true;
  volume.faults().plan(SimFaults::Kind::fail_write, 1);  // the home's is the first
  for (int i = 0; i < 4; ++i) checkpoint();
}

void Run::checkpoint() {
  if (store == nullptr) return;
  const std::uint64_t before = fired();
  const bool ok = passed(store->checkpoint(), "checkpoint", before);
  // After a checkpoint that failed nothing may be acknowledged, whatever the store thinks of itself.
  if (!ok && fired() > before) now_poisoned();
}

void Run::write_home() {
  if (store == nullptr) return;
  const std::uint64_t before = fired();
  const LogPosition tail = store->log().tail();
  const bool ok = passed(store->write_home(store->log().head()), "what brings homes up to date", before);
  if (!ok && fired() > before) now_poisoned();
  if (ok && store->log().tail() != tail) broken("homes were brought up to date, and the log has lost frames");
}

void Run::idle() {
  if (store == nullptr) return;
  const std::uint64_t before = fired();
  if (!passed(store->bring_home_while_idle(), "a checkpoint of the idle store", before) && fired() > before) {
    now_poisoned();
  }
}

}  // namespace memlith::lab
