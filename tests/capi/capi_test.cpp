// Runs the steps of capi_c_test.c, each in a folder of its own; what they defend stands there.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/capi_c_test.h"
#include "memlith/memlith.h"
#include "support/temp_folder.hpp"

namespace memlith::test {
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
    wanted.flags = MEMLITH_REGION_CREATE;
    wanted.size = 64 * 1024;
    if (memlith_store_open((folder / "store").c_str(), &options, &store) != 0) ::_exit(1);
    if (memlith_region_open(store, "a", &wanted, &region) != 0) ::_exit(2);
    for (int i = 1; i <= 10; ++i) {
      static_cast<int*>(memlith_region_address(region))[i * 1024] = i;  // a page each
      if (memlith_persist(&region, 1, MEMLITH_SCOPE_USUAL) != 0) ::_exit(3);
    }
    ::_exit(0);  // no close
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  const int line = capi_c_progress(folder.path().c_str());
  EXPECT_EQ(line, 0) << "capi_c_test.c:" << line << ": " << capi_c_found;
}

}  // namespace
}  // namespace memlith::test
