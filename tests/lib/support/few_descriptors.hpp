// While this lives, the process can open so many descriptors more, and no others.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace memlith::test {

class FewDescriptors {
 public:
  explicit FewDescriptors(unsigned more) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);  // the lowest that is free
    ::close(next);
    rlimit now = before_;
    now.rlim_cur = static_cast<rlim_t>(next) + more;
    ::setrlimit(RLIMIT_NOFILE, &now);
  }
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace memlith::test
