// ./dev soak persist: a program that uses every call of the library, killed at random moments for as long as one likes.
//
// A child opens a store, and its threads each own some pages in two regions, one tracked by faults and one explicitly.
// A thread's transactions are numbered; what its pages hold after number n follows from the seed, the thread and n. It
// persists them in thread scope, synchronously or not, and rolls some back, while another thread checkpoints, grows,
// releases memory, changes the flush window, makes and removes regions, some of them larger than the log, which grows
// for them, and persists for the process what a third, ended thread stored. The parent kills it, every other time also
// the opening that recovers, then opens the store, which gives back at its end what the log has grown, and holds every
// thread's pages in both regions against the model: one and the same number n, with last acknowledged <= n <= last
// begun. Exit code 1: they differ, and the seed is printed.
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "memlith/memlith.hpp"
#include "support/temp_folder.hpp"

namespace {

using namespace memlith;

constexpr std::uint64_t kThreads = 4;
constexpr std::uint64_t kPages = 6;  // of a thread, in each region
constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kAreaBytes = kPages * kPageBytes;
constexpr std::uint64_t kWords = kAreaBytes / 8;
constexpr std::uint64_t kSize = (kThreads + 1) * kAreaBytes;  // and one for the thread that ends

constexpr std::uint64_t kLogBytes = 1 << 20;

struct Told {
  std::array<std::atomic<std::uint64_t>, kThreads> acknowledged;
  std::array<std::atomic<std::uint64_t>, kThreads> begun;
  std::atomic<std::uint64_t> operations;
  std::atomic<std::uint64_t> log_bytes;  // the most there were
};

// The content of a thread's pages in both regions. Word 0 is the number of the transaction.
class Model {
 public:
  Model(std::uint64_t seed, std::uint64_t thread) : seed_(seed * 1000 + thread), areas_{} {
    for (auto& area : areas_) area.assign(kWords, 0);
  }
  // Makes transaction `number` of the one before; tells `store` about each word.
  template <class Store>
  void apply(std::uint64_t number, Store store) {
    std::mt19937_64 random(seed_ ^ (number * 0x9e3779b97f4a7c15));
    const std::uint64_t count = 1 + random() % 40;
    for (std::uint64_t i = 0; i < count; ++i) {
      put(random() % 2, 1 + random() % (kWords - 1), random(), store);
    }
    put(0, 0, number, store);
    put(1, 0, number, store);
  }
  [[nodiscard]] const std::vector<std::uint64_t>& area(std::size_t region) const { return areas_[region]; }

 private:
  template <class Store>
  void put(std::size_t region, std::uint64_t word, std::uint64_t value, Store store) {
    areas_[region][word] = value;
    store(region, word, value);
  }
  std::uint64_t seed_;
  std::array<std::vector<std::uint64_t>, 2> areas_;
};

struct World {
  explicit World(const std::string& path) {
    StoreOptions options;
    options.create = true;
    options.log_bytes = kLogBytes;
    options.log_max_bytes = 16 * kLogBytes;
    options.memory_max_bytes = 4 << 20;
    store = must(Store::open(path, options));
    regions[0] =
        must(store->region("fault", {.create = true, .tracker = Tracker::fault, .size = kSize, .max_size = 64 << 20}));
    regions[1] = must(store->region("explicit", {.create = true, .tracker = Tracker::touched, .size = kSize}));
  }
  template <class T>
  static std::unique_ptr<T> must(Result<T> result) {
    if (result) return std::make_unique<T>(std::move(*result));
    fmt::print(stderr, "soak: {}\n", result.error().message());
    ::_exit(3);
  }
  static void must(const Result<void>& result) {
    if (result) return;
    fmt::print(stderr, "soak: {}\n", result.error().message());
    ::_exit(3);
  }
  [[nodiscard]] std::uint64_t* words(std::size_t region, std::uint64_t thread) const {
    return static_cast<std::uint64_t*>(regions[region]->address()) + thread * kWords;
  }
  std::unique_ptr<Store> store;
  std::array<std::unique_ptr<Region>, 2> regions;
};

void check_memory(const World& world, std::uint64_t thread, const Model& model, const char* when) {
  for (std::size_t region = 0; region < 2; ++region) {
    if (std::memcmp(world.words(region, thread), model.area(region).data(), kAreaBytes) == 0) continue;
    fmt::print(stderr, "soak: {}: memory of thread {} in region {} is not what it should be\n", when, thread, region);
    ::_exit(4);
  }
}

void transact_for_ever(const World& world, Told& told, std::uint64_t seed, std::uint64_t thread, std::uint64_t salt) {
  Model model(seed, thread);
  std::uint64_t number = *world.words(0, thread);
  for (std::uint64_t n = 1; n <= number; ++n) model.apply(n, [](auto...) {});
  std::mt19937_64 random(salt + thread);
  std::vector<std::pair<Ticket, std::uint64_t>> waiting;
  const std::array<const Region*, 2> both{world.regions[0].get(), world.regions[1].get()};
  const auto store = [&](std::size_t region, std::uint64_t word, std::uint64_t value) {
    std::uint64_t& target = world.words(region, thread)[word];
    target = value;
    (void)world.regions[region]->touch(&target);
  };
  for (;; told.operations.fetch_add(1)) {
    if (random() % 8 == 0) {  // something else entirely, undone
      for (int i = 0; i < 20; ++i) store(random() % 2, random() % kWords, random());
      for (const Region* region : both) World::must(region->rollback(Scope::thread));
      check_memory(world, thread, model, "after a rollback");
    }
    told.begun[thread].store(number + 1);
    model.apply(++number, store);
    if (random() % 2 == 0) {
      World::must(Store::persist({both[0], both[1]}, Scope::thread));
      told.acknowledged[thread].store(number);
      waiting.clear();
    } else {
      memlith_region* const handles[] = {both[0]->handle(), both[1]->handle()};
      Ticket ticket = 0;
      if (memlith_persist_async(handles, 2, MEMLITH_SCOPE_THREAD, &ticket) != MEMLITH_OK) ::_exit(5);
      waiting.emplace_back(ticket, number);
    }
    if (!waiting.empty() && random() % 4 == 0) {
      const auto [ticket, up_to] = waiting[random() % waiting.size()];
      World::must(world.store->wait(ticket));
      if (told.acknowledged[thread].load() < up_to) told.acknowledged[thread].store(up_to);
    }
    if (waiting.size() > 50) waiting.erase(waiting.begin(), waiting.begin() + 25);
  }
}

void disturb_for_ever(const World& world, Told& told, std::uint64_t salt) {
  std::mt19937_64 random(salt);
  for (;;) {
    switch (random() % 8) {
      case 0: World::must(world.store->checkpoint()); break;
      case 1: World::must(world.regions[0]->release()); break;
      case 2:
        World::must(world.store->set_window(random() % 3 == 0 ? 0 : random() % 20, 1 << (10 + random() % 12)));
        break;
      case 3: {
        const std::uint64_t size = world.regions[0]->size() + kPageBytes * (random() % 4);
        if (size < (48 << 20)) World::must(world.regions[0]->grow(size));
        break;
      }
      case 4: {
        auto region = world.store->region("passing", {.create = true, .size = 64 << 10, .max_size = 4 * kLogBytes});
        if (!region) ::_exit(6);
        if (random() % 4 == 0) World::must(region->grow(4 * kLogBytes));
        std::memset(region->address(), static_cast<int>(random()), region->size());
        World::must(region->persist(Scope::process));
        told.log_bytes.store(world.store->info().log_bytes);
        World::must(region->close());
        if (random() % 2 == 0) World::must(world.store->remove("passing"));
        break;
      }
      // A thread that ends without persisting; then all threads' stores are persisted, unless that would split a
      // transaction.
      case 5: {
        std::thread([&world] { ++*world.words(0, kThreads); }).join();
        break;
      }
      default: std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    }
  }
}

[[noreturn]] void live(const std::string& path, Told& told, std::uint64_t seed, std::uint64_t salt) {
  const World world(path);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] { transact_for_ever(world, told, seed, t, salt); });
  }
  disturb_for_ever(world, told, salt);
  ::_exit(7);
}

// Number of the transaction that a thread's pages show, in both regions, whole; or a failure.
bool check(const World& world, const Told& told, std::uint64_t seed, std::uint64_t thread, std::uint64_t before) {
  const std::uint64_t number = *world.words(0, thread);
  const std::uint64_t acknowledged = std::max(before, told.acknowledged[thread].load());
  const std::uint64_t begun = std::max(before, told.begun[thread].load());
  if (number < acknowledged || number > begun) {
    fmt::print(stderr, "soak: thread {} came back at {}; acknowledged {}, begun {}\n", thread, number, acknowledged,
               begun);
    return false;
  }
  Model model(seed, thread);
  for (std::uint64_t n = 1; n <= number; ++n) model.apply(n, [](auto...) {});
  for (std::size_t region = 0; region < 2; ++region) {
    if (std::memcmp(world.words(region, thread), model.area(region).data(), kAreaBytes) == 0) continue;
    fmt::print(stderr, "soak: thread {} came back at {}, but not whole in region {}\n", thread, number, region);
    return false;
  }
  return true;
}

}  // namespace

int main(int count, char** arguments) {
  CLI::App app{"Uses every call of memlith, is killed at random, and checks what comes back"};
  double minutes = 1;
  std::uint64_t seed = std::random_device{}();
  std::string folder;
  app.add_option("--minutes", minutes, "How long")->check(CLI::Range(0.0, 1e6))->capture_default_str();
  app.add_option("--seed", seed, "Of the transactions and the moments of the kills")->capture_default_str();
  app.add_option("--dir", folder, "Where the store goes; a temporary folder unless given");
  CLI11_PARSE(app, count, arguments);
  const memlith::test::TempFolder temporary;
  const std::string path = (folder.empty() ? temporary.path() : folder) + "/soak-store";
  if (std::filesystem::exists(path)) {
    fmt::print(stderr, "soak: {} is there already; remove it, or choose another folder\n", path);
    return 2;
  }
  void* const shared = ::mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 2;
  fmt::print("seed {}\n", seed);
  std::mt19937_64 random(seed);
  std::array<std::uint64_t, kThreads> before{};
  std::uint64_t kills = 0;
  std::uint64_t killed_openings = 0;
  std::uint64_t operations = 0;
  std::uint64_t log_bytes = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(minutes * 60);
  while (std::chrono::steady_clock::now() < end) {
    const std::uint64_t salt = random();
    const auto nap = static_cast<useconds_t>(20'000 + random() % 400'000);
    Told& told = *new (shared) Told{};
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child == 0) live(path, told, seed, salt);
    ::usleep(nap);
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (!WIFSIGNALED(status)) {
      fmt::print(stderr, "soak: the child ended by itself with {}; seed {}, kill {}\n", WEXITSTATUS(status), seed,
                 kills);
      return 1;
    }
    ++kills;
    operations += told.operations.load();
    log_bytes = std::max(log_bytes, told.log_bytes.load());
    if (kills % 2 == 0) {
      const auto moment = static_cast<useconds_t>(random() % 30'000);
      const pid_t opening = ::fork();
      if (opening == 0) {
        const World world(path);
        for (;;) ::pause();
      }
      ::usleep(moment);
      ::kill(opening, SIGKILL);
      ::waitpid(opening, &status, 0);
      if (!WIFSIGNALED(status)) {
        fmt::print(stderr, "soak: the store cannot be opened; seed {}, kill {}\n", seed, kills);
        return 1;
      }
      ++killed_openings;
    }
    const World world(path);
    for (std::uint64_t t = 0; t < kThreads; ++t) {
      if (!check(world, told, seed, t, before[t])) {
        fmt::print(stderr, "soak: seed {}, kill {}\n", seed, kills);
        return 1;
      }
      before[t] = *world.words(0, t);
    }
    // Numbers grow, and with them the time that a check takes: now and then a fresh start.
    if (*std::max_element(before.begin(), before.end()) < 20'000) continue;
    for (std::uint64_t t = 0; t < kThreads; ++t) {
      for (std::size_t region = 0; region < 2; ++region) {
        std::memset(world.words(region, t), 0, kAreaBytes);
        (void)world.regions[region]->touch(world.words(region, t), kAreaBytes);
      }
      before[t] = 0;
    }
    World::must(world.store->persist(Scope::process));
  }
  fmt::print("kills {} and {} in openings, transactions {}, log {} MiB at most, lost 0\n", kills, killed_openings,
             operations, log_bytes >> 20);
  return 0;
}
