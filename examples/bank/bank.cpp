// A bank on a key-value store: transfers by several threads with weak commits, killed at any moment.
//
//   bank [FOLDER] [SECONDS]     runs the bank for a moment (2 s), and prints what it found first and did then
//
// Two things are always true, in memory and after kill -9, though no transfer waits for the disk:
//   - the accounts add up to the same sum;
//   - of every pair of records "x" and "y", x < y. A transaction first raises y, a later one raises x up to it. A store
//     that gives up order for speed may keep the second and lose the first. Here a crash leaves a prefix of commits.
// The example checks both when it starts, so kill it and start it again:
//   while true; do timeout -s KILL 0.5 bank; done
#include <memlith/kv.hpp>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kThreads = 3;
constexpr int kAccounts = 100;
constexpr int kPairs = 20;
constexpr long kMoney = 1000;

using memlith::KvTransaction;

int failed(const memlith::Error& error) {
  std::cerr << "bank: " << error.message() << "\n";
  return 1;
}

struct Bank {
  memlith::Kv kv;
  memlith::KvMap accounts;
  memlith::KvMap pairs;

  // Nothing in the map is 0.
  static memlith::Result<long> number(KvTransaction& txn, memlith::KvMap map, const std::string& key) {
    auto found = txn.find(map, key);
    if (!found) return found.error();
    return *found ? std::atol(std::string(**found).c_str()) : 0L;
  }
  static memlith::Result<void> put(KvTransaction& txn, memlith::KvMap map, const std::string& key, long value) {
    return txn.put(map, key, std::to_string(value));
  }

  memlith::Result<std::uint64_t> open_accounts() const {
    return kv.transact(
        [&](KvTransaction& txn) -> memlith::Result<void> {
          for (int i = 0; i < kAccounts; ++i) {
            const std::string key = "account " + std::to_string(i);
            auto there = txn.find(accounts, key);
            if (!there) return there.error();
            if (*there) continue;
            if (auto done = put(txn, accounts, key, kMoney); !done) return done;
          }
          return {};
        },
        memlith::Durability::sync);
  }
  memlith::Result<std::uint64_t> transfer(int from, int to, long money) const {
    return kv.transact(
        [&](KvTransaction& txn) -> memlith::Result<void> {
          const std::string source = "account " + std::to_string(from);
          const std::string target = "account " + std::to_string(to);
          auto left = number(txn, accounts, source);
          if (!left) return left.error();
          if (auto done = put(txn, accounts, source, *left - money); !done) return done;
          auto right = number(txn, accounts, target);
          if (!right) return right.error();
          return put(txn, accounts, target, *right + money);
        },
        memlith::Durability::weak);
  }
  // One transaction raises y; the next one raises x to just below it.
  memlith::Result<std::uint64_t> raise(int pair, bool y) const {
    return kv.transact(
        [&](KvTransaction& txn) -> memlith::Result<void> {
          const std::string name = "pair " + std::to_string(pair);
          auto high = number(txn, pairs, name + " y");
          if (!high) return high.error();
          return y ? put(txn, pairs, name + " y", *high + 10) : put(txn, pairs, name + " x", *high - 1);
        },
        memlith::Durability::weak);
  }
  // Returns a sentence on the fault; empty: none. `transfers` receives the transfers that are left.
  memlith::Result<std::string> check() const {
    auto txn = kv.begin({.read_only = true});
    if (!txn) return txn.error();
    long sum = 0;
    for (int i = 0; i < kAccounts; ++i) {
      auto money = number(*txn, accounts, "account " + std::to_string(i));
      if (!money) return money.error();
      sum += *money;
    }
    if (sum != kAccounts * kMoney) return "the accounts add up to " + std::to_string(sum);
    for (int i = 0; i < kPairs; ++i) {
      const std::string name = "pair " + std::to_string(i);
      auto x = number(*txn, pairs, name + " x");
      if (!x) return x.error();
      auto y = number(*txn, pairs, name + " y");
      if (!y) return y.error();
      if ((*x != 0 || *y != 0) && *x >= *y) return name + ": x is " + std::to_string(*x) + ", y " + std::to_string(*y);
    }
    return std::string();
  }
};

memlith::Error work(const Bank& bank, unsigned seed, const std::atomic<bool>& ended, std::atomic<long>& done) {
  std::minstd_rand random(seed);
  while (!ended) {
    const int from = static_cast<int>(random() % kAccounts);
    const int to = (from + 1 + static_cast<int>(random() % (kAccounts - 1))) % kAccounts;
    if (auto moved = bank.transfer(from, to, static_cast<long>(random() % 50)); !moved) return moved.error();
    const int pair = static_cast<int>(random() % kPairs);
    if (auto raised = bank.raise(pair, true); !raised) return raised.error();
    if (auto raised = bank.raise(pair, false); !raised) return raised.error();
    done += 3;
  }
  return {};
}

int report(const memlith::Result<std::string>& wrong, const char* when) {
  if (!wrong) return failed(wrong.error());
  if (!wrong->empty()) {
    std::cerr << "bank: " << when << ": " << *wrong << "\n";
    return 2;
  }
  std::cout << when << ": the sum is right, and x < y in every pair\n" << std::flush;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "bank-store";
  const double seconds = argc > 2 ? std::atof(argv[2]) : 2;
  if (folder.starts_with('-')) {
    std::cout << "usage: bank [FOLDER] [SECONDS]\n";
    return folder == "--help" ? 0 : 1;
  }
  auto store = memlith::Store::open(folder, {.create = true});
  if (!store) return failed(store.error());
  auto kv = memlith::Kv::open(*store, "kv", {.create = true, .window_ms = 20});
  if (!kv) return failed(kv.error());
  auto accounts = kv->map("accounts", {.create = true});
  if (!accounts) return failed(accounts.error());
  auto pairs = kv->map("pairs", {.create = true});
  if (!pairs) return failed(pairs.error());
  const Bank bank{std::move(*kv), *accounts, *pairs};
  if (auto opened = bank.open_accounts(); !opened) return failed(opened.error());
  if (const int wrong = report(bank.check(), "found"); wrong != 0) return wrong;

  std::atomic<bool> ended{false};
  std::atomic<long> done{0};
  std::vector<memlith::Error> errors(kThreads);
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] { errors[i] = work(bank, std::random_device{}() + i, ended, done); });
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    ended = true;
  }
  for (const memlith::Error& error : errors) {
    if (error.code() != MEMLITH_OK) return failed(error);
  }
  std::cout << done << " transactions\n";
  return report(bank.check(), "left");
}
