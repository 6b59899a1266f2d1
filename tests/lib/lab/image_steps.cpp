// Workloads of ordinary files: the working image, which memlith_msync and `memlith run` commit; the mark of a file.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "steps.hpp"
#include "workload.hpp"
#include "workload_stores.hpp"

namespace memlith::lab {

using namespace core;

namespace {
constexpr std::uint64_t kMappedBytes = 64 * kKiB;
constexpr std::uint64_t kAheadBytes = 4 * kKiB;
}  // namespace

// ---- words -----------------------------------------------------------------------------------------------------

Run::Image::~Image() {
  if (mapping != nullptr) ::munmap(mapping, kMappedBytes);
}

void Run::map_image() {
  if (store_ == nullptr || image_ != nullptr || !find("file").has_value()) return;
  const std::uint64_t before = fired();
  auto image = FileImage::open(*store_, kAheadBytes);
  const bool ok = passed(image.status(), "opening an image", before);
  if (store_->log().poisoned()) now_poisoned();
  if (!ok) return;
  auto made = std::make_unique<Image>();
  made->image = std::move(*image);
  const int fd = made->image->descriptor();
  void* const got = ::mmap(nullptr, kMappedBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (got == MAP_FAILED) return broken("an image cannot be mapped");
  made->mapping = static_cast<std::byte*>(got);
  if (!made->image->watch(made->mapping, kMappedBytes, 0).ok()) broken("an image cannot be watched");
  made->expected.resize(made->image->committed_bytes());
  if (::pread(fd, made->expected.data(), made->expected.size(), 0) != static_cast<ssize_t>(made->expected.size())) {
    broken("an image is shorter than its file");
  }
  const bool flipped = volume.faults().fired(SimFaults::Kind::flip_bit) > 0;
  if (const auto known = region_content_.find("file");
      known != region_content_.end() && known->second != made->expected && !flipped) {
    broken("an image has other bytes than its file");
  }
  made->captured = made->expected;
  image_ = std::move(made);
}

void Run::store_image(std::uint64_t offset, std::uint64_t bytes) {
  if (image_ == nullptr || offset + bytes > std::min<std::uint64_t>(image_->expected.size(), kMappedBytes)) return;
  const auto content = bytes_of(fill_of(part_++), {"file", offset, bytes});
  std::memcpy(image_->mapping + offset, content.data(), bytes);
  std::memcpy(image_->expected.data() + offset, content.data(), bytes);
}

void Run::write_image(std::uint64_t offset, std::uint64_t bytes) {
  if (image_ == nullptr) return;
  const auto content = bytes_of(fill_of(part_++), {"file", offset, bytes});
  const auto done = ::pwrite(image_->image->descriptor(), content.data(), bytes, static_cast<off_t>(offset));
  if (done != static_cast<ssize_t>(bytes) || !image_->image->note(offset, bytes).ok()) {
    return broken("an image cannot be written");
  }
  image_->expected.resize(std::max<std::uint64_t>(image_->expected.size(), offset + bytes));
  std::memcpy(image_->expected.data() + offset, content.data(), bytes);
}

void Run::cut_image(std::uint64_t size) {
  if (image_ == nullptr) return;
  if (!image_->image->cut(size).ok()) broken("an image cannot be cut");
  image_->expected.resize(size);
  image_->shortest_bytes = std::min(image_->shortest_bytes, size);
}

void Run::sync_image(Range range, bool wait) {
  if (image_ == nullptr) return;
  std::vector<std::byte> content = image_->expected;
  if (range.bytes != kWholeFile) {
    // Whole pages of the range are new, the others as they were; what was beyond the end, or cut off since, is zeros.
    const std::uint64_t kept = std::min<std::uint64_t>(image_->captured.size(), image_->shortest_bytes);
    for (std::uint64_t at = 0; at < content.size(); ++at) {
      const std::uint64_t page = round_down(at, kPageBytes);
      if (page + kPageBytes > range.offset && page < range.offset + range.bytes) continue;
      content[at] = at < kept ? image_->captured[at] : std::byte{0};
    }
  }
  const std::size_t commit = history.started(
      wait ? "msync of the file" : "msync of the file, without waiting",
      [content](Content& all) { all.objects["file"] = content; }, now());
  const std::uint64_t before = fired();
  const std::uint64_t no_space_before = volume.faults().fired(SimFaults::Kind::no_space);
  const Lsn head = store_->log().head();
  const auto end = image_->image->capture(range, wait);
  Status status = end.status();
  if (end.ok() && wait) status = store_->sync(*end);
  if (end.ok() && !wait) soon_.emplace_back(commit, *end);
  if (store_->log().head() == head) history.wrote_nothing(commit);
  // Where there is no space to grow ahead, the image asks for what it needs.
  const bool asked_for_less = status.ok() && volume.faults().fired(SimFaults::Kind::no_space) > no_space_before;
  const bool ok = asked_for_less || (status.category != Errc::full && passed(status, "msync", before));
  if (wait || !ok) settle(commit, ok);
  if (!ok) return;
  region_content_["file"] = content;
  image_->captured = std::move(content);
  image_->shortest_bytes = kWholeFile;
}

void Run::roll_image_back() {
  if (image_ == nullptr) return;
  const std::uint64_t before = fired();
  const bool ok = passed(image_->image->rollback({0, kWholeFile}), "MS_INVALIDATE", before);
  if (store_->log().poisoned()) now_poisoned();
  if (!ok || volume.faults().fired(SimFaults::Kind::flip_bit) > 0) {
    image_ = nullptr;  // some of it may be undone
    return;
  }
  image_->expected = image_->captured;
  image_->shortest_bytes = kWholeFile;
  std::vector<std::byte> found(image_->expected.size() + 1);
  const auto size = ::pread(image_->image->descriptor(), found.data(), found.size(), 0);
  found.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  if (found != image_->expected) broken("after MS_INVALIDATE an image has other bytes than were captured last");
}

void Run::detach_image() {
  if (image_ == nullptr) return;
  image_->detached = image_->image->take_memory();
  image_->image = nullptr;
  detached_ = std::move(image_);
  drop_regions();
  // A power cut may bring the name of the log back, so the removal is never acknowledged by itself.
  (void)history.started("close and remove the log", [](Content& content) { content.exists = false; }, now());
  const std::uint64_t before = fired();
  const bool ok = passed(store_->close_and_remove_log(), "close", before);
  if (ok && poisoned_) broken("a poisoned store was closed in good order");
  store_ = nullptr;
  poisoned_ = false;
  creation_.reset();
  created_ = false;
}

void Run::attach_image() {
  if (store_ == nullptr || image_ != nullptr || detached_ == nullptr || !find("file").has_value()) return;
  const std::unique_ptr<Image> left = std::move(detached_);
  const std::uint64_t before = fired();
  auto image = FileImage::open(*store_, kAheadBytes, std::move(left->detached));
  const bool ok = passed(image.status(), "attaching an image", before);
  if (store_->log().poisoned()) now_poisoned();
  if (!ok) return;
  auto made = std::make_unique<Image>();
  made->image = std::move(*image);
  made->mapping = std::exchange(left->mapping, nullptr);
  if (!made->image->watch(made->mapping, kMappedBytes, 0).ok()) broken("an image cannot be watched");
  made->expected = std::move(left->expected);
  made->captured = region_content_["file"];
  image_ = std::move(made);
}

void Run::store_detached(std::uint64_t offset, std::uint64_t bytes) {
  if (detached_ == nullptr || offset + bytes > std::min<std::uint64_t>(detached_->expected.size(), kMappedBytes))
    return;
  const auto content = bytes_of(fill_of(part_++), {"file", offset, bytes});
  std::memcpy(detached_->mapping + offset, content.data(), bytes);
  std::memcpy(detached_->expected.data() + offset, content.data(), bytes);
}

bool Run::mark_use() {
  if (store_ == nullptr) return false;
  const std::uint64_t before = fired();
  const bool ok = passed(store_->mark_use(stores::kStructureMagic, false), "the mark of use", before);
  if (store_->log().poisoned()) now_poisoned();
  return ok;
}

// ---- workloads -------------------------------------------------------------------------------------------------

namespace {

const Step kMapImage{"map the file", [](Run& run) { run.map_image(); }};
const Step kSyncImage{"msync, MS_SYNC", [](Run& run) { run.sync_image(); }};
const Step kSyncSoon{"msync, MS_ASYNC", [](Run& run) { run.sync_image({0, kWholeFile}, false); }};
const Step kWait{"wait for those", [](Run& run) { run.wait(); }};
const Step kRollBack{"msync, MS_INVALIDATE", [](Run& run) { run.roll_image_back(); }};

Step store_image(std::uint64_t offset, std::uint64_t bytes) {
  return {fmt::format("store to the mapping at [{}..{})", offset, offset + bytes),
          [=](Run& run) { run.store_image(offset, bytes); }};
}
Step write_image(std::uint64_t offset, std::uint64_t bytes) {
  return {fmt::format("pwrite [{}..{})", offset, offset + bytes), [=](Run& run) { run.write_image(offset, bytes); }};
}
Step cut_image(std::uint64_t size) {
  return {fmt::format("ftruncate to {}", size), [=](Run& run) { run.cut_image(size); }};
}
Step sync_range(std::uint64_t offset, std::uint64_t bytes) {
  return {fmt::format("msync [{}..{}), MS_SYNC", offset, offset + bytes),
          [=](Run& run) { run.sync_image({offset, bytes}); }};
}

}  // namespace

std::vector<Step> file_image_syncs(Random& random) {
  const std::uint64_t shift = random.below(300);
  return {open(),
          kMapImage,
          store_image(100, 50 + shift),
          write_image(4090, 20),
          kSyncImage,
          store_image(120, 5),
          write_image(4800, 300 + shift),  // beyond the end
          store_image(4900, 10),
          sync_range(4096, 100),
          sync_range(0, 4096),
          kSyncSoon,
          write_image(0, 4),
          kSyncSoon,
          store_image(30, 9),
          kRollBack,
          store_image(60, 9),
          kSyncImage,
          kWait,
          abandon(),
          open(),
          kMapImage,
          store_image(10, 600 + shift),
          kSyncImage,
          checkpoint(),
          write_image(9000, 100),
          kRollBack,
          write_image(8000, 100 + shift),
          kSyncImage,
          store_image(20, 3),  // never synced
          close(),
          open(),
          kMapImage,
          store_image(1, 1),
          kSyncImage};
}

std::vector<Step> file_image_lengths(Random& random) {
  const std::uint64_t shift = random.below(300);
  return {open(),
          kMapImage,
          cut_image(3000 + shift),
          kSyncImage,
          cut_image(9001),  // what was cut off is zeros
          sync_range(0, 1),
          write_image(8990, 4000),
          kSyncImage,
          checkpoint(),
          cut_image(100),
          write_image(6000, 50 + shift),
          kSyncImage,
          cut_image(0),
          kSyncSoon,
          write_image(10, 5000),
          store_image(4100, 5),
          kSyncImage,
          cut_image(4096),
          cut_image(5003),
          kRollBack,
          kSyncImage,
          abandon(),
          open(),
          kMapImage,
          cut_image(12000),
          kSyncImage,
          cut_image(2000),
          kSyncImage,
          close()};
}

std::vector<Step> random_file_image(Random& random) {
  std::vector<Step> steps{open(), kMapImage};
  for (int i = 0; i < 16; ++i) {
    const std::uint64_t offset = random.below(11000);
    if (random.one_in(3)) steps.push_back(cut_image(random.below(13000)));
    steps.push_back(random.one_in(2) ? store_image(offset, 1 + random.below(400))
                                     : write_image(offset, 1 + random.below(900)));
    if (random.one_in(4)) steps.push_back(checkpoint());
    if (random.one_in(5)) steps.push_back(kRollBack);
    if (random.one_in(3)) steps.push_back(sync_range(random.below(9000), 1 + random.below(5000)));
    if (random.one_in(2)) steps.push_back(random.one_in(3) ? kSyncSoon : kSyncImage);
    if (random.one_in(8)) {
      steps.push_back(random.one_in(2) ? abandon() : close());
      steps.push_back(open());
      steps.push_back(kMapImage);
    }
  }
  steps.push_back(kSyncImage);
  return steps;
}

// Pages outside of the range of an msync, in a file that was cut and grows again up to a length that it once had.
std::vector<Step> file_image_regrown(Random& random) {
  const std::uint64_t shift = random.below(300);
  return {open(),
          kMapImage,
          write_image(0, 5 * kPageBytes),
          kSyncImage,
          checkpoint(),
          cut_image(5000 + shift),
          kSyncImage,
          cut_image(5 * kPageBytes),  // regrown after a commit of the cut
          store_image(4 * kPageBytes + 10, 200),
          store_image(5100, 20),
          store_image(30, 40 + shift),
          sync_range(0, 100),
          kRollBack,
          store_image(3 * kPageBytes, 100),
          store_image(50, 8),
          sync_range(0, 100),
          abandon(),
          open(),
          kMapImage,
          write_image(0, 5 * kPageBytes),
          kSyncImage,
          cut_image(6000 + shift),  // cut and regrown between two commits
          cut_image(5 * kPageBytes - shift),
          store_image(4 * kPageBytes, 200),
          store_image(4200, 10),
          sync_range(2 * kPageBytes, 100),
          checkpoint(),
          sync_range(4096, 10),
          kRollBack,
          store_image(3 * kPageBytes, 10),
          cut_image(4 * kPageBytes),
          cut_image(4 * kPageBytes + 1000),
          sync_range(0, 1),
          kSyncImage,
          close()};
}

// What `memlith run` does around a rename: a commit, the store is closed, its log goes, and a new one comes.
std::vector<Step> file_image_detached(Random& random) {
  const std::uint64_t shift = random.below(300);
  const Step detach{"close the store and remove its log", [](Run& run) { run.detach_image(); }};
  const Step attach{"attach the image", [](Run& run) { run.attach_image(); }};
  const Step store_between{"store to the mapping", [=](Run& run) { run.store_detached(4000, 200 + shift); }};
  return {open(),
          kMapImage,
          store_image(100, 50 + shift),
          write_image(4900, 300),
          kSyncImage,
          detach,
          store_between,
          open(),
          attach,
          kSyncImage,
          store_image(10, 30),
          kSyncSoon,
          cut_image(3000 + shift),
          kSyncImage,
          detach,
          open(),
          attach,
          kSyncImage,
          store_image(7, 7),
          kSyncImage,
          close()};
}

// The first bytes of the file change, too; its length does not go below that of the mark.
std::vector<Step> guarded_file(Random& random) {
  const std::uint64_t shift = random.below(300);
  return {open(),
          kMapImage,
          close(),  // nothing was committed
          open(),
          kMapImage,
          store_image(4, 50 + shift),
          kSyncImage,
          write_image(10, 3),
          kSyncSoon,
          write_image(4800, 300 + shift),  // beyond the end
          kSyncImage,
          checkpoint(),
          write_image(0, 20),
          kRollBack,
          store_image(12, 9),
          kSyncImage,
          abandon(),
          open(),
          kMapImage,
          cut_image(700 + shift),
          kSyncImage,
          store_image(0, 16),
          kSyncImage,
          close(),
          open(),
          kMapImage,
          write_image(2, 5),
          kSyncImage,
          close()};
}

// A sparse file, which gets its room at each opening.
std::vector<Step> holes(Random& random) {
  const std::uint64_t shift = random.below(200);
  const Step sparse{"the file has holes", [](Run& run) { run.make_holes(); }};
  const Step full{"look for holes", [](Run& run) { run.check_holes(); }};
  return {sparse,
          open(),
          full,
          commit({{"file", 100, 600 + shift}}),
          close(),
          sparse,
          open(),
          full,
          commit({{"file", 2000, 900}}),
          checkpoint(),
          commit({{"file", 2500 + shift, 900}}),
          abandon(),
          sparse,
          open(),
          full,
          commit({{"file", 0, 64}}),
          close()};
}

// The first 16 bytes are the mark's and the moment's; commits change what follows.
std::vector<Step> moments(Random& random) {
  const std::uint64_t shift = random.below(200);
  return {open(),
          commit({{"file", 16, 600}}),
          checkpoint(),
          commit({{"file", 400 + shift, 900}}),
          commit({{"file", 3000, 300}}),
          checkpoint(),
          abandon(),
          open(),
          commit({{"file", 600, 300 + shift}}),
          abandon(),
          open(),
          resize_file(7000 + shift, {"file", 5000, 900}),
          checkpoint(),
          commit({{"file", 100, 50}}),
          close(),
          open(),
          commit({{"file", 16, 2000 + shift}}),
          close()};
}

namespace {
const Step kMarkUse{"mark the file as in use", [](Run& run) { (void)run.mark_use(); }};

// Nothing is committed where the structure cannot be opened. A later life begins with any step, so each one opens it.
Step in_use(const Step& step) {
  const auto opened = [](const std::function<void(Run&)>& act) -> std::function<void(Run&)> {
    if (act == nullptr) return nullptr;
    return [act](Run& run) {
      if (run.mark_use()) act(run);
    };
  };
  return {step.text, opened(step.act), opened(step.again)};
}
}  // namespace

// What opening a structure does before its first commit. Commits change what follows the first 24 bytes.
std::vector<Step> used_file(Random& random) {
  const std::uint64_t shift = random.below(200);
  return {open(),
          kMarkUse,
          close(),  // nothing was committed
          open(),
          kMarkUse,
          in_use(commit({{"file", 24, 600}})),
          checkpoint(),
          in_use(commit({{"file", 400 + shift, 900}})),
          kMarkUse,  // closed and opened again within the store
          in_use(commit({{"file", 3000, 300}})),
          abandon(),
          open(),
          kMarkUse,
          in_use(commit({{"file", 600, 300 + shift}})),
          close(),
          open(),
          kMarkUse,
          in_use(resize_file(7000 + shift, {"file", 5000, 900})),
          in_use(commit({{"file", 100, 50}})),
          abandon(),
          open(),  // by a program that opens no structure
          close(),
          open(),
          kMarkUse,
          in_use(commit({{"file", 24, 2000 + shift}})),
          close()};
}

std::vector<Step> random_used_file(Random& random) {
  std::vector<Step> steps{open(), kMarkUse};
  std::uint64_t size = 5003;
  for (int i = 0; i < 14; ++i) {
    steps.push_back(in_use(commit({{"file", 24 + random.below(2500), 1 + random.below(500)}})));
    if (random.one_in(3)) steps.push_back(checkpoint());
    if (random.one_in(5))
      steps.push_back(in_use(resize_file(size += random.below(900), {"file", 24 + random.below(64), 90})));
    if (random.one_in(5)) {
      steps.push_back(random.one_in(2) ? abandon() : close());
      steps.push_back(open());
      if (random.one_in(4)) steps.push_back(close()), steps.push_back(open());
      steps.push_back(kMarkUse);
    }
  }
  return steps;
}

// Moments in an order that is drawn. The file only grows: a close cuts off what a shorter file has too much after its
// log is clean, and until then the length is no part of the moment.
std::vector<Step> random_moments(Random& random) {
  std::vector<Step> steps{open()};
  std::uint64_t size = 5003;
  for (int i = 0; i < 14; ++i) {
    const std::uint64_t offset = 16 + random.below(2500);
    steps.push_back(commit({{"file", offset, 1 + random.below(500)}}));
    if (random.one_in(3)) steps.push_back(checkpoint());
    if (random.one_in(5)) steps.push_back(resize_file(size += random.below(900), {"file", 16 + random.below(64), 90}));
    if (random.one_in(6)) steps.push_back(random.one_in(2) ? abandon() : close()), steps.push_back(open());
  }
  return steps;
}

std::span<const Workload> image_workloads() {
  static const Workload kAll[] = {
      {.name = "moments",
       .sentence = "a file with a mark; the file or its log may be replaced by an older copy",
       .options = stores::marked_file,
       .steps = moments,
       .start = stores::marked_image,
       .before = stores::marked_content},
      {.name = "moments-random",
       .sentence = "the same, drawn by seed",
       .options = stores::marked_file,
       .steps = random_moments,
       .start = stores::marked_image,
       .before = stores::marked_content},
      {.name = "used-file",
       .sentence = "the file of a structure, which has the mark of use while it is open",
       .options = stores::file,
       .steps = used_file,
       .marks_use = true,
       .start = stores::structure_image,
       .before = stores::structure_content},
      {.name = "used-file-random",
       .sentence = "the same, drawn by seed",
       .options = stores::file,
       .steps = random_used_file,
       .marks_use = true,
       .start = stores::structure_image,
       .before = stores::structure_content},
      {.name = "holes",
       .sentence = "a sparse file, which gets room for its holes when it is opened",
       .options = stores::file,
       .steps = holes,
       .start = stores::file_image,
       .before = stores::file_content},
      {.name = "file-image",
       .sentence = "msync of an ordinary file that a program maps and writes",
       .options = stores::file_wide_slots,
       .steps = file_image_syncs,
       .start = stores::file_image,
       .before = stores::file_content},
      {.name = "file-image-lengths",
       .sentence = "such a file is cut and grown between its commits",
       .options = stores::file_wide_slots,
       .steps = file_image_lengths,
       .start = stores::file_image,
       .before = stores::file_content},
      {.name = "file-image-regrown",
       .sentence = "parts of such a file are committed after it was cut and has grown again",
       .options = stores::file_wide_slots,
       .steps = file_image_regrown,
       .start = stores::file_image,
       .before = stores::file_content},
      {.name = "random-file-image",
       .sentence = "histories of such a file drawn by seed",
       .options = stores::file_wide_slots,
       .steps = random_file_image,
       .start = stores::file_image,
       .before = stores::file_content},
      {.name = "file-image-detached",
       .sentence = "such a file is closed and gets a new log, while its image goes on",
       .options = stores::file_wide_slots,
       .steps = file_image_detached,
       .with_call_faults = false,  // after a removal that failed it is unknown whether there is a log
       .start = stores::file_image,
       .before = stores::file_content},
      {.name = "guarded-file",
       .sentence = "such a file, with the mark of the guard in the place of its first bytes",
       .options = stores::guarded_file,
       .steps = guarded_file,
       .start = stores::file_image,
       .before = stores::file_content},
      {.name = "guarded-file-random",
       .sentence = "histories of a guarded file drawn by seed",
       .options = stores::guarded_file,
       .steps = random_file_image,
       .start = stores::file_image,
       .before = stores::file_content},
  };
  return kAll;
}

}  // namespace memlith::lab
