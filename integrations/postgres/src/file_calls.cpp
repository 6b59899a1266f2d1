#include "file_calls.hpp"

#include <array>
#include <cerrno>
#include <cstring>

namespace memlith_postgres {

int FileCalls::before_creation(std::string_view path) {
  // A record tells a file by its name, so a name means one file as long as the log has records of it.
  while (true) {
    // A record may be in the batch that is being filled, which no other caller may ask for.
    std::uint64_t newest = 0;
    {
      const Pages::Lock lock(pages_);
      if (!pages_.has_removed(path)) return 0;
      newest = pages_.newest_number();
    }
    if (!waiting_.wait(Waiting::For::home, newest)) return EIO;
    pages_.memory().checkpoint_wanted.store(1);
    pages_.announce();
    if (!waiting_.wait(Waiting::For::checkpointed, newest)) return EIO;
  }
}

int FileCalls::bring_home() {
  std::uint64_t newest = 0;
  {
    const Pages::Lock lock(pages_);
    newest = pages_.newest_number();
  }
  return waiting_.wait(Waiting::For::home, newest) ? 0 : EIO;
}

bool FileCalls::read(FileRef file, std::uint32_t block, std::size_t offset, std::size_t bytes, std::byte* target) {
  if (pages_.is_empty()) return false;
  const Pages::Lock lock(pages_);
  if (pages_.file(file) == nullptr) return false;
  const std::byte* const found = pages_.find_page(file, block);
  if (found == nullptr) return false;
  shm::copy_bytes(target, found + offset, bytes);
  return true;
}

// With the lock held; there is room.
int FileCalls::put(SharedFile& file, FileRef ref, FileAccess& access, std::uint32_t block, const std::byte* page,
                   bool extends) {
  static constexpr std::array<std::byte, kPageBytes> kZeros{};
  if (extends) {
    // The file has its length at once, because PostgreSQL asks for it, and a full disk is noticed here. No commit
    // depends on such a page, so it may be written before the log has it.
    if (const int error = access.write(block, kZeros.data()); error != 0) return error;
    file.blocks = block + 1;
    ++file.dirtied;
  }
  std::array<std::byte, kPageBytes> home;
  const std::byte* base = extends ? nullptr : pages_.find_page(ref, block);
  if (base == nullptr && block < file.vouched && access.read_cached(block, home.data())) base = home.data();
  const bool is_home = extends && std::memcmp(page, kZeros.data(), kPageBytes) == 0;
  pages_.put_page(ref, block, page, base, !is_home);
  return 0;
}

// PostgreSQL makes unlogged relations anew after a crash, so it does not matter whether pages of them are whole.
int FileCalls::write_home(FileRef ref, FileAccess& access, std::uint32_t block, const std::byte* page) {
  const int error = access.write(block, page);
  const Pages::Lock lock(pages_);
  if (SharedFile* const file = pages_.file(ref)) file->asks = 1;  // after the write, which a flush meanwhile may miss
  return error;
}

int FileCalls::write(FileRef ref, FileAccess& access, std::uint32_t block, const std::byte* page) {
  while (true) {
    std::uint64_t full = 0;
    std::uint64_t cut = 0;
    bool goes_home = false;
    {
      const Pages::Lock lock(pages_);
      SharedFile* const file = pages_.file(ref);
      if (file == nullptr || file->state != FileState::live) return access.write(block, page);
      if (pages_.memory().failed.load() != 0) return EIO;
      goes_home = file->unlogged != 0 && pages_.find_page(ref, block) == nullptr;
      // Another program may have lengthened the file, or this one by another call.
      if (block >= file->blocks) file->blocks = access.blocks();
      const bool extends = block >= file->blocks;
      // Until the log has the cut, a power cut may undo it, and mix what the page was then with what is written now.
      if (extends && file->cut_batch > pages_.memory().durable.load()) cut = file->cut_batch;
      if (cut == 0 && !goes_home && pages_.has_room()) return put(*file, ref, access, block, page, extends);
      if (cut == 0 && !goes_home) {
        full = pages_.memory().filling.load();
        pages_.want(full);
        if (pages_.memory().home.load() + 1 == full) pages_.seal();
        if (pages_.memory().filling.load() != full) continue;
      }
    }
    if (cut == 0 && goes_home) return write_home(ref, access, block, page);
    // The batch before has to be home before this one can be sealed.
    if (cut != 0 ? !waiting_.wait(Waiting::For::durable, cut) : !waiting_.wait(Waiting::For::home, full - 1))
      return EIO;
  }
}

int FileCalls::flush(FileRef ref, FileAccess& access) {
  std::uint64_t newest = 0;
  std::uint32_t blocks = 0;
  bool asks = false;
  {
    const Pages::Lock lock(pages_);
    SharedFile* const file = pages_.file(ref);
    if (file == nullptr || file->state != FileState::live) return access.flush();
    newest = file->newest_batch;
    blocks = file->blocks;
    asks = file->asks != 0;
    file->asks = 0;
  }
  if (asks) {
    const int error = access.flush();
    const Pages::Lock lock(pages_);
    SharedFile* const file = pages_.file(ref);
    if (error != 0) {
      if (file != nullptr) file->asks = 1;
      return error;
    }
    if (file != nullptr) file->vouched = blocks < file->blocks ? blocks : file->blocks;
  }
  if (pages_.memory().durable.load() >= newest) return pages_.memory().failed.load() == 0 ? 0 : EIO;
  return waiting_.wait(Waiting::For::durable, newest) ? 0 : EIO;
}

// Puts the record of the cut into the log. `wait_for` is the batch that has to be home before the cut; 0: none.
int FileCalls::record_cut(FileRef ref, std::uint32_t blocks, std::uint64_t& wait_for) {
  while (true) {
    std::uint64_t full = 0;
    {
      const Pages::Lock lock(pages_);
      const SharedFile* const file = pages_.file(ref);
      if (file == nullptr || file->state != FileState::live) return 0;
      full = pages_.memory().filling.load();
      if (pages_.has_room()) {
        const bool has_pages = file->page_batch > pages_.memory().checkpointed.load();
        pages_.put_length(ref, blocks);
        if (has_pages) wait_for = full;
        return 0;
      }
    }
    if (!waiting_.wait(Waiting::For::home, full)) return EIO;
  }
}

int FileCalls::cut(FileRef ref, FileAccess& access, std::uint32_t blocks) {
  std::uint64_t wait_for = 0;
  if (const int error = record_cut(ref, blocks, wait_for); error != 0) return error;
  // ORDER record-before-cut: pages that the log has would make the file longer again when they are replayed. The cut
  // waits until the batch is home, too, because writing it home lengthens the file as well. If the log has no pages of
  // the file, the file waits when it grows again. [test PostgresCrash.ACutIsInTheLogBeforeItIsDone]
  if (!waiting_.wait(Waiting::For::home, wait_for)) return EIO;
  if (const int error = access.cut(blocks); error != 0) return error;
  const Pages::Lock lock(pages_);
  SharedFile* const file = pages_.file(ref);
  if (file == nullptr) return 0;
  file->blocks = access.blocks();
  file->vouched = file->vouched < blocks ? file->vouched : blocks;
  file->asks = 1;
  ++file->dirtied;
  return 0;
}

int FileCalls::lengthen(FileRef ref, FileAccess& access, std::uint32_t blocks) {
  while (true) {
    std::uint64_t cut = 0;
    {
      const Pages::Lock lock(pages_);
      SharedFile* const file = pages_.file(ref);
      if (file == nullptr || file->state != FileState::live) return access.lengthen(blocks);
      if (pages_.memory().failed.load() != 0) return EIO;
      if (file->cut_batch > pages_.memory().durable.load()) cut = file->cut_batch;
    }
    if (cut == 0) break;
    if (!waiting_.wait(Waiting::For::durable, cut)) return EIO;  // as in write()
  }
  const int error = access.lengthen(blocks);
  {
    const Pages::Lock lock(pages_);
    SharedFile* const file = pages_.file(ref);
    if (file == nullptr) return error;
    file->blocks = access.blocks();
    file->asks = 1;
    ++file->dirtied;
  }
  return error != 0 ? error : record_longer(ref);
}

// Replaying a cut that the log still has would take the new pages away again.
// (FileCallsTest.AFileThatWasCutAndGotLongerIsLongAfterTheReplay)
int FileCalls::record_longer(FileRef ref) {
  while (true) {
    std::uint64_t full = 0;
    {
      const Pages::Lock lock(pages_);
      const SharedFile* const file = pages_.file(ref);
      if (file == nullptr || file->state != FileState::live) return 0;
      if (file->cut_batch <= pages_.memory().checkpointed.load()) return 0;
      if (pages_.has_room()) {
        pages_.put_longer(ref, file->blocks);
        return 0;
      }
      full = pages_.memory().filling.load();
    }
    if (!waiting_.wait(Waiting::For::home, full)) return EIO;
  }
}

void FileCalls::make_unlogged(FileRef ref) {
  const Pages::Lock lock(pages_);
  if (SharedFile* const file = pages_.file(ref)) file->unlogged = 1;
}

int FileCalls::before_removal(FileRef ref) {
  std::uint64_t newest = 0;
  {
    const Pages::Lock lock(pages_);
    const SharedFile* const file = pages_.file(ref);
    if (file == nullptr || file->state != FileState::live) return 0;
    newest = file->page_batch;
  }
  // Redo reads pages of relations that are dropped later, and PostgreSQL does not flush them any more: they have to be
  // whole as long as a crash may bring the file back.
  if (!waiting_.wait(Waiting::For::home, newest)) return EIO;
  const Pages::Lock lock(pages_);
  pages_.remove_file(ref);
  return 0;
}

}  // namespace memlith_postgres
