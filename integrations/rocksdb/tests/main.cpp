// The tests, or one step of a test in a process of its own: --step NAME FOLDER.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "words.hpp"

namespace memlith_rocksdb::test {

namespace {
std::map<std::string, std::function<void(const std::string&)>>& steps() {
  static auto* const all = new std::map<std::string, std::function<void(const std::string&)>>;
  return *all;
}
}  // namespace

Step::Step(const char* name, std::function<void(const std::string&)> body) { steps()[name] = std::move(body); }

void run_step(const char* name, const TempFolder& folder) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/proc/self/exe", "rocksdb_tests", "--step", name, folder.path().c_str(), nullptr);
    ::_exit(99);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << name << " ended with status " << status;
}

}  // namespace memlith_rocksdb::test

int main(int count, char** words) {
  testing::InitGoogleTest(&count, words);
  if (count != 4 || std::strcmp(words[1], "--step") != 0) return RUN_ALL_TESTS();
  memlith_rocksdb::test::steps().at(words[2])(words[3]);
  ::_exit(testing::Test::HasFailure() ? 1 : 0);
}
