// The checksums of homes, as a store offers them. Floor: store.
#include "store/store.hpp"

namespace memlith::core {

Result<std::uint64_t> Store::complete_sums() {
  MEMLITH_TRY(check_process());
  std::uint64_t completed = 0;
  MEMLITH_TRY(checkpointer_.checkpoint_and([&]() -> Status {
    for (const ObjectInfo& info : directory_->objects()) {
      MEMLITH_TRY_ASSIGN(Device* const device, files_.homes.get(info.id));
      MEMLITH_TRY_ASSIGN(const std::uint64_t blocks, files_.sums.complete(info.id, *device));
      completed += blocks;
    }
    return kOk;
  }));
  return completed;
}

Result<std::unique_ptr<SumsFile>> Store::open_sums(ObjectId id) {
  if (one_file() || view_ != nullptr) {
    return fail(Errc::unsupported, Detail::argument, "{}: {}, so pages cannot be compared with checksums", path(),
                one_file() ? "no checksums are kept of a file of its own" : "the store is followed");
  }
  return SumsFile::open(files_.volume, files_.names.sums(id), files_.log->log_id(), id, OpenMode::read_only);
}

Result<std::uint64_t> Store::check_sums(ObjectId id, const std::function<void(std::uint64_t offset)>& wrong) {
  MEMLITH_TRY(check_process());
  std::uint64_t unknown = 0;
  MEMLITH_TRY(checkpointer_.checkpoint_and([&]() -> Status {
    MEMLITH_TRY_ASSIGN(Device* const device, files_.homes.get(id));
    return files_.sums.judge(id, *device, [&](std::uint64_t offset, SumsFile::Verdict verdict) {
      if (verdict == SumsFile::Verdict::unknown) ++unknown;
      if (verdict == SumsFile::Verdict::wrong) wrong(offset);
      return kOk;
    });
  }));
  return unknown;
}

}  // namespace memlith::core
