// Workloads of several files that are committed together (store/common_log.hpp).
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "files/image.hpp"
#include "region/address.hpp"
#include "steps.hpp"
#include "store/common_log.hpp"
#include "workload.hpp"
#include "workload_stores.hpp"

namespace memlith::lab {

using namespace core;

namespace {

constexpr std::uint64_t kMappedBytes = 32 * kKiB;
constexpr std::uint64_t kAheadBytes = 4 * kKiB;
using Bytes = std::vector<std::byte>;

// The files of a run, mapped, and the log of their common commits.
struct CommonLife final : Structure {
  struct File {
    std::string name;  // of its object
    Store* store = nullptr;
    std::unique_ptr<FileImage> image;
    Bytes expected;                 // what the image must show
    std::vector<std::size_t> soon;  // commits that were not waited for
  };
  using Files = std::vector<std::size_t>;

  using Structure::Structure;

  // False: it failed.
  bool map(const std::string& name, Store& store);
  void store(std::size_t file, std::uint64_t offset, std::uint64_t bytes);
  void cut(std::size_t file, std::uint64_t size);
  void commit(Files which);
  // The program stores to the first of them while the commit is written.
  void commit_beside_stores(Files which);
  void sync(std::size_t file, bool wait);
  void checkpoint(std::size_t file);
  void close_file(std::size_t file);
  void open_file(std::size_t file);
  void close_all();

  [[nodiscard]] File* at(std::size_t file) {
    return !run.poisoned && file < files.size() && files[file].image != nullptr ? &files[file] : nullptr;
  }
  void commit_images(Files which, const std::function<void()>& beside);
  void note(std::size_t commit, Status status, const Files& which, std::uint64_t fired_before, std::uint64_t head);
  [[nodiscard]] std::uint64_t heads() const;
  Status close_one(File& file);

  StoreVolume volume;
  std::vector<File> files;
  std::unique_ptr<CommonLog> common;
  bool failed = false;
};

bool CommonLife::map(const std::string& name, Store& store) {
  const std::uint64_t before = run.fired();
  const auto room = find_room(kMappedBytes, kMappedBytes);
  if (!room.ok()) run.broken("there are no addresses for an image");
  if (!room.ok()) return false;
  auto opened = FileImage::open_private(store, *room, kAheadBytes);
  if (!run.passed(opened.status(), "opening an image", before)) return false;
  const std::uint64_t bytes = (*opened)->committed_bytes();
  Bytes shown((*opened)->address(), (*opened)->address() + bytes);
  run.expect_persisted(name, shown, "an image has other bytes than its file");
  const auto same = std::ranges::find(files, name, &File::name);
  File& file = same == files.end() ? files.emplace_back() : *same;
  file = {name, &store, std::move(*opened), std::move(shown), {}};
  return true;
}

void map_all(Run& run) {
  if (run.store == nullptr || run.find<CommonLife>() != nullptr) return;
  auto life = std::make_unique<CommonLife>(run);
  if (!life->map("file", *run.store)) return;
  for (const auto& [name, store] : run.beside) {
    if (!life->map(name, *store)) return;
  }
  run.keep(std::move(life));
}

void CommonLife::store(std::size_t number, std::uint64_t offset, std::uint64_t bytes) {
  File* const file = at(number);
  if (file == nullptr || offset + bytes > file->expected.size()) return;
  const Bytes content = run.next_bytes({file->name, offset, bytes});
  std::memcpy(file->image->address() + offset, content.data(), bytes);
  std::memcpy(file->expected.data() + offset, content.data(), bytes);
}

void CommonLife::cut(std::size_t number, std::uint64_t size) {
  File* const file = at(number);
  if (file == nullptr) return;
  const auto no_space = [this] { return run.volume.faults().fired(SimFaults::Kind::no_space); };
  const std::uint64_t before = run.fired();
  const std::uint64_t no_space_before = no_space();
  const Status status = file->image->cut(size);
  if (status.ok()) run.forgiven = no_space() - no_space_before;
  if (run.passed(status, "ftruncate", before)) file->expected.resize(size);
}

std::uint64_t CommonLife::heads() const {
  std::uint64_t sum = 0;
  for (const File& file : files) sum += file.image != nullptr ? file.store->log().head().value : 0;
  return sum;
}

void CommonLife::note(std::size_t commit, Status status, const Files& which, std::uint64_t fired_before,
                      std::uint64_t head) {
  if (heads() == head && status.ok()) run.history.wrote_nothing(commit);
  const bool ok = status.category != Errc::full && run.passed(status, "a commit", fired_before);
  for (const std::size_t each : which) {
    for (const std::size_t earlier : files[each].soon) {
      if (ok) run.history.acknowledged(earlier, run.now());
    }
    files[each].soon.clear();
  }
  run.note_outcome(commit, ok);
}

void CommonLife::commit_images(Files which, const std::function<void()>& beside) {
  std::erase_if(which, [this](std::size_t each) { return at(each) == nullptr; });
  if (which.empty()) return;
  std::vector<FileImage::Wanted> wanted;
  std::vector<std::pair<std::string, Bytes>> contents;
  for (const std::size_t each : which) {
    wanted.push_back({files[each].image.get(), {0, kWholeFile}});
    contents.emplace_back(files[each].name, files[each].expected);
  }
  const std::size_t commit = run.history.started(
      fmt::format("commit of {} files", which.size()),
      [contents](Content& all) {
        for (const auto& [name, bytes] : contents) all.objects[name] = bytes;
      },
      run.now());
  const std::uint64_t before = run.fired();
  const std::uint64_t head = heads();
  run.volume.before_transfer = beside;
  const auto make = [this]() -> Result<CommonLog*> {
    if (common != nullptr && !common->is_over()) return common.get();
    common = nullptr;
    std::uint64_t identity = kIdentity + 256;
    for (bool taken = true; taken; ++identity) {
      const std::string name = common_log_name(identity);
      taken = *run.volume.exists(name) || *run.volume.exists(name + ".new");
      if (!taken) break;
    }
    set_identity(identity);
    auto made = CommonLog::make(volume.over(run.volume), *files.front().store);
    set_identity(kIdentity);
    MEMLITH_TRY_ASSIGN(common, std::move(made));
    return common.get();
  };
  const auto no_space = [this] { return run.volume.faults().fired(SimFaults::Kind::no_space); };
  const std::uint64_t no_space_before = no_space();
  const Status status = FileImage::commit_together(wanted, make);
  if (status.ok()) run.forgiven = no_space() - no_space_before;
  run.volume.before_transfer = nullptr;
  note(commit, status, which, before, head);
  for (const auto& [name, bytes] : contents) run.region_content[name] = bytes;
  if (!status.ok()) run.region_content.clear();
}

void CommonLife::commit(Files which) { commit_images(std::move(which), nullptr); }

void CommonLife::commit_beside_stores(Files which) {
  File* const file = at(which.front());
  const bool joined = std::ranges::all_of(which, [this](std::size_t each) {
    return at(each) != nullptr && common != nullptr && common->has(*files[each].store);
  });
  if (!joined || file->expected.size() < 400) return commit(std::move(which));
  int times = 0;  // the first transfer is the decision
  commit_images(std::move(which), [&] {
    if (++times == 1) std::memset(file->image->address() + 300, 0x5a, 40);
  });
  // The commit has none of them, or it has all, which the next one tells.
  if (times > 0) std::memset(file->expected.data() + 300, 0x5a, 40);
}

void CommonLife::sync(std::size_t number, bool wait) {
  File* const file = at(number);
  if (file == nullptr) return;
  const std::size_t commit = run.history.started(
      "commit of " + file->name,
      [name = file->name, bytes = file->expected](Content& all) { all.objects[name] = bytes; }, run.now());
  const std::uint64_t before = run.fired();
  const std::uint64_t head = heads();
  const auto no_space = [this] { return run.volume.faults().fired(SimFaults::Kind::no_space); };
  const std::uint64_t no_space_before = no_space();
  const auto end = file->image->capture({0, kWholeFile}, wait);
  Status status = end.status();
  if (status.ok() && wait && !file->image->is_decided(*end)) status = file->store->sync(*end);
  if (status.ok()) run.forgiven = no_space() - no_space_before;
  run.region_content[file->name] = file->expected;
  if (wait || !status.ok()) return note(commit, status, {number}, before, head);
  if (heads() == head) return run.history.wrote_nothing(commit);
  (void)run.passed(status, "a commit", before);
  file->soon.push_back(commit);
}

void CommonLife::checkpoint(std::size_t number) {
  File* const file = at(number);
  if (file == nullptr) return;
  const std::uint64_t before = run.fired();
  if (!run.passed(file->store->checkpoint(), "checkpoint", before) && run.fired() > before) run.poisoned = true;
}

// As closing a mapped file does.
Status CommonLife::close_one(File& file) {
  file.image = nullptr;
  const std::uint64_t log_id = file.store->log().log_id();
  const bool joined = common != nullptr && common->has(*file.store);
  if (joined) {
    const LockGuard lock(common->mutex());
    (void)common->leave(*file.store);
  }
  const Status status = file.store->close();
  const std::uint64_t before = run.fired();
  if (joined && status.ok()) {
    const LockGuard lock(common->mutex());
    common->has_left(log_id);
  }
  run.forgiven = run.fired() - before;
  if (common != nullptr && common->is_over()) common = nullptr;
  if (file.name == "file") {
    run.store = nullptr;
  } else {
    run.beside.erase(file.name);
  }
  file.store = nullptr;
  return status;
}

void CommonLife::close_file(std::size_t number) {
  File* const file = at(number);
  if (file == nullptr || number == 0) return;
  const std::uint64_t before = run.fired();
  if (!run.passed(close_one(*file), "close", before)) run.poisoned = true;
}

void CommonLife::open_file(std::size_t number) {
  if (run.poisoned || number >= files.size() || files[number].image != nullptr) return;
  const std::string name = files[number].name;
  Content content;
  if (run.open_beside(name, content)) (void)map(name, *run.beside.at(name));
}

void CommonLife::close_all() {
  Run& its_run = run;
  bool all = true;
  for (std::size_t number = files.size(); number-- > 0;) {
    File& file = files[number];
    if (file.image == nullptr) continue;
    const std::uint64_t before = its_run.fired();
    const Status status = close_one(file);
    all = its_run.passed(status, "close", before) && all;
  }
  its_run.drop<CommonLife>();  // this
  its_run.store = nullptr;
  its_run.beside.clear();
  its_run.poisoned = false;
  if (all) its_run.history.closed(its_run.now());
}

// ---- workloads -------------------------------------------------------------------------------------------------

const Step kMapAll = step("map the files", map_all);
const Step kCloseAll = step("close the files", &CommonLife::close_all);

Step store_to(std::size_t file, std::uint64_t offset, std::uint64_t bytes) {
  return step(fmt::format("store to file {} at [{}..{})", file, offset, offset + bytes), &CommonLife::store, file,
              offset, bytes);
}
Step cut(std::size_t file, std::uint64_t size) {
  return step(fmt::format("cut file {} to {}", file, size), &CommonLife::cut, file, size);
}
Step together(const std::vector<std::size_t>& files) {
  return step(fmt::format("commit files {}", fmt::join(files, ", ")), &CommonLife::commit, files);
}
Step together_beside_stores(const std::vector<std::size_t>& files) {
  Step made = step(fmt::format("commit files {}, stored to meanwhile", fmt::join(files, ", ")),
                   &CommonLife::commit_beside_stores, files);
  made.again = together(files).act;
  return made;
}
Step alone(std::size_t file, bool wait) {
  return step(fmt::format("commit file {}{}", file, wait ? "" : ", without waiting"), &CommonLife::sync, file, wait);
}
Step checkpoint_of(std::size_t file) {
  return step(fmt::format("checkpoint of file {}", file), &CommonLife::checkpoint, file);
}
Step close_of(std::size_t file) { return step(fmt::format("close file {}", file), &CommonLife::close_file, file); }
Step open_of(std::size_t file) { return step(fmt::format("open file {}", file), &CommonLife::open_file, file); }

// A program that goes on after a crash maps the files first.
std::vector<Step> mapped(std::vector<Step> steps) {
  for (Step& each : steps) {
    if (each.text != open().text && each.text != abandon().text) each = behind(kMapAll, each);
  }
  return steps;
}

std::vector<Step> common_files(Random& random) {
  const std::uint64_t shift = random.below(200);
  return mapped({open(),
                 kMapAll,
                 store_to(0, 100, 50 + shift),
                 store_to(1, 4000, 300),
                 store_to(2, 10, 20),
                 together({0, 1, 2}),
                 alone(1, true),  // nothing to do
                 store_to(0, 120, 30),
                 alone(0, true),
                 store_to(0, 90, 40),
                 store_to(1, 4010, 20 + shift),
                 together({0, 1}),
                 checkpoint_of(0),
                 store_to(1, 100, 700),
                 store_to(2, 100, 700),
                 together({1, 2}),
                 store_to(2, 110, 50),
                 alone(2, false),
                 store_to(2, 120, 10 + shift),
                 store_to(0, 3000, 600),
                 together({0, 1, 2}),
                 store_to(0, 300, 900),
                 store_to(1, 300, 900),
                 together({0, 1}),
                 store_to(0, 350, 900),
                 store_to(2, 350, 900),
                 together({0, 2}),
                 abandon(),
                 open(),
                 kMapAll,
                 store_to(0, 0, 16),
                 store_to(2, 0, 16),
                 together({0, 2}),
                 kCloseAll});
}

std::vector<Step> common_closing(Random& random) {
  const std::uint64_t shift = random.below(200);
  return mapped({open(),
                 kMapAll,
                 store_to(0, 100, 50 + shift),
                 store_to(1, 100, 50),
                 store_to(2, 100, 50),
                 together({0, 1, 2}),
                 store_to(0, 200, 50),
                 store_to(1, 210, 50 + shift),
                 together({0, 1}),
                 close_of(1),
                 store_to(0, 1000, 90),
                 store_to(2, 1000, 90),
                 together({0, 2}),
                 open_of(1),
                 store_to(1, 20, 90),
                 store_to(2, 20, 90 + shift),
                 together({1, 2}),
                 close_of(2),
                 close_of(1),
                 open_of(2),
                 store_to(0, 40, 9),
                 store_to(2, 40, 9),
                 together({0, 2}),
                 kCloseAll,
                 open(),
                 kMapAll,
                 store_to(1, 0, 30),
                 store_to(0, 0, 30),
                 together({0, 1}),
                 abandon(),
                 open(),
                 kMapAll,
                 store_to(1, 0, 30),
                 alone(1, true),
                 kCloseAll});
}

std::vector<Step> common_lengths(Random& random) {
  const std::uint64_t shift = random.below(200);
  return mapped({open(),
                 kMapAll,
                 cut(0, 9000 + shift),
                 store_to(0, 8000, 900),
                 cut(1, 2000),
                 together({0, 1}),
                 cut(1, 7000),
                 store_to(1, 6900, 90),
                 store_to(2, 5, 5),
                 together({1, 2}),
                 cut(0, 100),
                 cut(2, 13000 + shift),
                 together({0, 2}),
                 cut(0, 6000),
                 alone(0, true),
                 store_to(0, 5000, 400),
                 cut(2, 4096),
                 together({0, 1, 2}),
                 abandon(),
                 open(),
                 kMapAll,
                 cut(2, 12000),
                 store_to(2, 11000, 90),
                 store_to(0, 30, 40),
                 together({0, 2}),
                 kCloseAll});
}

std::vector<Step> common_stores(Random& random) {
  const std::uint64_t shift = random.below(200);
  return mapped({open(),
                 kMapAll,
                 store_to(0, 0, 20),
                 store_to(1, 0, 20),
                 store_to(2, 0, 20),
                 together({0, 1, 2}),
                 store_to(0, 0, 4096),  // the page is logged from the image, not from a copy
                 store_to(1, 250, 120 + shift),
                 together_beside_stores({0, 1}),
                 checkpoint_of(0),  // its own log is on the medium, and no commit has what was stored
                 store_to(0, 260, 10),
                 store_to(1, 260, 10),
                 together({0, 1}),
                 store_to(1, 600, 10),
                 store_to(2, 600, 10),
                 together({1, 2}),
                 store_to(0, 290, 60),
                 store_to(2, 290, 60 + shift),
                 together_beside_stores({0, 2}),
                 together({0, 1}),
                 abandon()});
}

std::vector<Step> random_common(Random& random) {
  std::vector<Step> steps{open(), kMapAll};
  for (int i = 0; i < 12; ++i) {
    std::vector<std::size_t> files;
    for (std::size_t file = 0; file < 3; ++file) {
      if (random.one_in(3)) continue;
      files.push_back(file);
      if (random.one_in(5)) steps.push_back(cut(file, random.below(9000)));
      steps.push_back(store_to(file, random.below(4000), 1 + random.below(800)));
    }
    if (files.empty()) continue;
    if (random.one_in(6)) steps.push_back(alone(files.front(), false));
    steps.push_back(random.one_in(6) ? alone(files.front(), true) : together(files));
    if (random.one_in(6)) steps.push_back(checkpoint_of(random.below(3)));
    if (random.one_in(6)) {
      steps.push_back(random.one_in(2) ? abandon() : kCloseAll);
      steps.push_back(open());
      steps.push_back(kMapAll);
    } else if (random.one_in(6)) {
      const std::size_t file = 1 + random.below(2);
      steps.push_back(close_of(file));
      steps.push_back(open_of(file));
    }
  }
  return mapped(std::move(steps));
}

// A lie may take the newest commit of any of the logs.
constexpr Workload::How kThreeFiles{.lives_often = true,
                                    .starts_unproven = true,
                                    .dear = true,
                                    .start = stores::three_files,
                                    .before = stores::three_contents};

}  // namespace

std::span<const Workload> common_workloads() {
  static const Workload kAll[] = {
      {"common-files", "three files of which some are committed together, and some alone", stores::file, common_files,
       kThreeFiles},
      {"common-closing", "files of common commits are closed one by one, and opened again", stores::file,
       common_closing, kThreeFiles},
      {"common-lengths", "files of common commits are cut and grown", stores::file, common_lengths, kThreeFiles},
      {"common-stores", "the program stores to a file while it is committed together with others", stores::file,
       common_stores, kThreeFiles},
      {"common-random", "histories of three such files drawn by seed", stores::file, random_common, kThreeFiles},
  };
  return kAll;
}

}  // namespace memlith::lab
