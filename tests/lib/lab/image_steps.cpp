// Workloads of ordinary files: the working image, which memlith_msync and `memlith run` commit; the in-use header of a
// file.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "files/image.hpp"
#include "region/address.hpp"
#include "steps.hpp"
#include "workload.hpp"
#include "workload_stores.hpp"

namespace memlith::lab {

using namespace core;

namespace {

constexpr std::uint64_t kMappedBytes = 64 * kKiB;
constexpr std::uint64_t kAheadBytes = 4 * kKiB;

// ---- words -----------------------------------------------------------------------------------------------------

using Bytes = std::vector<std::byte>;

struct Unmap {
  void operator()(std::byte* begin) const { ::munmap(begin, kMappedBytes); }
};
using Mapping = std::unique_ptr<std::byte, Unmap>;

void store_through(Run& run, std::byte* mapped, Bytes& expected, std::uint64_t offset, std::uint64_t bytes) {
  if (offset + bytes > std::min<std::uint64_t>(expected.size(), kMappedBytes)) return;
  const Bytes content = run.next_bytes({"file", offset, bytes});
  std::memcpy(mapped + offset, content.data(), bytes);
  std::memcpy(expected.data() + offset, content.data(), bytes);
}

// The working image of a file: in a file in memory, or in private pages over the file.
struct ImageLife final : Structure {
  using Structure::Structure;

  void store(std::uint64_t offset, std::uint64_t bytes) { store_through(run, mapped(), expected, offset, bytes); }
  // Through the descriptor; without one, the file grows as far, and is stored to.
  void write(std::uint64_t offset, std::uint64_t bytes);
  void cut(std::uint64_t size);  // to any length
  void sync(Range range, bool wait);
  void roll_back();
  void release();  // of an image without a descriptor
  // Closes the store and removes its log; the image goes on.
  void detach();

  // False: it failed.
  bool open(Descriptor memory = Descriptor(-1)) {
    const std::uint64_t before = run.fired();
    const std::string_view what = memory.get() >= 0 ? "attaching an image" : "opening an image";
    auto opened = FileImage::open(*run.store, kAheadBytes, std::move(memory));
    if (!run.passed(opened.status(), what, before)) return false;
    image = std::move(*opened);
    return true;
  }
  bool open_private() {
    const std::uint64_t before = run.fired();
    const auto room = find_room(kMappedBytes, kMappedBytes);
    if (!room.ok()) run.broken("there are no addresses for an image");
    if (!room.ok()) return false;
    auto opened = FileImage::open_private(*run.store, *room, kAheadBytes);
    if (!run.passed(opened.status(), "opening an image", before)) return false;
    image = std::move(*opened);
    is_private = true;
    return true;
  }
  [[nodiscard]] std::byte* mapped() const { return is_private ? image->address() : mapping.get(); }
  [[nodiscard]] Bytes shown() const;
  void watch() {
    if (!image->watch(mapping.get(), kMappedBytes, 0).ok()) run.broken("an image cannot be watched");
  }

  std::unique_ptr<FileImage> image;
  bool is_private = false;
  Mapping mapping;                            // of a file in memory
  Bytes expected;                             // the content that it must have
  Bytes captured;                             // what a commit took last
  std::uint64_t shortest_bytes = kWholeFile;  // since that
};

// An image that has no store.
struct DetachedImage final : Structure {
  using Structure::Structure;

  void store(std::uint64_t offset, std::uint64_t bytes) { store_through(run, mapping.get(), expected, offset, bytes); }
  // The image is that of the file again, which gets what it lacks with the next commit.
  void attach();

  Descriptor memory;
  Mapping mapping;
  Bytes expected;
};

bool has_file(Run& run) {
  return run.store != nullptr && run.find<ImageLife>() == nullptr && run.info_of("file").has_value();
}

// It shows what was committed last.
void keep_image(Run& run, std::unique_ptr<ImageLife> life) {
  life->expected = life->shown();
  if (life->expected.size() != life->image->committed_bytes()) run.broken("an image has another length than its file");
  run.expect_persisted("file", life->expected, "an image has other bytes than its file");
  life->captured = life->expected;
  run.keep(std::move(life));
}

void map_image(Run& run) {
  if (!has_file(run)) return;
  auto life = std::make_unique<ImageLife>(run);
  if (!life->open()) return;
  const int fd = life->image->descriptor();
  void* const got = ::mmap(nullptr, kMappedBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (got == MAP_FAILED) return run.broken("an image cannot be mapped");
  life->mapping.reset(static_cast<std::byte*>(got));
  life->watch();
  keep_image(run, std::move(life));
}

void map_privately(Run& run) {
  if (!has_file(run)) return;
  auto life = std::make_unique<ImageLife>(run);
  if (life->open_private()) keep_image(run, std::move(life));
}

// Also what lies behind the committed end, if there is anything.
Bytes ImageLife::shown() const {
  const std::uint64_t size = image->committed_bytes();
  if (is_private) return {mapped(), mapped() + size};
  Bytes found(size + 1);
  const auto got = ::pread(image->descriptor(), found.data(), found.size(), 0);
  found.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return found;
}

void ImageLife::write(std::uint64_t offset, std::uint64_t bytes) {
  if (is_private) {
    if (offset + bytes > expected.size()) cut(offset + bytes);
    return store(offset, bytes);
  }
  const Bytes content = run.next_bytes({"file", offset, bytes});
  const auto done = ::pwrite(image->descriptor(), content.data(), bytes, static_cast<off_t>(offset));
  if (done != static_cast<ssize_t>(bytes) || !image->note(offset, bytes).ok()) {
    return run.broken("an image cannot be written");
  }
  expected.resize(std::max<std::uint64_t>(expected.size(), offset + bytes));
  std::memcpy(expected.data() + offset, content.data(), bytes);
}

void ImageLife::cut(std::uint64_t size) {
  const auto no_space = [this] { return run.volume.faults().fired(SimFaults::Kind::no_space); };
  const std::uint64_t before = run.fired();
  const std::uint64_t no_space_before = no_space();
  const Status status = image->cut(size);
  // Where there is no space to grow ahead, the image asks for what it needs.
  if (status.ok()) run.forgiven = no_space() - no_space_before;
  if (!run.passed(status, "ftruncate", before)) return;
  expected.resize(size);
  shortest_bytes = std::min(shortest_bytes, size);
}

void ImageLife::sync(Range range, bool wait) {
  Bytes content = expected;
  if (range.bytes != kWholeFile) {
    // Whole pages of the range are new, the others as they were; what was beyond the end, or cut off since, is zeros.
    const std::uint64_t kept = std::min<std::uint64_t>(captured.size(), shortest_bytes);
    for (std::uint64_t at = 0; at < content.size(); ++at) {
      const std::uint64_t page = round_down(at, kPageBytes);
      if (page + kPageBytes > range.offset && page < range.offset + range.bytes) continue;
      content[at] = at < kept ? captured[at] : std::byte{0};
    }
  }
  const auto no_space = [this] { return run.volume.faults().fired(SimFaults::Kind::no_space); };
  const bool ok = run.capture(
      wait ? "msync of the file" : "msync of the file, without waiting",
      [content](Content& all) { all.objects["file"] = content; }, "msync", wait,
      [&] {
        const std::uint64_t before = no_space();
        auto end = run.durable(image->capture(range, wait), wait);
        // Where there is no space to grow ahead, the image asks for what it needs.
        if (end.ok()) run.forgiven = no_space() - before;
        return end;
      });
  if (!ok) return;
  run.region_content["file"] = content;
  captured = std::move(content);
  shortest_bytes = kWholeFile;
}

void ImageLife::roll_back() {
  const std::uint64_t before = run.fired();
  const bool ok = run.passed(image->rollback({0, kWholeFile}), "MS_INVALIDATE", before);
  if (!ok || run.flipped()) return run.drop<ImageLife>();  // some of it may be undone
  expected = captured;
  shortest_bytes = kWholeFile;
  if (shown() != expected) run.broken("after MS_INVALIDATE an image has other bytes than were captured last");
}

void ImageLife::release() {
  if (!is_private) return;
  const std::uint64_t before = run.fired();
  (void)run.passed(image->release(), "a release of memory", before);
  const auto [found, meant] = std::mismatch(mapped(), mapped() + expected.size(), expected.begin());
  if (meant != expected.end() && !run.flipped()) {
    run.broken(fmt::format("after a release an image has {} at offset {}, where {} was stored",
                           std::to_integer<unsigned>(*found), found - mapped(), std::to_integer<unsigned>(*meant)));
  }
}

void ImageLife::detach() {
  auto left = std::make_unique<DetachedImage>(run);
  left->memory = image->take_memory();
  left->mapping = std::move(mapping);
  left->expected = std::move(expected);
  Run& its_run = run;
  its_run.close_and_remove_log();  // drops this
  its_run.keep(std::move(left));
}

void DetachedImage::attach() {
  if (!has_file(run)) return;
  auto life = std::make_unique<ImageLife>(run);
  if (life->open(std::move(memory))) {
    life->mapping = std::move(mapping);
    life->watch();
    life->expected = std::move(expected);
    life->captured = run.region_content["file"];
    run.keep(std::move(life));
  }
  run.drop<DetachedImage>();
}

// True while the structure is open.
bool put_in_use_header(Run& run) {
  if (run.store == nullptr) return false;
  const std::uint64_t before = run.fired();
  return run.passed(run.store->put_in_use_header(stores::kStructureMagic, false), "the in-use header", before);
}

// ---- workloads -------------------------------------------------------------------------------------------------

const Step kMapImage = step("map the file", map_image);
const Step kMapPrivately = step("map the file, without a descriptor", map_privately);
const Step kSyncImage = step("msync, MS_SYNC", &ImageLife::sync, Range{0, kWholeFile}, true);
const Step kSyncSoon = step("msync, MS_ASYNC", &ImageLife::sync, Range{0, kWholeFile}, false);
const Step kWait = step("wait for those", &Run::wait);
const Step kRelease = step("release memory", &ImageLife::release);
const Step kRollBack = step("msync, MS_INVALIDATE", &ImageLife::roll_back);

Step store_image(std::uint64_t offset, std::uint64_t bytes) {
  return step(fmt::format("store to the mapping at [{}..{})", offset, offset + bytes), &ImageLife::store, offset,
              bytes);
}
Step write_image(std::uint64_t offset, std::uint64_t bytes) {
  return step(fmt::format("pwrite [{}..{})", offset, offset + bytes), &ImageLife::write, offset, bytes);
}
Step cut_image(std::uint64_t size) { return step(fmt::format("ftruncate to {}", size), &ImageLife::cut, size); }
Step sync_range(std::uint64_t offset, std::uint64_t bytes) {
  return step(fmt::format("msync [{}..{}), MS_SYNC", offset, offset + bytes), &ImageLife::sync, Range{offset, bytes},
              true);
}

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
          kRelease,
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
          store_image(3000, 7),
          kRelease,
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
    if (random.one_in(6)) steps.push_back(kRelease);
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
          cut_image(2000 + shift),
          kSyncImage,
          cut_image(3 * kPageBytes),  // regrown, rolled back and regrown: only the memory has these zeros
          kRollBack,
          write_image(2 * kPageBytes + 1000, 40),
          checkpoint(),
          kRelease,
          kSyncImage,
          close()};
}

// The same steps for a file that is only mapped.
template <std::vector<Step> (*steps)(Random&)>
std::vector<Step> privately(Random& random) {
  std::vector<Step> all = steps(random);
  for (Step& each : all) {
    if (each.text == kMapImage.text) each = kMapPrivately;
  }
  return all;
}

// Holes get their space with the commits that change them.
std::vector<Step> kept_holes(Random& random) {
  const std::uint64_t shift = random.below(200);
  const Step sparse = step("the file has holes", &Run::make_holes);
  return {sparse,
          open(),
          kMapPrivately,
          store_image(10, 100 + shift),
          kSyncImage,
          store_image(4200, 300),
          sync_range(0, 100),
          kSyncImage,
          checkpoint(),
          write_image(5100 + shift, 900),
          kSyncImage,
          abandon(),
          sparse,
          open(),
          kMapPrivately,
          store_image(20, 50),
          kSyncSoon,
          cut_image(100),
          kSyncImage,
          cut_image(5003),
          kSyncImage,
          abandon(),
          sparse,
          open(),
          kMapPrivately,
          kRollBack,
          store_image(4900, 60),
          kSyncImage,
          close()};
}

// The steps of `memlith run` around a rename: a commit, the store is closed, its log goes, and a new one comes.
std::vector<Step> file_image_detached(Random& random) {
  const std::uint64_t shift = random.below(300);
  const Step detach = step("close the store and remove its log", &ImageLife::detach);
  const Step attach = step("attach the image", &DetachedImage::attach);
  const Step store_between = step("store to the mapping", &DetachedImage::store, 4000, 200 + shift);
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

// The first bytes of the file change, too; its length does not go below that of the in-use header.
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
  const Step sparse = step("the file has holes", &Run::make_holes);
  const Step full = step("look for holes", &Run::check_holes);
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

// The first 16 bytes are the in-use header's and the moment's; commits change what follows.
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

const Step kPutInUseHeader{"put the in-use header", [](Run& run) { (void)put_in_use_header(run); }};

// Nothing is committed where the structure cannot be opened. A later life begins with any step, so each one opens it.
Step in_use(const Step& step) {
  const auto opened = [](const std::function<void(Run&)>& act) -> std::function<void(Run&)> {
    if (act == nullptr) return nullptr;
    return [act](Run& run) {
      if (put_in_use_header(run)) act(run);
    };
  };
  return {step.text, opened(step.act), opened(step.again)};
}

// The opening of a structure before its first commit. Commits change what follows the first 24 bytes.
std::vector<Step> used_file(Random& random) {
  const std::uint64_t shift = random.below(200);
  return {open(),
          kPutInUseHeader,
          close(),  // nothing was committed
          open(),
          kPutInUseHeader,
          in_use(commit({{"file", 24, 600}})),
          checkpoint(),
          in_use(commit({{"file", 400 + shift, 900}})),
          kPutInUseHeader,  // closed and opened again within the store
          in_use(commit({{"file", 3000, 300}})),
          abandon(),
          open(),
          kPutInUseHeader,
          in_use(commit({{"file", 600, 300 + shift}})),
          close(),
          open(),
          kPutInUseHeader,
          in_use(resize_file(7000 + shift, {"file", 5000, 900})),
          in_use(commit({{"file", 100, 50}})),
          abandon(),
          open(),  // by a program that opens no structure
          close(),
          open(),
          kPutInUseHeader,
          in_use(commit({{"file", 24, 2000 + shift}})),
          close()};
}

std::vector<Step> random_used_file(Random& random) {
  std::vector<Step> steps{open(), kPutInUseHeader};
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
      steps.push_back(kPutInUseHeader);
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

}  // namespace

constexpr Workload::How kMarkedFile{.start = stores::marked_image, .before = stores::marked_content};
constexpr Workload::How kUsedFile{
    .structure_in_use = true, .start = stores::structure_image, .before = stores::structure_content};

std::span<const Workload> image_workloads() {
  static const Workload kAll[] = {
      {"moments", "a file with an in-use header; the file or its log may be replaced by an older copy",
       stores::in_use_file, moments, kMarkedFile},
      {"moments-random", "the same, drawn by seed", stores::in_use_file, random_moments, kMarkedFile},
      {"used-file", "the file of a structure, which has the in-use header while it is open", stores::file, used_file,
       kUsedFile},
      {"used-file-random", "the same, drawn by seed", stores::file, random_used_file, kUsedFile},
      {"holes", "a sparse file, which gets room for its holes when it is opened", stores::file, holes, kOrdinaryFile},
      {"file-image", "msync of an ordinary file that a program maps and writes", stores::file_wide_slots,
       file_image_syncs, kOrdinaryFile},
      {"file-mapped", "the same of a file that is only mapped, in private pages", stores::file_wide_slots,
       privately<file_image_syncs>, kOrdinaryFile},
      {"file-mapped-lengths", "such a file is cut and grown between its commits", stores::file_wide_slots,
       privately<file_image_lengths>, kOrdinaryFile},
      {"file-mapped-regrown", "parts of such a file are committed after it was cut and has grown again",
       stores::file_wide_slots, privately<file_image_regrown>, kOrdinaryFile},
      {"file-mapped-random", "histories of such a file drawn by seed", stores::file_wide_slots,
       privately<random_file_image>, kOrdinaryFile},
      {"file-mapped-holes", "such a file is sparse, and keeps its holes", stores::file_with_holes, kept_holes,
       kOrdinaryFile},
      {"file-image-lengths", "such a file is cut and grown between its commits", stores::file_wide_slots,
       file_image_lengths, kOrdinaryFile},
      {"file-image-regrown", "parts of such a file are committed after it was cut and has grown again",
       stores::file_wide_slots, file_image_regrown, kOrdinaryFile},
      {"random-file-image", "histories of such a file drawn by seed", stores::file_wide_slots, random_file_image,
       kOrdinaryFile},
      {"file-image-detached",
       "such a file is closed and gets a new log, while its image goes on",
       stores::file_wide_slots,
       file_image_detached,
       // After a removal that failed it is unknown whether there is a log.
       {.with_call_faults = false, .start = stores::file_image, .before = stores::file_content}},
      {"guarded-file", "such a file, with the in-use header of the guard in the place of its first bytes",
       stores::guarded_file, guarded_file, kOrdinaryFile},
      {"guarded-file-random", "histories of a guarded file drawn by seed", stores::guarded_file, random_file_image,
       kOrdinaryFile},
      {"guarded-mapped", "a guarded file that is only mapped", stores::guarded_file, privately<guarded_file>,
       kOrdinaryFile},
      {"guarded-mapped-random", "histories of such a file drawn by seed", stores::guarded_file,
       privately<random_file_image>, kOrdinaryFile},
  };
  return kAll;
}

}  // namespace memlith::lab
