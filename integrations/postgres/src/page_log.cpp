#include "page_log.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

namespace memlith_postgres {

namespace {

constexpr std::size_t kOpenFilesMax = 256;
constexpr unsigned kLookMs = 50;

Error damaged(const std::string& what) { return Error(MEMLITH_CORRUPT, "the page log is damaged: " + what); }

}  // namespace

// ---- replay -----------------------------------------------------------------------------------------------------

Result<HomeFile*> PageLog::home_to_replay(std::string_view path) {
  const auto found = replayed_.find(path);
  if (found != replayed_.end()) return found->second.get();
  if (replayed_.size() >= kOpenFilesMax) {
    for (const auto& [name, file] : replayed_) {
      if (file == nullptr) continue;
      if (Result<void> flushed = file->flush(); !flushed) return flushed.error();
    }
    replayed_.clear();
  }
  Result<std::unique_ptr<HomeFile>> file = homes_.open(std::string(path));
  if (!file) return file.error();
  return replayed_.emplace(path, std::move(*file)).first->second.get();
}

Result<void> PageLog::replay_record(const BatchReader::Record& record, Replayed& replayed) {
  Result<HomeFile*> home = home_to_replay(record.path);
  if (!home) return home.error();
  if (*home == nullptr) {
    ++replayed.skipped;
    return {};
  }
  HomeFile& file = **home;
  const Result<std::uint64_t> blocks = file.blocks();
  if (!blocks) return blocks.error();
  const std::uint32_t block = record.head.block;
  if (record.head.kind == RecordKind::length) return *blocks > block ? file.cut(block) : Result<void>();
  std::array<std::byte, kPageBytes> page{};
  if (record.head.kind == RecordKind::longer) {
    return *blocks < block ? file.write(block - 1, page.data()) : Result<void>();
  }
  if (record.head.kind == RecordKind::change) {
    // PostgreSQL has cut the file later, which needed no record: the log had none of the file then.
    if (block >= *blocks) {
      ++replayed.skipped;
      return {};
    }
    if (Result<void> read = file.read(block, page.data()); !read) return read;
  } else if (record.head.kind != RecordKind::whole) {
    return damaged("a record of an unknown kind");
  }
  if (!apply(record.head, record.content, page.data())) return damaged("a range that is not in its page");
  ++replayed.pages;
  return file.write(block, page.data());
}

Result<void> PageLog::replay_batch(std::string_view bytes, Replayed& replayed) {
  std::optional<BatchReader> reader = BatchReader::open(bytes);
  if (!reader) return damaged("an entry that is no batch");
  for (std::uint32_t i = 0; i < reader->records(); ++i) {
    const std::optional<BatchReader::Record> record = reader->next();
    if (!record) return damaged("a record that is longer than its batch");
    if (Result<void> done = replay_record(*record, replayed); !done) return done;
  }
  if (!reader->at_end()) return damaged("bytes behind the last record of a batch");
  ++replayed.batches;
  replayed.bytes += bytes.size();
  return {};
}

Result<void> PageLog::replay_batches(Replayed& replayed) {
  const auto replay = [&](std::string_view batch) { return replay_batch(batch, replayed); };
  if (Result<void> done = log_.replay(replay); !done) return done;
  for (const auto& [name, file] : replayed_) {
    if (file == nullptr) continue;
    if (Result<void> flushed = file->flush(); !flushed) return flushed;
  }
  replayed_.clear();
  return {};
}

Result<Replayed> PageLog::replay() {
  Replayed replayed;
  if (Result<void> done = log_.settle([&] { return replay_batches(replayed); }); !done) return done.error();
  return replayed;
}

// ---- batches ----------------------------------------------------------------------------------------------------

void PageLog::assemble(Pages& pages, const Batch& batch) {
  std::set<std::uint32_t> files;
  for (std::uint32_t at = 0; at < batch.bytes;) {
    RecordHead head;
    std::memcpy(&head, batch.record.data() + at, sizeof head);
    files.insert(head.file);
    at += static_cast<std::uint32_t>(sizeof head) + head.bytes;
  }
  const auto add = [this](const auto& head) { entry_.append(reinterpret_cast<const char*>(&head), sizeof head); };
  entry_.clear();
  add(BatchHead{.magic = kBatchMagic, .files = static_cast<std::uint32_t>(files.size()), .records = batch.records});
  for (const std::uint32_t index : files) {
    const std::string_view path = pages.memory().file[index].path.data();  // constant while a record names it
    add(FileHead{.number = index, .path_bytes = static_cast<std::uint32_t>(path.size())});
    entry_ += path;
  }
  entry_.append(reinterpret_cast<const char*>(batch.record.data()), batch.bytes);
}

Result<void> PageLog::log_batch(Pages& pages, const Batch& batch) {
  assemble(pages, batch);
  // Behind a checkpoint that settle() is making, if there is one.
  if (!log_.has_room(entry_.size())) {
    if (Result<void> done = checkpoint(pages); !done) return done;
  }
  logged_.store(pages.sealed_number());
  if (Result<void> appended = log_.append(entry_); !appended) return appended;
  return log_.write();
}

Result<HomeFile*> PageLog::home_of(Pages& pages, std::uint32_t index) {
  const SharedFile& file = pages.memory().file[index];
  const FileKey key{index, file.serial};
  if (const auto found = open_.find(key); found != open_.end()) return found->second.get();
  if (open_.size() >= kOpenFilesMax) open_.clear();
  Result<std::unique_ptr<HomeFile>> opened = homes_.open(file.path.data());
  if (!opened) return opened.error();
  if (*opened == nullptr) return nullptr;  // looked for again, should it come back
  return open_.emplace(key, std::move(*opened)).first->second.get();
}

Result<void> PageLog::write_homes(Pages& pages, const Batch& batch) {
  std::vector<std::uint32_t> order(batch.pages);
  for (std::uint32_t slot = 0; slot < batch.pages; ++slot) order[slot] = slot;
  std::sort(order.begin(), order.end(), [&batch](std::uint32_t left, std::uint32_t right) {
    const Batch::Page& a = batch.page[left];
    const Batch::Page& b = batch.page[right];
    return std::pair(a.file, a.block) < std::pair(b.file, b.block);
  });
  std::uint32_t marked = PageLimits::kFiles;
  for (const std::uint32_t slot : order) {
    const Batch::Page& page = batch.page[slot];
    if (page.file != marked) {
      // Before the first write: a keeper that goes on after this one has died must flush the file.
      const Pages::Lock lock(pages);
      ++pages.memory().file[page.file].dirtied;
      marked = page.file;
    }
    const Result<HomeFile*> home = home_of(pages, page.file);
    if (!home) return home.error();
    if (*home == nullptr) continue;  // was removed by a program that this library is not in
    if (Result<void> written = (*home)->write(page.block, batch.content[slot].data()); !written) return written;
  }
  return {};
}

void PageLog::resume(const Pages& pages) {
  logged_.store(pages.memory().durable.load());
  log_.want_settling();
}

Result<bool> PageLog::step(Pages& pages) {
  const Batch* batch = nullptr;
  bool is_logged = false;
  {
    const Pages::Lock lock(pages);
    batch = pages.seal();
    is_logged = pages.memory().durable.load() >= pages.sealed_number();
  }
  if (batch == nullptr) return false;
  // ORDER pages-log-before-home: a page that is torn at home is made whole from the log, so the log has to have it
  // first. [test PostgresCrash.APageIsInTheLogBeforeItGoesHome]
  if (!is_logged) {
    if (Result<void> logged = log_batch(pages, *batch); !logged) return log_.behind().fail(logged.error());
    const Pages::Lock lock(pages);
    pages.set_durable();
  }
  if (Result<void> written = write_homes(pages, *batch); !written) return log_.behind().fail(written.error());
  const Pages::Lock lock(pages);
  pages.set_home();
  return true;
}

// ---- the log gives up what is home ------------------------------------------------------------------------------

Result<bool> PageLog::settle(Pages& pages) {
  if (pages.memory().checkpoint_wanted.load() == 0 && !log_.wants_settling()) return false;
  if (Result<void> done = checkpoint(pages); !done) return done.error();
  return true;
}

// Returns when every batch that the log has is home, or step() has failed.
Result<void> PageLog::await_home(Pages& pages) {
  for (;;) {
    const std::uint32_t ticket = pages.ticket();
    if (pages.memory().home.load() >= logged_.load()) return {};
    if (Result<void> fine = log_.check(); !fine) return fine;
    pages.wait(ticket, kLookMs);
  }
}

Result<void> PageLog::flush_homes(Pages& pages, const std::vector<Dirty>& dirty, std::set<std::string>& removed) {
  for (const Dirty& each : dirty) {
    Result<std::unique_ptr<HomeFile>> home = homes_.open(each.path);
    if (!home) return home.error();
    if (*home == nullptr) {
      removed.insert(each.path);  // since it was live
      continue;
    }
    if (Result<void> flushed = (*home)->flush(); !flushed) return flushed;
    const Pages::Lock lock(pages);
    SharedFile* const file = pages.file(each.file);
    if (file == nullptr) continue;
    file->vouched = std::min(each.blocks, file->blocks);
    file->flushed = each.dirtied;
  }
  return {};
}

Result<void> PageLog::checkpoint(Pages& pages) {
  std::uint64_t number = 0;
  const Result<void> settled = log_.settle([&]() -> Result<void> {
    // ORDER home-before-flushes: a batch that the log gives up is home before the homes are flushed, also if step() is
    // between the two. [mutant flushed_before_home]
    if (Result<void> home = await_home(pages); !home) return home;
    std::vector<Dirty> dirty;
    std::set<std::string> removed;
    {
      const Pages::Lock lock(pages);
      SharedMemory& memory = pages.memory();
      number = memory.home.load();
      memory.checkpoint_wanted.store(0);  // before it is made: one that is wanted meanwhile may need the next one
      std::set<std::string, std::less<>> folders;
      for (std::uint32_t index = 0; index < memory.files; ++index) {
        const SharedFile& file = memory.file[index];
        const std::string_view path = file.path.data();
        if (file.state == FileState::gone && folders.emplace(path.substr(0, path.rfind('/'))).second) {
          removed.emplace(path);
        }
        if (file.state != FileState::live || file.dirtied == file.flushed) continue;
        dirty.push_back({{index, file.serial}, std::string(path), file.blocks, file.dirtied});
      }
    }
    // ORDER pages-home-before-reset: what the log gives up has to be at home, and so has the removal of a file whose
    // pages can no longer be flushed. [test PostgresCrash.TheLogStartsOverWhenTheHomesAreFlushed]
    if (Result<void> flushed = flush_homes(pages, dirty, removed); !flushed) return flushed;
    for (const std::string& path : removed) {
      if (Result<void> flushed = homes_.flush_folder_of(path); !flushed) return flushed;
    }
    return {};
  });
  if (!settled) return settled;
  const Pages::Lock lock(pages);
  pages.set_checkpointed(number);
  return {};
}

Result<void> PageLog::finish(Pages& pages) {
  while (!pages.is_empty()) {
    pages.want(pages.memory().filling.load());
    if (const Result<bool> done = step(pages); !done) return done.error();
  }
  open_.clear();
  return checkpoint(pages);
}

}  // namespace memlith_postgres
