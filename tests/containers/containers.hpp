// The rows of docs/heap.md, "Which types": a program that keeps one container of each row in a heap. Each run is a new
// process with addresses of its own; it finds what the run before persisted, adds to it, persists, changes more, and
// ends without closing anything. Without gtest, so that any standard library may be meant.
//
//   PROGRAM FOLDER add       prints how many rounds are there now
//   PROGRAM FOLDER destroy   checks, destroys all, and expects an empty heap
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "memlith/heap.hpp"

namespace containers {

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::_Exit(1);
}

template <class T>
T must(memlith::Result<T> result) {
  if (!result) fail(result.error().message());
  return std::move(*result);
}
inline void must(memlith::Result<void> result) {
  if (!result) fail(result.error().message());
}

// Element number i, and back.
template <class T>
T make(int i) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(i);
  } else {
    return T(("a text that is too long to stand in the string itself: " + std::to_string(i)).c_str());
  }
}
template <class T>
int number_of(const T& value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<int>(value);
  } else if constexpr (requires { value.second; }) {
    return number_of(value.first) == number_of(value.second) ? number_of(value.first) : -1;
  } else {
    const std::string_view text(value.data(), value.size());
    return std::atoi(text.substr(text.rfind(' ') + 1).data());
  }
}

template <class Container>
void put(Container& container, int i) {
  if constexpr (requires { typename Container::mapped_type; }) {
    container.emplace(make<typename Container::key_type>(i), make<typename Container::mapped_type>(i));
  } else if constexpr (requires { typename Container::key_type; }) {
    container.insert(make<typename Container::key_type>(i));
  } else if constexpr (requires { container.push_back(make<typename Container::value_type>(i)); }) {
    container.push_back(make<typename Container::value_type>(i));
  } else {
    container.push_front(make<typename Container::value_type>(i));
  }
}

template <class Container>
void expect(const char* name, const Container& container, int count) {
  std::vector<int> numbers;
  for (const auto& each : container) numbers.push_back(number_of(each));
  std::sort(numbers.begin(), numbers.end());
  bool right = numbers.size() == static_cast<std::size_t>(count);
  for (int i = 0; right && i < count; ++i) right = numbers[static_cast<std::size_t>(i)] == i;
  if (!right) fail(std::string(name) + " does not hold the " + std::to_string(count) + " elements that were persisted");
}

inline constexpr int kRound = 200;

// The tracker; the tests of memlith-c++ choose another one.
#ifndef MEMLITH_TEST_TRACKER
#define MEMLITH_TEST_TRACKER automatic
#endif
inline constexpr memlith::Tracker kTracker = memlith::Tracker::MEMLITH_TEST_TRACKER;

// All: a struct with `int count` and `each(f)`, which calls f(name, container) for every container.
template <class All>
int run(int argc, char** argv) {
  if (argc != 3) fail("usage: PROGRAM FOLDER add|destroy");
  const memlith::Store store = must(memlith::Store::open(argv[1], {.create = true}));
  const memlith::Heap heap = must(memlith::Heap::open(store, "heap", {.create = true, .tracker = kTracker}));
  All& all = *must(heap.root<All>());
  all.each([&](const char* name, const auto& container) { expect(name, container, all.count); });
  if (argv[2] == std::string_view("destroy")) {
    must(heap.destroy<All>(""));
    const auto report = must(heap.verify());
    if (report.blocks != 0) fail(std::to_string(report.blocks) + " blocks are left");
    must(heap.persist());
    return 0;
  }
  const auto add = [&] {
    for (int i = all.count; i < all.count + kRound; ++i) {
      all.each([&](const char*, auto& container) { put(container, i); });
    }
    all.count += kRound;
  };
  add();
  must(heap.persist());
  std::printf("%d\n", all.count / kRound);
  std::fflush(stdout);
  add();       // never persisted
  ::_exit(0);  // as a kill would
}

}  // namespace containers
