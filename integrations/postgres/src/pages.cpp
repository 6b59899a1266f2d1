#include "pages.hpp"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "files.hpp"

namespace memlith_postgres {

namespace {

constexpr std::size_t kChangeBytesMax = kPageBytes / 2;  // of more, the whole page is logged

std::uint32_t bucket_of_page(std::uint32_t file, std::uint32_t block) {
  return ((file * 0x9E3779B1u) ^ (block * 0x85EBCA6Bu)) >> 7 & (Batch::kBuckets - 1);
}

std::uint32_t bucket_of_file(std::uint64_t device, std::uint64_t inode, std::size_t buckets) {
  return static_cast<std::uint32_t>(((device * 31 + inode * 0x9E3779B97F4A7C15u) >> 40) & (buckets - 1));
}

}  // namespace

memlith::core::Result<Pages::Segment> Pages::make(std::string_view data, std::string_view log) {
  return Segment::make("memlith-postgres", true, [&](SharedMemory& memory) {
    if (data.size() >= memory.data.size() || log.size() >= memory.log.size()) {
      return fail(memlith::core::Errc::invalid, memlith::core::Detail::argument,
                  "the path of the data directory is too long");
    }
    std::copy(data.begin(), data.end(), memory.data.begin());
    std::copy(log.begin(), log.end(), memory.log.begin());
    memory.filling.store(1);
    return memlith::core::kOk;
  });
}

const shm::Participant& Pages::self() {
  if (self_.is_of_this_process()) return self_;
  auto joined = segment_.join();
  if (!joined.ok()) {
    say(std::string(memlith::core::last_error_text()));
    std::abort();
  }
  self_ = std::move(*joined);
  return self_;
}

bool Pages::begin_keeping() {
  std::uint32_t before = memory_->keeper.load();
  if (self().lives(before) || !memory_->keeper.compare_exchange_strong(before, self().id())) return false;
  memory_->keepers.fetch_add(1);
  return true;
}

void Pages::lock() {
  memory_->mutex.lock(self(), [this] { repair(); });
}

// ---- changes that a death may cut -------------------------------------------------------------------------------

void Pages::repair() {
  ++memory_->deaths;
  do_staged(false);
  for (std::uint64_t number = memory_->filling.load() - 1; number <= memory_->filling.load(); ++number) {
    Batch& batch = memory_->batch[number % 2];
    // ORDER home-before-clear: a batch is cleared when its number says that it is home, so a clearing that was cut is
    // told by the number. [test PagesTest.ADeathWhileABatchIsClearedIsRepaired]
    if (number <= memory_->home.load()) {
      clear(batch);
    } else {
      chain_pages(batch);
    }
  }
  chain_files();
}

void Pages::do_staged(bool chain) {
  Staged& staged = memory_->staged;
  if (staged.ready.load(std::memory_order_acquire) == 0) return;
  Batch& batch = memory_->batch[staged.batch];
  if (staged.slot < PageLimits::kPages) {
    const bool is_new = staged.slot >= batch.pages;
    shm::copy_bytes(batch.content[staged.slot].data(), staged.content.data(), kPageBytes);
    if (is_new) {
      batch.page[staged.slot] = staged.page;
      batch.pages.store(staged.slot + 1, std::memory_order_release);
    }
    if (is_new && chain) {
      std::uint32_t& bucket = batch.buckets[bucket_of_page(staged.page.file, staged.page.block)];
      batch.page[staged.slot].next = bucket;
      bucket = staged.slot + 1;
    }
  }
  batch.records.store(staged.records, std::memory_order_release);
  batch.bytes.store(staged.bytes, std::memory_order_release);
  SharedFile& file = memory_->file[staged.file];
  file.newest_batch = staged.number;
  (staged.cuts != 0 ? file.cut_batch : file.page_batch) = staged.number;
  staged.ready.store(0, std::memory_order_release);
}

// The content of the record lies behind the batch's records already.
void Pages::stage_record(const RecordHead& head, std::uint32_t slot) {
  Staged& staged = memory_->staged;
  Batch& batch = filling_batch();
  shm::copy_bytes(batch.record.data() + batch.bytes, &head, sizeof head);
  staged.batch = static_cast<std::uint32_t>(memory_->filling.load() % 2);
  staged.slot = slot;
  staged.page = {.file = head.file, .block = head.block};
  staged.records = batch.records + 1;
  staged.bytes = batch.bytes + static_cast<std::uint32_t>(sizeof head) + head.bytes;
  staged.file = head.file;
  staged.cuts = head.kind == RecordKind::length ? 1 : 0;
  staged.number = memory_->filling.load();
  staged.ready.store(1, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  do_staged(true);
}

void Pages::chain_pages(Batch& batch) {
  batch.buckets.fill(0);
  for (std::uint32_t slot = 0; slot < batch.pages; ++slot) {
    Batch::Page& page = batch.page[slot];
    std::uint32_t& bucket = batch.buckets[bucket_of_page(page.file, page.block)];
    page.next = bucket;
    bucket = slot + 1;
  }
}

void Pages::chain_files() {
  memory_->buckets.fill(0);
  for (std::uint32_t index = 0; index < memory_->files; ++index) {
    SharedFile& file = memory_->file[index];
    if (file.state != FileState::live) continue;
    std::uint32_t& bucket = memory_->buckets[bucket_of_file(file.device, file.inode, memory_->buckets.size())];
    file.next = bucket;
    bucket = index + 1;
  }
}

void Pages::clear(Batch& batch) {
  batch.pages.store(0, std::memory_order_release);
  batch.records.store(0, std::memory_order_release);
  batch.bytes.store(0, std::memory_order_release);
  batch.buckets.fill(0);
}

// ---- files ------------------------------------------------------------------------------------------------------

FileRef Pages::find_file(std::uint64_t device, std::uint64_t inode) {
  const std::uint32_t bucket = bucket_of_file(device, inode, memory_->buckets.size());
  for (std::uint32_t next = memory_->buckets[bucket]; next != 0; next = memory_->file[next - 1].next) {
    const SharedFile& file = memory_->file[next - 1];
    if (file.inode == inode && file.device == device) return {next - 1, file.serial};
  }
  return {};
}

void Pages::unchain(std::uint32_t index) {
  const SharedFile& file = memory_->file[index];
  std::uint32_t* next = &memory_->buckets[bucket_of_file(file.device, file.inode, memory_->buckets.size())];
  while (*next != 0 && *next != index + 1) next = &memory_->file[*next - 1].next;
  if (*next != 0) *next = file.next;
}

std::optional<std::uint32_t> Pages::take_entry() {
  if (memory_->files < PageLimits::kFiles) return memory_->files;
  for (std::uint32_t tried = 0; tried < PageLimits::kFiles; ++tried) {
    const std::uint32_t index = memory_->reuse++ % PageLimits::kFiles;
    SharedFile& file = memory_->file[index];
    if (file.state != FileState::unused && is_in_log(file)) continue;
    if (file.state == FileState::live) {
      unchain(index);
      memory_->settled = {};  // the file may come back, with pages that are not those of the start
    }
    file.state = FileState::unused;
    return index;
  }
  return {};
}

bool Pages::is_settled(std::uint64_t device) const {
  const auto& settled = memory_->settled;
  return device != 0 && std::find(settled.begin(), settled.end(), device) != settled.end();
}

FileRef Pages::add_file(std::uint64_t device, std::uint64_t inode, std::string_view path, std::uint32_t blocks,
                        bool unlogged) {
  if (const FileRef found = find_file(device, inode)) {
    if (path == memory_->file[found.index].path.data()) return found;
    remove_file(found);  // by a program that this library is not in
  }
  const std::optional<std::uint32_t> index = take_entry();
  if (!index || path.size() > kPathBytesMax) return {};
  SharedFile& file = memory_->file[*index];
  const std::uint32_t serial = file.serial + 1 == 0 ? 1 : file.serial + 1;
  // Pages that were written before may be torn, unless they were durable at the start: until the file was flushed, each
  // page is logged whole.
  file = SharedFile{.device = device,
                    .inode = inode,
                    .serial = serial,
                    .blocks = blocks,
                    .vouched = is_settled(device) ? blocks : 0,
                    .asks = 1,
                    .unlogged = unlogged ? 1U : 0U};
  std::copy(path.begin(), path.end(), file.path.begin());
  memory_->files = std::max(memory_->files, *index + 1);
  std::atomic_signal_fence(std::memory_order_release);  // repair() looks for entries that are live
  file.state = FileState::live;
  std::uint32_t& bucket = memory_->buckets[bucket_of_file(device, inode, memory_->buckets.size())];
  file.next = bucket;
  bucket = *index + 1;
  return {*index, serial};
}

SharedFile* Pages::file(FileRef file) {
  SharedFile& found = memory_->file[file.index];
  return file.serial != 0 && found.serial == file.serial ? &found : nullptr;
}

void Pages::remove_file(FileRef ref) {
  SharedFile* const found = file(ref);
  if (found == nullptr || found->state != FileState::live) return;
  unchain(ref.index);
  ++memory_->gone;
  found->state = is_in_log(*found) ? FileState::gone : FileState::unused;
}

bool Pages::has_removed(std::string_view path) {
  if (memory_->gone == 0) return false;
  for (std::uint32_t index = 0; index < memory_->files; ++index) {
    const SharedFile& file = memory_->file[index];
    if (file.state == FileState::gone && path == file.path.data()) return true;
  }
  return false;
}

// ---- pages ------------------------------------------------------------------------------------------------------

Batch* Pages::sealed_batch() const {
  const std::uint64_t sealed = memory_->filling.load() - 1;
  return memory_->home.load() < sealed ? &memory_->batch[sealed % 2] : nullptr;
}

namespace {
std::uint32_t slot_of(const Batch& batch, std::uint32_t file, std::uint32_t block) {
  for (std::uint32_t next = batch.buckets[bucket_of_page(file, block)]; next != 0; next = batch.page[next - 1].next) {
    const Batch::Page& page = batch.page[next - 1];
    if (page.file == file && page.block == block) return next - 1;
  }
  return PageLimits::kPages;
}
}  // namespace

const std::byte* Pages::find_page(FileRef file, std::uint32_t block) {
  for (const Batch* batch : {&filling_batch(), sealed_batch()}) {
    if (batch == nullptr) continue;
    const std::uint32_t slot = slot_of(*batch, file.index, block);
    if (slot < PageLimits::kPages) return batch->content[slot].data();
  }
  return nullptr;
}

bool Pages::has_room() const {
  const Batch& batch = filling_batch();
  return batch.pages < PageLimits::kPages && batch.bytes <= PageLimits::kRecordBytes;
}

void Pages::put_page(FileRef file, std::uint32_t block, const std::byte* page, const std::byte* base, bool keep) {
  Batch& batch = filling_batch();
  Staged& staged = memory_->staged;
  // PostgreSQL may set hint bits in the page meanwhile.
  shm::copy_bytes(staged.content.data(), page, kPageBytes);
  std::byte* const target = batch.record.data() + batch.bytes + sizeof(RecordHead);
  RecordHead head{.file = file.index, .block = block, .kind = RecordKind::change};
  std::optional<Encoded> made;
  if (base != nullptr) made = encode(target, base, staged.content.data(), kChangeBytesMax);
  if (!made) {
    head.kind = RecordKind::whole;
    made = encode(target, nullptr, staged.content.data(), kContentBytesMax);
  }
  if (!made) std::abort();  // kContentBytesMax is the most there can be
  head.ranges = made->ranges;
  head.bytes = made->bytes;
  std::uint32_t slot = slot_of(batch, file.index, block);
  if (slot == PageLimits::kPages && keep) slot = batch.pages;
  stage_record(head, slot);
}

void Pages::put_length(FileRef file, std::uint32_t blocks) {
  stage_record({.file = file.index, .block = blocks, .kind = RecordKind::length}, PageLimits::kPages);
}

void Pages::put_longer(FileRef file, std::uint32_t blocks) {
  stage_record({.file = file.index, .block = blocks, .kind = RecordKind::longer}, PageLimits::kPages);
}

// ---- the keeper -------------------------------------------------------------------------------------------------

Batch* Pages::seal() {
  if (Batch* const sealed = sealed_batch()) return sealed;
  const Batch& batch = filling_batch();
  const bool is_half_full = batch.pages >= PageLimits::kPages / 2 || batch.bytes >= PageLimits::kRecordBytes / 2;
  if (batch.records == 0 || (!is_half_full && memory_->wanted.load() < memory_->filling.load())) return nullptr;
  memory_->filling.fetch_add(1);
  announce();
  return sealed_batch();
}

void Pages::set_durable() {
  memory_->durable.store(sealed_number());
  announce();
}

void Pages::set_home() {
  Batch& batch = *sealed_batch();
  memory_->home.store(sealed_number());
  std::atomic_thread_fence(std::memory_order_seq_cst);
  clear(batch);
  announce();
}

void Pages::set_checkpointed(std::uint64_t number) {
  memory_->checkpointed.store(std::max(number, memory_->checkpointed.load()));
  std::uint32_t gone = 0;
  for (std::uint32_t index = 0; index < memory_->files; ++index) {
    SharedFile& file = memory_->file[index];
    if (file.state != FileState::gone) continue;
    if (is_in_log(file)) {
      ++gone;
    } else {
      file.state = FileState::unused;
    }
  }
  memory_->gone = gone;
  announce();
}

// ---- waiting ----------------------------------------------------------------------------------------------------

void Pages::want(std::uint64_t number) {
  std::uint64_t before = memory_->wanted.load();
  while (before < number && !memory_->wanted.compare_exchange_weak(before, number)) {
  }
  announce();
}

}  // namespace memlith_postgres
