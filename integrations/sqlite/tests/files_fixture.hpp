// A database file, programs of their own beside it, and the words of their tests.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>

#include "support/temp_folder.hpp"
#include "words.hpp"

namespace memlith::test {

namespace fs = std::filesystem;

// Runs in a child of its own, as another program would. The child must not inherit an open database.
class Child {
 public:
  explicit Child(const std::function<void(int ready)>& body) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      body(ends[1]);
      ::_exit(0);
    }
    ::close(ends[1]);
    from_ = ends[0];
  }
  ~Child() {
    kill();
    ::close(from_);
  }
  // A byte that the child wrote; -1 when it ended.
  int wait() const {
    unsigned char byte = 0;
    return ::read(from_, &byte, 1) == 1 ? byte : -1;
  }
  int descriptor() const { return from_; }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
  int from_ = -1;
};

inline void tell(int ready) {
  const unsigned char byte = 1;
  if (::write(ready, &byte, 1) != 1) ::_exit(1);
}

class Files : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { (void)registered_vfs(); }
  void SetUp() override { sqlite_log.clear(); }

  Db open(const std::string& parameters = "") const {
    return Db("file:" + path_ + (parameters.empty() ? "" : "?" + parameters), "memlith");
  }
  Db plain(int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE) const { return Db(path_, nullptr, flags); }
  void make_plain(const std::string& more = "") const {
    Db db = plain();
    ASSERT_RUNS(db, "create table t(a); insert into t values(1);" + more);
  }
  // The files as a crash of the program would leave them, under another name.
  std::string copy_as_crashed(const std::string& name) const {
    fs::copy_file(path_, folder_ / name, fs::copy_options::overwrite_existing);
    fs::copy_file(path_ + ".memlith", (folder_ / name) + ".memlith", fs::copy_options::overwrite_existing);
    return folder_ / name;
  }
  [[nodiscard]] std::string head() const { return read_file(path_).substr(0, 16); }

  TempFolder folder_;
  std::string path_ = folder_ / "app.db";
};

}  // namespace memlith::test
