// Runs the steps of capi_c_test.c, each in a folder of its own; what they defend stands there.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "capi/capi_c_test.h"
#include "memlith/memlith.h"
#include "support/temp_folder.hpp"

namespace memlith::test::capi_test {
namespace {

#define C_TEST(Name, function)                                              \
  TEST(CInterface, Name) {                                                  \
    const TempFolder folder;                                                \
    const int line = function(folder.path().c_str());                       \
    EXPECT_EQ(line, 0) << "capi_c_test.c:" << line << ": " << capi_c_found; \
  }

C_TEST(NumbersArePinned, capi_c_numbers)
C_TEST(WholeLife, capi_c_life)
C_TEST(NullArguments, capi_c_null_arguments)
C_TEST(StructSizes, capi_c_struct_sizes)
C_TEST(Flags, capi_c_flags)
C_TEST(LastError, capi_c_last_error)
C_TEST(Regions, capi_c_regions)
C_TEST(RegionErrors, capi_c_region_errors)
C_TEST(PersistErrors, capi_c_persist_errors)
C_TEST(StoreModes, capi_c_store_modes)
C_TEST(Files, capi_c_files)
C_TEST(Verify, capi_c_verify)
C_TEST(Info, capi_c_info)
C_TEST(Trackers, capi_c_trackers)
C_TEST(Asynchronous, capi_c_asynchronous)

// A store whose user died with commits in the log: the next opening replays them and reports its progress.
TEST(CInterface, Progress) {
  const TempFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    memlith_store_options options{};
    options.struct_size = sizeof options;
    options.flags = MEMLITH_OPEN_CREATE;
    options.manual_checkpoint = 1;
    memlith_store* store = nullptr;
    memlith_region* region = nullptr;
    memlith_region_options wanted{};
    wanted.struct_size = sizeof wanted;
    wanted.flags = MEMLITH_CREATE;
    wanted.size = 64 * 1024;
    if (memlith_store_open((folder / "store").c_str(), &options, &store) != 0) ::_exit(1);
    if (memlith_region_open(store, "a", &wanted, &region) != 0) ::_exit(2);
    for (int i = 1; i <= 10; ++i) {
      static_cast<int*>(memlith_region_address(region))[i * 1024] = i;  // a page each
      if (memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS) != 0) ::_exit(3);
    }
    ::_exit(0);  // no close
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  const int line = capi_c_progress(folder.path().c_str());
  EXPECT_EQ(line, 0) << "capi_c_test.c:" << line << ": " << capi_c_found;
}

// Threads persist as late as in the destructors of what pthread_setspecific() keeps, when C++'s own thread_locals are
// gone: what memlith kept of earlier calls is not used any more, so memory that the program got since stays the
// program's.
TEST(CInterface, PersistsInAThreadsLastDestructors) {
  const TempFolder folder;
  static memlith_region* region = nullptr;
  static int changed = 0;
  constexpr std::size_t kPages = 60;
  static const auto store_and_persist = [](char value) {
    for (std::size_t page = 0; page < kPages; page += 2) {
      static_cast<char*>(memlith_region_address(region))[page * 4096] = value;
    }
    EXPECT_EQ(memlith_persist(&region, 1, MEMLITH_SCOPE_PROCESS), 0);
  };
  const auto late = [](void*) {
    std::vector<std::vector<char>> mine;
    for (std::size_t i = 1; i < 400; ++i) mine.emplace_back(8 * i, 'm');
    store_and_persist(2);
    for (const auto& each : mine) changed += each != std::vector<char>(each.size(), 'm');
  };
  memlith_store_options options{};
  options.struct_size = sizeof options;
  options.flags = MEMLITH_OPEN_CREATE;
  memlith_store* store = nullptr;
  ASSERT_EQ(memlith_store_open((folder / "store").c_str(), &options, &store), 0);
  memlith_region_options wanted{};
  wanted.struct_size = sizeof wanted;
  wanted.flags = MEMLITH_CREATE;
  wanted.size = kPages * 4096;
  ASSERT_EQ(memlith_region_open(store, "a", &wanted, &region), 0);
  pthread_key_t key{};
  ASSERT_EQ(pthread_key_create(&key, late), 0);
  std::thread([key] {
    ASSERT_EQ(pthread_setspecific(key, region), 0);
    store_and_persist(1);
  }).join();
  pthread_key_delete(key);
  EXPECT_EQ(changed, 0) << "blocks of the program";
  EXPECT_EQ(memlith_store_close(store), 0);
}

}  // namespace
}  // namespace memlith::test::capi_test
