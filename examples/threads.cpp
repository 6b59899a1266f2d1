// Threads that share a region: a bank whose accounts always add up to the same sum, also after kill -9.
//
//   threads [FOLDER]      transfers money with eight threads for a moment; prints "run 1: ... transfers, the sum is
//                         right", then "run 2: ..."
//
// Each transfer is durable before it is counted. The order that makes this both right and fast is in docs/threads.md:
// the change is captured while the lock is held, and waited for after the lock was released. Region::persist(lock) does
// that in one call.
#include <array>
#include <cstdint>
#include <iostream>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "memlith/memlith.hpp"

namespace {

constexpr int kThreads = 8;
constexpr int kTransfersEach = 50;
constexpr std::int64_t kMoney = 1000;

struct Bank {
  std::array<std::int64_t, 100> accounts;
  std::uint64_t transfers = 0;
  std::uint64_t runs = 0;
  Bank() : accounts{} { accounts.fill(kMoney); }
};

int failed(const memlith::Error& error) {
  std::cerr << "threads: " << error.message() << "\n";
  return 1;
}

// Returns the first error, or an empty one.
memlith::Error make_transfers(const memlith::Region& region, std::mutex& mutex, Bank& bank, unsigned seed) {
  std::minstd_rand random(seed);
  for (int i = 0; i < kTransfersEach; ++i) {
    std::unique_lock lock(mutex);
    const auto money = static_cast<std::int64_t>(random() % 100);
    bank.accounts[random() % bank.accounts.size()] -= money;
    bank.accounts[random() % bank.accounts.size()] += money;
    bank.transfers++;
    if (auto done = region.persist(lock); !done) return done.error();
    // Here the transfer is durable: a server would acknowledge it now.
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view folder = argc > 1 ? argv[1] : "threads-store";
  if (folder.starts_with('-')) {
    std::cout << "usage: threads [FOLDER]\n";
    return folder == "--help" ? 0 : 1;
  }
  auto store = memlith::Store::open(std::string(folder), {.create = true});
  if (!store) return failed(store.error());
  auto region = store->region("bank", {.create = true, .size = 1 << 16});
  if (!region) return failed(region.error());
  auto root = region->root<Bank>();
  if (!root) return failed(root.error());
  Bank& bank = **root;
  bank.runs++;

  std::mutex mutex;
  std::vector<memlith::Error> errors(kThreads);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] { errors[i] = make_transfers(*region, mutex, bank, i + 1); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const memlith::Error& error : errors) {
    if (error.code() != MEMLITH_OK) return failed(error);
  }
  const auto sum = std::accumulate(bank.accounts.begin(), bank.accounts.end(), std::int64_t{0});
  const bool right = sum == kMoney * static_cast<std::int64_t>(bank.accounts.size());
  std::cout << "run " << bank.runs << ": " << bank.transfers << " transfers, the sum is " << (right ? "right" : "WRONG")
            << "\n";
  return right ? 0 : 1;
}
