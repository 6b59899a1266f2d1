// Commands of the shell as the target of an archive, such as those of rclone.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "archive/target.hpp"
#include "base/descriptor.hpp"

extern char** environ;

namespace memlith::core {

namespace {

std::string with_name(const std::string& command, const std::string& name) {
  std::string result;
  for (std::size_t i = 0; i < command.size(); ++i) {
    if (command.compare(i, 2, "%n") != 0) {
      result += command[i];
      continue;
    }
    result += name;  // names of the archive's objects need no quotes
    ++i;
  }
  return result;
}

// A command that runs, with one end of a pipe to its input or from its output.
class RunningCommand {
 public:
  RunningCommand() = default;
  RunningCommand(const RunningCommand&) = delete;
  RunningCommand& operator=(const RunningCommand&) = delete;
  ~RunningCommand() {
    if (process_ <= 0) return;
    (void)::kill(-process_, SIGKILL);
    (void)wait_for_end();
  }

  // `theirs`: 0, its input is ours to write; 1, its output is ours to read.
  Status start(std::string command, int theirs) {
    MEMLITH_ASSERT(process_ <= 0 && (theirs == 0 || theirs == 1));
    command_ = std::move(command);
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return failed_to_start(errno);
    Descriptor read_end(ends[0]);
    Descriptor write_end(ends[1]);
    Descriptor& given = theirs == 0 ? read_end : write_end;
    ours_ = std::move(theirs == 0 ? write_end : read_end);
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, given.get(), theirs);
    ::posix_spawnattr_init(&attributes);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    const char* const arguments[] = {"sh", "-c", command_.c_str(), nullptr};
    const int error =
        ::posix_spawn(&process_, "/bin/sh", &actions, &attributes, const_cast<char* const*>(arguments), environ);
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&actions);
    if (error != 0) process_ = -1;
    return error == 0 ? kOk : failed_to_start(error);
  }

  Status write(std::span<const std::byte> bytes) {
    const SigpipeBlocked blocked;
    while (!bytes.empty()) {
      const ssize_t count = ::write(ours_.get(), bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return end("took only a part of its input");
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
    return kOk;
  }
  Result<std::uint64_t> read(std::span<std::byte> target) {
    std::uint64_t done = 0;
    while (done < target.size() && ours_.get() >= 0) {
      const ssize_t count = ::read(ours_.get(), target.data() + done, target.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return fail_errno(errno, Detail::read, "reading what the command `{}` writes", command_);
      MEMLITH_ASSERT(static_cast<std::uint64_t>(count) <= target.size() - done);
      if (count == 0) MEMLITH_TRY(end(nullptr));
      done += static_cast<std::uint64_t>(count);
    }
    return done;
  }
  // Waits for its end. `because`: it has failed already.
  Status end(const char* because) {
    ours_ = Descriptor();
    const int status = wait_for_end();
    if (status == 0 && because == nullptr) return kOk;
    if (WIFSIGNALED(status)) {
      return fail(Errc::io, Detail::write, "the command `{}` was ended by signal {}", command_, WTERMSIG(status));
    }
    return fail(Errc::io, Detail::write, "the command `{}` {} and exited with {}; its own messages say why", command_,
                because == nullptr ? "failed" : because, WEXITSTATUS(status));
  }

 private:
  // A command that ends early must not end this process.
  class SigpipeBlocked {
   public:
    SigpipeBlocked() {
      sigset_t pipe_only;
      ::sigemptyset(&pipe_only);
      ::sigaddset(&pipe_only, SIGPIPE);
      ::pthread_sigmask(SIG_BLOCK, &pipe_only, &before_);
    }
    ~SigpipeBlocked() {
      sigset_t pipe_only;
      ::sigemptyset(&pipe_only);
      ::sigaddset(&pipe_only, SIGPIPE);
      const timespec none{};
      if (::sigismember(&before_, SIGPIPE) == 0) (void)::sigtimedwait(&pipe_only, nullptr, &none);
      ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    SigpipeBlocked(const SigpipeBlocked&) = delete;
    SigpipeBlocked& operator=(const SigpipeBlocked&) = delete;

   private:
    sigset_t before_{};
  };

  Status failed_to_start(int error) {
    return fail_errno(error, Detail::open, "the command `{}` cannot be started", command_);
  }
  int wait_for_end() {
    MEMLITH_ASSERT(process_ > 0);  // else any child of the program would be waited for
    int status = 0;
    while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) {
    }
    process_ = -1;
    return status;
  }

  std::string command_;
  pid_t process_ = -1;
  Descriptor ours_;
};

class CommandSink final : public ArchiveSink {
 public:
  RunningCommand command;
  Status write(std::span<const std::byte> bytes) override { return command.write(bytes); }
  Status finish() override { return command.end(nullptr); }
};

class CommandStream final : public ArchiveStream {
 public:
  RunningCommand command;
  Result<std::uint64_t> read(std::span<std::byte> target) override { return command.read(target); }
};

class CommandTarget final : public ArchiveTarget {
 public:
  explicit CommandTarget(TargetCommands commands) : commands_(std::move(commands)) {}

  Result<std::unique_ptr<ArchiveSink>> put(const std::string& name) override {
    auto sink = std::make_unique<CommandSink>();
    MEMLITH_TRY(sink->command.start(with_name(commands_.put, name), 0));
    return std::unique_ptr<ArchiveSink>(std::move(sink));
  }
  Result<std::unique_ptr<ArchiveStream>> get(const std::string& name) override {
    auto stream = std::make_unique<CommandStream>();
    MEMLITH_TRY(stream->command.start(with_name(commands_.get, name), 1));
    return std::unique_ptr<ArchiveStream>(std::move(stream));
  }
  Status remove(const std::string& name) override {
    if (commands_.remove.empty()) return kOk;
    RunningCommand command;
    MEMLITH_TRY(command.start(with_name(commands_.remove, name), 0));
    return command.end(nullptr);
  }
  Result<std::unique_ptr<VolumeLock>> lock() override { return std::unique_ptr<VolumeLock>(); }
  [[nodiscard]] std::string path_of(const std::string& name) const override {
    return with_name(commands_.get.empty() ? commands_.put : commands_.get, name);
  }

 private:
  const TargetCommands commands_;
};

}  // namespace

std::unique_ptr<ArchiveTarget> make_command_target(TargetCommands commands) {
  return std::make_unique<CommandTarget>(std::move(commands));
}

}  // namespace memlith::core
