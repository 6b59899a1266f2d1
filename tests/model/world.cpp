#include "model/world.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "support/temp_folder.hpp"

namespace memlith::test {

Calls& calls() {
  static Calls counts;
  return counts;
}

namespace {
constexpr std::size_t kLastSteps = 30;
constexpr int kFolderStores = 3;
constexpr int kFileStores = 2;
}  // namespace

World::World(std::string folder, std::uint64_t run_seed, std::uint64_t seed)
    : folder_(std::move(folder)), run_seed_(run_seed), seed_(seed), random_(seed) {
  for (std::size_t i = 0; i < folders_.size(); ++i) {
    folders_[i] = folder_ + "/place" + std::to_string(i);
    std::filesystem::create_directories(folders_[i]);
  }
  standing_ = folders_[0];
  EXPECT_EQ(::chdir(standing_.c_str()), 0);
  for (int i = 0; i < kFolderStores + kFileStores; ++i) {
    ModelStore store;
    store.one_file = i >= kFolderStores;
    store.path = folder_ + (store.one_file ? "/file" : "/store") + std::to_string(i);
    stores_.push_back(std::move(store));
  }
}

World::~World() {
  for (ModelStore& store : stores_) {
    if (store.handle != nullptr) (void)memlith_store_close(store.handle);
    if (store.event >= 0) ::close(store.event);
  }
  EXPECT_EQ(::chdir("/"), 0);
}

// ---- the story of a failure ------------------------------------------------------------------------------------

void World::note(const std::string& what) {
  last_.push_back(std::to_string(number_) + " " + what);
  if (last_.size() > kLastSteps) last_.pop_front();
}

std::string World::story() const {
  std::string text = "world " + std::to_string(seed_) + " of MEMLITH_SEED=" + std::to_string(run_seed_) +
                     ", which repeats the run; the last steps:\n";
  for (const std::string& line : last_) text += "  " + line + "\n";
  return text;
}

void World::expect(std::int32_t code, std::int32_t category, const char* what) {
  if (memlith_category(code) == category) return;
  std::array<char, 1024> sentence{};
  (void)MEMLITH_CALL(memlith_last_error, sentence.data(), sentence.size());
  ADD_FAILURE() << what << ": wanted " << MEMLITH_CALL(memlith_category_name, category) << ", got "
                << MEMLITH_CALL(memlith_category_name, code) << (code != MEMLITH_OK ? ": " : "")
                << (code != MEMLITH_OK ? sentence.data() : "") << "\n"
                << story();
}

// ---- choosing --------------------------------------------------------------------------------------------------

ModelStore* World::open_one(bool writable) {
  std::vector<ModelStore*> open;
  for (ModelStore& store : stores_) {
    if (store.handle != nullptr && !(writable && store.read_only)) open.push_back(&store);
  }
  return open.empty() ? nullptr : open[random_.below(open.size())];
}

ModelRegion* World::open_region_of(ModelStore& store, std::string* name) {
  std::vector<std::pair<const std::string, ModelRegion>*> open;
  for (auto& each : store.regions) {
    if (each.second.handle != nullptr) open.push_back(&each);
  }
  if (open.empty()) return nullptr;
  auto* const chosen = open[random_.below(open.size())];
  if (name != nullptr) *name = chosen->first;
  return &chosen->second;
}

std::vector<ModelRegion*> World::choose_regions(ModelStore& store, std::vector<memlith_region*>& handles) {
  std::vector<ModelRegion*> chosen;
  for (auto& [name, region] : store.regions) {
    if (region.handle == nullptr || random_.one_in(3)) continue;
    chosen.push_back(&region);
    handles.push_back(region.handle);
  }
  return chosen;
}

// ---- opening and closing ---------------------------------------------------------------------------------------

// Absolute, relative to where the program stands, or through a symbolic link.
std::string World::path_to(const ModelStore& store) {
  switch (random_.below(3)) {
    case 0: return store.path;
    case 1: return std::filesystem::path(store.path).lexically_relative(standing_).string();
    default: break;
  }
  if (!store.exists) return store.path;
  const std::string link = folder_ + "/link";
  ::unlink(link.c_str());
  EXPECT_EQ(::symlink(store.path.c_str(), link.c_str()), 0);
  return link;
}

memlith_store_options World::options(std::uint32_t flags) {
  memlith_store_options given{};
  given.struct_size = sizeof given;
  given.flags = flags;
  given.io = MEMLITH_IO_POSIX;
  if (random_.one_in(3)) given.log_bytes = 1 << 20;
  if (random_.one_in(4)) given.manual_checkpoint = 1;
  return given;
}

std::int32_t World::open(ModelStore& store, std::uint32_t flags, memlith_store** handle) {
  const memlith_store_options given = options(flags);
  const std::string path = path_to(store);
  return store.one_file ? MEMLITH_CALL(memlith_file_open, path.c_str(), &given, handle)
                        : MEMLITH_CALL(memlith_store_open, path.c_str(), &given, handle);
}

void World::forget_handles(ModelStore& store) {
  store.handle = nullptr;
  for (auto& [name, region] : store.regions) {
    region.handle = nullptr;
    region.now = region.captured;
    region.by_others.clear();
    region.own.clear();
  }
}

void World::close(ModelStore& store) {
  expect(MEMLITH_CALL(memlith_store_close, store.handle), MEMLITH_OK, "closing a store");
  const bool complete = store.one_file && !store.read_only;
  forget_handles(store);
  if (complete) {
    const std::string content = read_file(store.path);
    const auto found = store.regions.find("file");
    const std::vector<unsigned char> captured =
        found != store.regions.end() ? found->second.captured : std::vector<unsigned char>();
    EXPECT_TRUE(content.size() == captured.size() &&
                std::equal(content.begin(), content.end(), captured.begin(),
                           [](char a, unsigned char b) { return static_cast<unsigned char>(a) == b; }))
        << store.path << " has " << content.size() << " bytes, of " << captured.size() << "\n"
        << story();
  }
}

void World::compare(const ModelStore& store, const std::string& name, const ModelRegion& region) {
  const std::uint64_t size = MEMLITH_CALL(memlith_region_size, region.handle);
  ASSERT_EQ(size, region.now.size()) << store.path << " region " << name << "\n" << story();
  const auto* const memory = static_cast<const unsigned char*>(MEMLITH_CALL(memlith_region_address, region.handle));
  const auto difference = std::mismatch(region.now.begin(), region.now.end(), memory);
  EXPECT_EQ(difference.first, region.now.end())
      << store.path << " region " << name << " differs at byte " << difference.first - region.now.begin() << "\n"
      << story();
}

void World::compare_part(const ModelRegion& region) {
  if (region.now.empty()) return;
  const auto* const memory = static_cast<const unsigned char*>(MEMLITH_CALL(memlith_region_address, region.handle));
  const std::uint64_t begin = random_.below(region.now.size());
  const std::uint64_t bytes = std::min<std::uint64_t>(region.now.size() - begin, 200);
  EXPECT_EQ(std::memcmp(memory + begin, region.now.data() + begin, bytes), 0) << "at byte " << begin << "\n" << story();
}

void World::captured_all(ModelRegion& region) {
  region.captured = region.now;
  region.by_others.clear();
  region.own.clear();
}

void World::captured_range(ModelRegion& region, const Range& range) {
  region.captured.resize(region.now.size(), 0);
  std::copy_n(region.now.begin() + static_cast<std::ptrdiff_t>(range.offset), range.bytes,
              region.captured.begin() + static_cast<std::ptrdiff_t>(range.offset));
}

bool World::finds_no_stores(const ModelRegion& region) {
  memlith_region_info info{};
  info.struct_size = sizeof info;
  expect(MEMLITH_CALL(memlith_region_get_info, region.handle, &info), MEMLITH_OK, "region_get_info");
  return info.tracker == MEMLITH_TRACKER_EXPLICIT;
}

void World::step() {
  static const unsigned total = [] {
    unsigned sum = 0;
    for (const Step& each : steps()) sum += each.weight;
    return sum;
  }();
  ++number_;
  std::uint64_t drawn = random_.below(total);
  for (const Step& each : steps()) {
    if (drawn < each.weight) {
      note(each.name);
      (this->*each.run)();
      return;
    }
    drawn -= each.weight;
  }
}

void World::reopen_and_compare() {
  note("reopen and compare");
  for (ModelStore& store : stores_) {
    if (store.handle != nullptr) close(store);
  }
  for (ModelStore& store : stores_) {
    if (!store.exists) continue;
    memlith_report report{};
    report.struct_size = sizeof report;
    // A one-file store's log may be gone after a clean close; the file is then all there is.
    if (!store.one_file) {
      expect(MEMLITH_CALL(memlith_verify, store.path.c_str(), &report), MEMLITH_OK, "verify");
      const auto found = [](void*, const char*) {};  // a number of the model may look like an address
      expect(MEMLITH_CALL(memlith_verify_pointers, store.path.c_str(), found, nullptr), MEMLITH_OK, "verify pointers");
      EXPECT_EQ(report.clean, 1u) << story();
      EXPECT_EQ(report.frames, 0u) << story();
      EXPECT_EQ(report.regions, store.regions.size()) << story();
    }
    expect(open(store, 0, &store.handle), MEMLITH_OK, "opening a store again");
    if (store.handle == nullptr) continue;
    store.read_only = false;
    for (auto& [name, region] : store.regions) {
      memlith_region_options given{};
      given.struct_size = sizeof given;
      given.tracker = region.tracker;
      expect(MEMLITH_CALL(memlith_region_open, store.handle, name.c_str(), &given, &region.handle), MEMLITH_OK,
             "opening a region again");
      if (region.handle != nullptr) compare(store, name, region);
    }
    close(store);
  }
}

// ---- persists of a thread --------------------------------------------------------------------------------------

void World::persist_thread() {
  ModelStore* const store = open_one(true);
  if (store == nullptr) return;
  std::vector<ModelRegion*> regions;
  const bool all = random_.one_in(3);
  if (all) {
    for (auto& [name, region] : store->regions) {
      if (region.handle != nullptr) regions.push_back(&region);
    }
  } else if (ModelRegion* const region = open_region_of(*store)) {
    regions.push_back(region);
  }
  if (regions.empty()) return;
  bool knows_threads = true;
  for (const ModelRegion* const region : regions) {
    memlith_region_info info{};
    info.struct_size = sizeof info;
    expect(MEMLITH_CALL(memlith_region_get_info, region->handle, &info), MEMLITH_OK, "region_get_info");
    knows_threads = knows_threads && info.tracker != MEMLITH_TRACKER_SCAN && !region->process_scope;
  }
  const std::int32_t code = all ? MEMLITH_CALL(memlith_persist_all, store->handle, MEMLITH_SCOPE_THREAD)
                                : MEMLITH_CALL(memlith_persist, &regions.front()->handle, 1, MEMLITH_SCOPE_THREAD);
  if (!knows_threads) {
    expect(code, MEMLITH_UNSUPPORTED, "thread scope with scan, or of a region for process scope");
    return;
  }
  expect(code, MEMLITH_OK, "persist of a thread");
  for (ModelRegion* const region : regions) {
    const std::vector<unsigned char> older = region->captured;
    const std::vector<Range> by_others = region->by_others;
    captured_all(*region);
    region->by_others = by_others;
    for (const Range& range : by_others) region->captured[range.offset] = older[range.offset];
  }
}

// ---- a stream of commits ---------------------------------------------------------------------------------------

Stream::State Stream::empty() {
  State state;
  for (auto& bytes : state) bytes.resize(kBytes);
  return state;
}

}  // namespace memlith::test
