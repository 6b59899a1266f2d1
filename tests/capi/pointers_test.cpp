// docs/heap.md, "Pointers that lead out": with MEMLITH_CHECK_POINTERS=1, a persist names the words that hold an address
// of the process, and no others; memlith_verify_pointers finds them in a store that is closed.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "memlith/heap.hpp"
#include "support/sanitizers.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::pointers_test {
namespace {

int a_number_of_the_program = 7;

struct Good {
  memlith::map<memlith::string, memlith::vector<int>> words;
  Good* self = nullptr;
  void* in_other = nullptr;
  std::uint64_t number = 0x123456789abc;
  double half = 0.5;
  char text[16] = "plain text here";
};
struct Bad {
  int* on_stack = nullptr;
  void* in_malloc = nullptr;
  int* in_program = nullptr;
  void* in_library = nullptr;
};

class Pointers : public ::testing::Test {
 protected:
  Store open() {
    auto store = Store::open(folder_, {.create = true});
    EXPECT_TRUE(store.ok());
    return std::move(*store);
  }
  static Heap heap_in(const Store& store, const std::string& name) {
    auto heap = Heap::open(store, name, {.create = true});
    EXPECT_TRUE(heap.ok());
    return std::move(*heap);
  }
  // Returns the standard error of the step, a test of this program, in a process that checks.
  std::string run_step(const std::string& step, const char* checks) {
    int ends[2];
    if (::pipe(ends) != 0) return "no pipe";
    const pid_t child = ::fork();
    if (child == 0) {
      ::dup2(ends[1], STDERR_FILENO);
      ::close(ends[0]);
      ::setenv("MEMLITH_POINTERS_FOLDER", folder_.c_str(), 1);
      ::setenv("MEMLITH_CHECK_POINTERS", checks, 1);
      const std::string filter = "--gtest_filter=" + step;
      ::execl("/proc/self/exe", "capi_tests", filter.c_str(), "--gtest_also_run_disabled_tests", "--gtest_brief=1",
              nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    std::string said;
    char buffer[4096];
    for (ssize_t got = 0; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;) {
      said.append(buffer, static_cast<std::size_t>(got));
    }
    ::close(ends[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    return status == 0 ? said : said + "ended with status " + std::to_string(status);
  }
  std::vector<std::string> found_from_outside() {
    auto sentences = verify_pointers(folder_);
    EXPECT_TRUE(sentences.ok()) << sentences.error().message();
    return std::move(*sentences);
  }
  TempFolder temp_;
  std::string folder_ =
      std::getenv("MEMLITH_POINTERS_FOLDER") != nullptr ? std::getenv("MEMLITH_POINTERS_FOLDER") : temp_ / "store";
};

// Containers, pointers into this region and another one, a resource of pmr with its virtual functions, freed blocks.
TEST_F(Pointers, DISABLED_StoresWhatMayStay) {
  const Store store = open();
  const Heap heap = heap_in(store, "heap");
  const Heap other = heap_in(store, "other");
  const use_heap scope(heap);
  auto good = heap.root<Good>();
  ASSERT_TRUE(good.ok());
  (*good)->self = *good;
  (*good)->in_other = *other.allocate(100);
  for (int i = 0; i < 1000; ++i)
    (*good)->words[memlith::string("word ") + memlith::string(std::to_string(i))].push_back(i);
  ASSERT_TRUE(heap.resource().ok());
  void** const freed = static_cast<void**>(*heap.allocate(100));
  freed[3] = &a_number_of_the_program;
  ASSERT_TRUE(heap.deallocate(freed).ok());
  ASSERT_TRUE(heap.persist().ok());
  ASSERT_TRUE(other.persist().ok());
}
TEST_F(Pointers, WhatMayStayIsNotReported) {
  for (int run = 0; run < 2; ++run) EXPECT_EQ(run_step("Pointers.DISABLED_StoresWhatMayStay", "1"), "");
  EXPECT_TRUE(found_from_outside().empty());
}

TEST_F(Pointers, DISABLED_StoresWhatMayNotStay) {
  const Store store = open();
  const Heap heap = heap_in(store, "heap");
  auto region = store.region("region", {.create = true, .size = 8192});
  ASSERT_TRUE(region.ok());
  auto bad = heap.construct<Bad>("bad");
  ASSERT_TRUE(bad.ok());
  int local = 1;
  (*bad)->on_stack = &local;
  (*bad)->in_malloc = std::malloc(10);
  (*bad)->in_program = &a_number_of_the_program;
  (*bad)->in_library = reinterpret_cast<void*>(&memlith_persist);
  static_cast<int**>(region->address())[100] = &local;
  ASSERT_TRUE(heap.persist().ok());
  ASSERT_TRUE(region->persist().ok());
  (*bad)->on_stack = &local;  // the same again
  ASSERT_TRUE(heap.persist().ok());
  std::free((*bad)->in_malloc);
}
TEST_F(Pointers, WhatLeadsOutIsReportedWithItsPlace) {
  const std::string said = run_step("Pointers.DISABLED_StoresWhatMayNotStay", "1");
  const auto line_with = [&](const std::string& part) {
    const std::size_t at = said.find(part);
    if (at == std::string::npos) return std::string();
    const std::size_t begin = said.rfind('\n', at) + 1;
    return said.substr(begin, said.find('\n', at) - begin);
  };
  EXPECT_NE(line_with("object \"bad\", byte 0:").find("on the stack of this thread"), std::string::npos) << said;
  EXPECT_NE(line_with("object \"bad\", byte 8:").find("memory of malloc"), std::string::npos) << said;
  EXPECT_NE(line_with("object \"bad\", byte 16:").find("tests"), std::string::npos) << said;
  EXPECT_NE(line_with("object \"bad\", byte 24:").find("memlith_persist + 0"), std::string::npos) << said;
  EXPECT_NE(line_with("region \"region\", offset 0x320:").find("stack"), std::string::npos) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 5) << said;

  const std::vector<std::string> outside = found_from_outside();
  std::string all;
  for (const std::string& each : outside) all += "\n" + each;
  ASSERT_EQ(outside.size(), kSanitized ? 4u : 5u) << "a sanitizer has its memory of malloc elsewhere" << all;
  EXPECT_NE(outside[0].find("heap \"heap\", object \"bad\", byte 0: 0x"), std::string::npos) << outside[0];
  EXPECT_NE(outside[0].find("looks like an address"), std::string::npos) << outside[0];
}
// Verifying maps a region wherever there is room, which may be where a pointer of another process led.
TEST_F(Pointers, WhereVerifyingMapsTheRegionDoesNotMatter) {
  constexpr std::size_t kWords = 64;
  constexpr std::uint64_t kStep = std::uint64_t{512} << 20;
  {
    const Store store = open();
    auto region = store.region("region", {.create = true, .size = 8192});
    ASSERT_TRUE(region.ok());
    void* const room = ::mmap(nullptr, kStep, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(room, MAP_FAILED);
    auto* const words = static_cast<std::uint64_t*>(region->address());
    for (std::size_t i = 0; i < kWords; ++i) words[i] = reinterpret_cast<std::uint64_t>(room) - i * kStep;
    ::munmap(room, kStep);
    ASSERT_TRUE(region->persist().ok());
  }
  EXPECT_EQ(found_from_outside().size(), kWords);
}

TEST_F(Pointers, NothingIsReportedWithoutTheVariable) {
  EXPECT_EQ(run_step("Pointers.DISABLED_StoresWhatMayNotStay", "0"), "");
}

}  // namespace
}  // namespace memlith::test::pointers_test
