// docs/guarantees.md, "What is assumed of the medium", and the contract at the head of device/device.hpp: a transfer is
// whole or an error; after the first failure nothing more is written; names are where they were put.
#include "device/posix.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <cstring>
#include <thread>
#include <vector>

#include "base/buffer.hpp"
#include "base/random.hpp"
#include "base/units.hpp"
#include "support/count_allocations.hpp"
#include "support/expect.hpp"
#include "support/process_memory.hpp"
#include "support/temp_folder.hpp"

namespace memlith::test::posix_test {
namespace {

using namespace core;

std::vector<std::byte> noise(std::uint64_t count, std::uint64_t seed = 1) {
  Random random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
  return bytes;
}

class PosixFiles : public ::testing::Test {
 protected:
  explicit PosixFiles(IoBackend io = IoBackend::automatic) : volume_(make_posix_volume(folder_.path(), io)) {}
  std::unique_ptr<Device> create(const std::string& name, Caching caching = Caching::buffered) {
    return must(volume_->open(name, OpenMode::create, caching));
  }
  std::unique_ptr<Device> reopen(const std::string& name, OpenMode mode, Caching caching = Caching::buffered) {
    return must(volume_->open(name, mode, caching));
  }
  static std::vector<std::byte> content(Device& device) {
    std::vector<std::byte> bytes(must(device.size()));
    EXPECT_OK(device.read(0, bytes));
    return bytes;
  }

  TempFolder folder_;
  std::unique_ptr<Volume> volume_;
};

bool has_uring() {
  const TempFolder folder;
  return make_posix_volume(folder.path(), IoBackend::uring)->open("a", OpenMode::create, Caching::buffered).ok();
}

std::string name_of_backend(const ::testing::TestParamInfo<IoBackend>& given) {
  return std::array{"Automatic", "Posix", "Uring"}[static_cast<std::uint32_t>(given.param)];
}

// In each way of asking for transfers.
class PosixDeviceTest : public PosixFiles, public ::testing::WithParamInterface<IoBackend> {
 protected:
  PosixDeviceTest() : PosixFiles(GetParam()) {}
  void SetUp() override {
    if (GetParam() == IoBackend::uring && !has_uring()) GTEST_SKIP() << "no io_uring here";
  }
};
INSTANTIATE_TEST_SUITE_P(By, PosixDeviceTest,
                         ::testing::Values(IoBackend::automatic, IoBackend::posix, IoBackend::uring), name_of_backend);

// Written bytes are read back, at any offset and of any length, in buffered mode.
TEST_P(PosixDeviceTest, BufferedTransfersNeedNoAlignment) {
  auto device = create("a");
  EXPECT_EQ(device->caps().block_bytes, 1u);
  EXPECT_FALSE(device->direct());
  for (const auto& [offset, count] : {std::pair{0u, 1u}, {1u, 511u}, {513u, 4097u}, {100'001u, 70'001u}}) {
    const auto bytes = noise(count, offset);
    ASSERT_OK(device->write(offset, bytes));
    std::vector<std::byte> back(count);
    ASSERT_OK(device->read(offset, back));
    EXPECT_EQ(back, bytes);
  }
  EXPECT_EQ(must(device->size()), 170'002u);
  EXPECT_OK(device->flush());
}

// A write of more pieces than the kernel takes at once, empty ones among them, lands whole and in order.
TEST_P(PosixDeviceTest, WritesMorePiecesThanTheKernelTakes) {
  auto device = create("a");
  const auto bytes = noise(3 * IOV_MAX + 17);
  std::vector<iovec> pieces;
  for (std::uint64_t at = 0; at < bytes.size();) {
    const std::uint64_t step = std::min<std::uint64_t>(pieces.size() % 3, bytes.size() - at);  // 0, 1, 2, 0, ...
    pieces.push_back({const_cast<std::byte*>(bytes.data()) + at, step});
    at += step;
  }
  pieces.push_back({nullptr, 0});
  ASSERT_GT(pieces.size(), static_cast<std::size_t>(2 * IOV_MAX));
  ASSERT_OK(device->write_pieces(7, pieces));
  std::vector<std::byte> back(bytes.size());
  ASSERT_OK(device->read(7, back));
  EXPECT_EQ(back, bytes);
  EXPECT_EQ(must(device->size()), bytes.size() + 7);
}

// Nothing to write and nothing to read are ok and change nothing.
TEST_P(PosixDeviceTest, EmptyTransfersAreOk) {
  auto device = create("a");
  EXPECT_OK(device->write(100, {}));
  EXPECT_OK(device->write_pieces(100, {}));
  EXPECT_OK(device->read(100, {}));
  EXPECT_EQ(must(device->size()), 0u);
}

// A read that reaches past the end is `corrupt` and says how much there was; it does not latch.
TEST_P(PosixDeviceTest, ReadPastTheEndIsCorrupt) {
  auto device = create("a");
  ASSERT_OK(device->write(0, noise(1000)));
  std::vector<std::byte> target(600);
  EXPECT_ERROR(Errc::corrupt, device->read(500, target));
  EXPECT_NE(last_error_text().find(folder_ / "a"), std::string::npos) << last_error_text();
  EXPECT_NE(last_error_text().find("ends after 500"), std::string::npos) << last_error_text();
  EXPECT_ERROR(Errc::corrupt, device->read(5000, target));
  EXPECT_FALSE(device->latched());
  EXPECT_OK(device->write(0, noise(10)));
}

// reserve() appends zeros with their space, never shrinks, and leaves what was there.
TEST_P(PosixDeviceTest, ReserveZeroFillsAndNeverShrinks) {
  auto device = create("a");
  const auto bytes = noise(5000);
  ASSERT_OK(device->write(0, bytes));
  ASSERT_OK(device->reserve(100'000));
  const auto after = content(*device);
  ASSERT_EQ(after.size(), 100'000u);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), after.begin()));
  EXPECT_TRUE(std::all_of(after.begin() + 5000, after.end(), [](std::byte b) { return b == std::byte{0}; }));
  struct stat info{};
  ASSERT_EQ(::stat((folder_ / "a").c_str(), &info), 0);
  EXPECT_GE(info.st_blocks * 512, 100'000);
  ASSERT_OK(device->reserve(10));
  EXPECT_EQ(must(device->size()), 100'000u);
}

// truncate() sets the exact length both ways; what comes back after a cut is zeros.
TEST_P(PosixDeviceTest, TruncateSetsTheLength) {
  auto device = create("a");
  ASSERT_OK(device->write(0, noise(1000)));
  ASSERT_OK(device->truncate(10));
  EXPECT_EQ(must(device->size()), 10u);
  ASSERT_OK(device->truncate(100));
  EXPECT_EQ(content(*device)[50], std::byte{0});
}

// A failed write latches: later writes, flushes and resizes say `poisoned` and touch nothing, reads go on.
TEST_P(PosixDeviceTest, FirstFailureLatches) {
  ASSERT_OK(create("a")->write(0, noise(1000, 3)));
  auto device = reopen("a", OpenMode::read_only);
  EXPECT_ERROR(Errc::io, device->write(0, noise(10)));  // EBADF
  EXPECT_TRUE(device->latched());
  EXPECT_ERROR(Errc::poisoned, device->write(0, noise(10)));
  EXPECT_ERROR(Errc::poisoned, device->flush());
  EXPECT_ERROR(Errc::poisoned, device->reserve(5000));
  EXPECT_ERROR(Errc::poisoned, device->truncate(5));
  EXPECT_EQ(content(*device), noise(1000, 3));
}

// The write of a queue does, too, and a queue writes nothing more on a latched device.
TEST_P(PosixDeviceTest, QueuesKeepToTheLatch) {
  ASSERT_OK(create("a")->write(0, noise(4096, 3)));
  auto device = reopen("a", OpenMode::read_only);
  auto queue = device->make_queue(2);
  const auto bytes = noise(512);
  const Status started = queue->write(0, 0, bytes);
  EXPECT_FALSE(started.ok() && queue->wait(0).ok());
  EXPECT_TRUE(device->latched());

  auto writable = reopen("a", OpenMode::read_write);
  auto writer = writable->make_queue(2);
  (void)writable->latch(Status{Errc::io, Detail::flush, 0, 0});  // as a failed flush does
  const Status late = writer->write(0, 0, bytes);
  EXPECT_ERROR(Errc::poisoned, late.ok() ? writer->wait(0) : late);
  EXPECT_TRUE(content(*writable) == noise(4096, 3)) << "a latched device was written to";
}

// A transfer may be in the middle of a commit, which has to complete: if there is no memory for a ring, system calls do
// it.
TEST_P(PosixDeviceTest, TransfersNeedNoMemory) {
  auto device = create("a");
  const auto bytes = noise(1000);
  std::vector<std::byte> back(1000);
  Status written{Errc::no_memory, Detail::none, 0, 0};
  Status read = written;
  keeps_failing = true;
  fails_in = 1;
  try {
    written = device->write(0, bytes);
    read = device->read(0, back);
  } catch (const std::bad_alloc&) {
  }
  fails_in = 0;
  keeps_failing = false;
  EXPECT_OK(written);
  EXPECT_OK(read);
  EXPECT_TRUE(back == bytes);
}

// Transfers wait: a file that was opened with NONBLOCK, so as not to wait for the other end of a pipe, does not keep
// that flag.
TEST_P(PosixDeviceTest, TransfersMayWait) {
  const auto made = create("a");
  const auto again = reopen("a", OpenMode::read_only);
  EXPECT_EQ(::fcntl(must(made->mappable(0, kPageBytes)).descriptor, F_GETFL) & O_NONBLOCK, 0);
  EXPECT_EQ(::fcntl(must(again->mappable(0, kPageBytes)).descriptor, F_GETFL) & O_NONBLOCK, 0);
}

// A limit on the length of files makes the kernel write a part and then refuse.
class FileLengthLimit {
 public:
  explicit FileLengthLimit(rlim_t bytes) : ignored_(::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit limit{bytes, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  FileLengthLimit(const FileLengthLimit&) = delete;
  FileLengthLimit& operator=(const FileLengthLimit&) = delete;
  ~FileLengthLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, ignored_);
  }

 private:
  rlimit before_{};
  sighandler_t ignored_;
};

// An error, never a silent short write.
TEST_P(PosixDeviceTest, ShortWriteIsAnError) {
  auto device = create("a");
  auto other = create("b");
  const auto bytes = noise(6000);
  const iovec pieces[3] = {
      {const_cast<std::byte*>(bytes.data()), 6000}, {const_cast<std::byte*>(bytes.data()), 6000}, {}};
  Status status = kOk;
  Status reserved = kOk;
  {
    const FileLengthLimit limit(10'000);
    status = device->write_pieces(0, pieces);
    reserved = other->reserve(20'000);
  }

  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(device->latched());
  EXPECT_ERROR(Errc::poisoned, device->flush());
  EXPECT_ERROR(Errc::no_space, reserved);
  EXPECT_FALSE(other->latched()) << "no_space from reserve() promises nothing and loses nothing";
  EXPECT_OK(other->reserve(20'000));
}

// A failed write of a queue is `io`, whatever its errno, because a part of it may be on the medium: it must not be
// taken for a full disk, where nothing was written.
TEST_P(PosixDeviceTest, AQueuesWriteThatFindsNoRoomIsIo) {
  auto device = create("a");
  auto queue = device->make_queue(2);
  const auto bytes = noise(20'000);
  const FileLengthLimit limit(10'000);
  const Status started = queue->write(0, 0, bytes);
  const Status status = started.ok() ? queue->wait(0) : started;
  EXPECT_ERROR(Errc::io, status);
  EXPECT_TRUE(device->latched());
}

// Several transfers at once: every slot's bytes go to their place, and a slot is free again when it was waited for.
TEST_P(PosixDeviceTest, QueueTransfersInParallel) {
  auto device = create("a");
  constexpr std::uint64_t kPiece = 10'007;
  constexpr std::uint32_t kDepth = 4;
  constexpr std::uint32_t kCount = 50;  // more than there are slots: each is used again
  const auto bytes = noise(kCount * kPiece);
  auto queue = device->make_queue(kDepth);
  for (std::uint32_t i = 0; i < kCount; ++i) {
    ASSERT_OK(queue->write(i % kDepth, i * kPiece, std::span(bytes).subspan(i * kPiece, kPiece)));
  }
  ASSERT_OK(queue->wait_all());
  EXPECT_EQ(content(*device), bytes);
  std::vector<std::byte> back(bytes.size());
  for (std::uint32_t i = kCount; i-- > 0;) {
    ASSERT_OK(queue->read(i % kDepth, i * kPiece, std::span(back).subspan(i * kPiece, kPiece)));
  }
  for (std::uint32_t slot = 0; slot < kDepth; ++slot) ASSERT_OK(queue->wait(slot));
  EXPECT_EQ(back, bytes);
  EXPECT_OK(queue->wait(0)) << "a slot already waited for";
}

// A read of a queue that reaches past the end is `corrupt`, and its neighbours are whole.
TEST_P(PosixDeviceTest, QueueReportsTheSlotThatFailed) {
  auto device = create("a");
  const auto bytes = noise(1000);
  ASSERT_OK(device->write(0, bytes));
  auto queue = device->make_queue(3);
  std::vector<std::byte> good(1000);
  std::vector<std::byte> bad(1000);
  ASSERT_OK(queue->read(0, 0, good));
  ASSERT_OK(queue->read(1, 600, bad));
  EXPECT_ERROR(Errc::corrupt, queue->wait(1));
  EXPECT_OK(queue->wait(0));
  EXPECT_OK(queue->wait(2)) << "never used";
  EXPECT_EQ(good, bytes);
  ASSERT_OK(queue->read(1, 600, bad));
  EXPECT_ERROR(Errc::corrupt, queue->wait_all());
  EXPECT_FALSE(device->latched());
}

// A queue that goes away waits for what it started: the memory is the caller's again.
TEST_P(PosixDeviceTest, QueueFinishesBeforeItGoes) {
  auto device = create("a");
  const auto bytes = noise(4 * kMiB);
  {
    auto queue = device->make_queue(4);
    for (std::uint32_t i = 0; i < 4; ++i)
      ASSERT_OK(queue->write(i, i * kMiB, std::span(bytes).subspan(i * kMiB, kMiB)));
  }
  EXPECT_EQ(content(*device), bytes);
}

// Registered memory, memory beside it, and another in its place: the same bytes, whether the kernel takes the
// registration or not.
TEST_P(PosixDeviceTest, QueuesTakeRegisteredMemory) {
  auto device = create("a");
  const AlignedBuffer first = must(AlignedBuffer::allocate(64 * kKiB));
  const AlignedBuffer second = must(AlignedBuffer::allocate(64 * kKiB));
  const auto bytes = noise(128 * kKiB);
  auto queue = device->make_queue(4);
  for (const AlignedBuffer* const buffer : {&first, &second}) {
    queue->register_memory(buffer->span());
    std::memcpy(buffer->data(), bytes.data(), 64 * kKiB);
    ASSERT_OK(queue->write(0, 0, buffer->span().first(10'000)));
    ASSERT_OK(queue->write(1, 10'000, buffer->span().subspan(10'000)));          // to its end
    ASSERT_OK(queue->write(2, 64 * kKiB, std::span(bytes).subspan(64 * kKiB)));  // elsewhere
    ASSERT_OK(queue->wait_all());
    EXPECT_EQ(content(*device), bytes);
    std::memset(buffer->data(), 0, buffer->size());
    ASSERT_OK(queue->read(3, 64 * kKiB, buffer->span()));
    ASSERT_OK(queue->wait(3));
    EXPECT_TRUE(std::equal(bytes.begin() + 64 * kKiB, bytes.end(), buffer->data()));
  }
}

// Threads write side by side, many pieces each, and flush: every byte is there.
TEST_P(PosixDeviceTest, ThreadsWriteSideBySide) {
  auto device = create("a");
  constexpr std::uint64_t kThreads = 4;
  constexpr std::uint64_t kShare = 300'000;
  const auto bytes = noise(kThreads * kShare);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Random random(t);
      for (std::uint64_t done = 0; done < kShare;) {
        std::vector<iovec> pieces;
        const std::uint64_t begin = done;
        for (std::uint64_t count = 1 + random.below(40); count > 0 && done < kShare; --count) {
          const std::uint64_t step = std::min(random.below(5000), kShare - done);  // an empty one now and then
          pieces.push_back({const_cast<std::byte*>(bytes.data()) + t * kShare + done, step});
          done += step;
        }
        EXPECT_OK(device->write_pieces(t * kShare + begin, pieces));
        if (random.one_in(8)) {
          EXPECT_OK(device->flush());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(content(*device) == bytes);
}

// A notice shows what its maker showed last, says whether he lives, and counts from when all of it is there.
TEST_F(PosixFiles, ANoticeIsSeenByOthers) {
  const auto bytes_of = [](const std::string& text) { return std::as_bytes(std::span(text)); };
  const auto text_of = [](const SeenNotice& seen) {
    return std::string(reinterpret_cast<const char*>(seen.bytes.data()), seen.bytes.size());
  };
  EXPECT_ERROR(Errc::not_found, volume_->look_at_notice("n", 16));
  auto notice = volume_->make_notice("n", bytes_of("0123456789abcdef"));
  ASSERT_NE(notice, nullptr);
  EXPECT_EQ(text_of(must(volume_->look_at_notice("n", 16))), "0123456789abcdef");
  notice->show(bytes_of("fedcba9876543210"));
  const SeenNotice seen = must(volume_->look_at_notice("n", 16));
  EXPECT_EQ(text_of(seen), "fedcba9876543210");
  EXPECT_TRUE(seen.held);
  EXPECT_ERROR(Errc::incompatible, volume_->look_at_notice("n", 17));
  notice = nullptr;
  EXPECT_FALSE(must(volume_->look_at_notice("n", 16)).held);
  for (const std::string& half : {std::string(), std::string(3, '\0'), std::string(8, '\0') + "89abcdef"}) {
    write_file(folder_ / "n", half);
    EXPECT_ERROR(Errc::not_found, volume_->look_at_notice("n", 16)) << half.size();
  }
}

// A program that runs without standard input, output or error does not print into our files.
TEST_F(PosixFiles, NoFileTakesAStandardDescriptor) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (int standard = 0; standard <= 2; ++standard) ::close(standard);
    const auto buffered = volume_->open("a", OpenMode::create, Caching::buffered);
    const auto direct = volume_->open("b", OpenMode::create, Caching::direct);
    const auto notice = volume_->make_notice("c", std::as_bytes(std::span("0123456789abcdef")));
    const bool fine =
        buffered.ok() && direct.ok() && notice != nullptr && (*buffered)->mappable(0, kPageBytes)->descriptor > 2;
    (void)::write(1, "text", 4);
    (void)::write(2, "text", 4);
    ::_exit(fine ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read_file(folder_ / "a"), "");
  EXPECT_EQ(read_file(folder_ / "b"), "");
}

// The holder of a name's lock excludes all others who lock by that name, even if the file is removed and created again:
// a file that lost its name between opening and locking is not accepted.
TEST_F(PosixFiles, ALockIsOfTheFileThatHasTheName) {
  constexpr int kRounds = 3000;
  std::atomic<bool> over{false};
  std::thread replacing([&] {
    for (int round = 0; round < kRounds; ++round) {
      const auto made = volume_->open("log", OpenMode::create, Caching::buffered);
      const auto lock = volume_->lock("log", true);
      if (lock.ok()) {
        EXPECT_OK(volume_->remove("log"));
      }
    }
    over = true;
  });
  int held = 0;
  const auto other = make_posix_volume(folder_.path());
  while (!over) {
    const auto lock = other->lock("log", true);
    if (!lock.ok()) continue;
    ++held;
    EXPECT_ERROR(Errc::busy, volume_->lock("log", true));
  }
  replacing.join();
  EXPECT_GT(held, 0);
}

// Direct transfers, where the file system has them, need whole blocks and give the same bytes.
TEST_P(PosixDeviceTest, DirectTransfers) {
  (void)create("a");
  auto device = reopen("a", OpenMode::read_write, Caching::direct);
  if (!device->direct()) GTEST_SKIP() << "no O_DIRECT on " << folder_.path();
  const std::uint32_t block = device->caps().block_bytes;
  EXPECT_TRUE(block == 512 || block == 4096) << block;
  const AlignedBuffer buffer = must(AlignedBuffer::allocate(64 * kKiB));
  const auto bytes = noise(64 * kKiB);
  std::memcpy(buffer.data(), bytes.data(), bytes.size());
  ASSERT_OK(device->write(block, buffer.span()));
  ASSERT_OK(device->flush());
  std::memset(buffer.data(), 0, buffer.size());
  ASSERT_OK(device->read(block, buffer.span()));
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), buffer.data()));
  auto queue = device->make_queue(2);
  std::memset(buffer.data(), 0, buffer.size());
  ASSERT_OK(queue->read(0, block, buffer.span().first(32 * kKiB)));
  ASSERT_OK(queue->read(1, block + 32 * kKiB, buffer.span().subspan(32 * kKiB)));
  ASSERT_OK(queue->wait_all());
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), buffer.data()));
}

// A file system without O_DIRECT works through the page cache, and says so; memory-backed ones differ from kernel to
// kernel.
TEST(PosixDeviceOnTmpfs, WorksWithOrWithoutDirect) {
  if (::access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "no /dev/shm to write to";
  const TempFolder folder("/dev/shm");
  auto volume = make_posix_volume(folder.path());
  (void)must(volume->open("a", OpenMode::create, Caching::direct));
  auto device = must(volume->open("a", OpenMode::read_write, Caching::direct));
  EXPECT_EQ(device->direct(), device->caps().block_bytes > 1);
  const AlignedBuffer buffer = must(AlignedBuffer::allocate(8192));
  std::memset(buffer.data(), 0x5a, buffer.size());
  ASSERT_OK(device->write(4096, buffer.span().first(8192)));
  ASSERT_OK(device->flush());
  const AlignedBuffer back = must(AlignedBuffer::allocate(8192));
  ASSERT_OK(device->read(4096, back.span().first(8192)));
  EXPECT_EQ(std::memcmp(buffer.data(), back.data(), 8192), 0);
}

class PosixVolumeTest : public PosixFiles {};

// create refuses a name that is there, and open one that is not; the messages name the file.
TEST_F(PosixVolumeTest, OpenModes) {
  EXPECT_ERROR(Errc::not_found, volume_->open("a", OpenMode::read_write, Caching::buffered));
  EXPECT_NE(last_error_text().find(folder_ / "a"), std::string::npos);
  (void)create("a");
  EXPECT_ERROR(Errc::exists, volume_->open("a", OpenMode::create, Caching::buffered));
  EXPECT_OK(volume_->open("a", OpenMode::read_only, Caching::direct));
  EXPECT_TRUE(must(volume_->exists("a")));
  EXPECT_FALSE(must(volume_->exists("b")));
  EXPECT_FALSE(must(volume_->exists("a/b"))) << "below a file there is nothing";
}

// Anything but an ordinary file is refused.
TEST_F(PosixVolumeTest, OnlyOrdinaryFiles) {
  ASSERT_OK(volume_->make_folder("sub"));
  EXPECT_ERROR(Errc::invalid, volume_->open("sub", OpenMode::read_only, Caching::buffered));
  EXPECT_ERROR(Errc::invalid, volume_->open("sub", OpenMode::read_write, Caching::buffered));
}

// make_folder is content with a folder that is there, and not with a file in its place.
TEST_F(PosixVolumeTest, MakeFolder) {
  EXPECT_OK(volume_->make_folder("sub"));
  EXPECT_OK(volume_->make_folder("sub"));
  EXPECT_OK(volume_->make_folder(""));
  (void)create("file");
  EXPECT_ERROR(Errc::exists, volume_->make_folder("file"));
  EXPECT_ERROR(Errc::not_found, volume_->make_folder("no/such"));
  const auto inner = make_posix_volume(folder_ / "fresh");
  EXPECT_OK(inner->make_folder(""));
  EXPECT_TRUE(must(volume_->exists("fresh")));
}

// list, rename, remove and sync_folder do what their names say; removing what is not there is ok.
TEST_F(PosixVolumeTest, Names) {
  ASSERT_OK(volume_->make_folder("sub"));
  (void)create("sub/a");
  (void)create("sub/b");
  auto names = must(volume_->list("sub"));
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b"}));
  EXPECT_OK(volume_->rename("sub/a", "c"));
  EXPECT_ERROR(Errc::not_found, volume_->rename("sub/a", "c"));
  EXPECT_OK(volume_->remove("sub/b"));
  EXPECT_OK(volume_->remove("sub/b"));
  EXPECT_TRUE(must(volume_->list("sub")).empty());
  EXPECT_TRUE(must(volume_->exists("c")));
  EXPECT_OK(volume_->sync_folder("sub"));
  EXPECT_OK(volume_->sync_folder(""));
  EXPECT_ERROR(Errc::not_found, volume_->sync_folder("nowhere"));
  EXPECT_ERROR(Errc::not_found, volume_->list("nowhere"));
}

// Paths in messages are absolute, the folder's and the name's, without doubled slashes.
TEST_F(PosixVolumeTest, PathsForMessages) {
  EXPECT_EQ(volume_->path_of("a/b"), folder_ / "a/b");
  EXPECT_EQ(volume_->path_of(""), folder_.path());
  const std::string here = std::filesystem::current_path();
  EXPECT_EQ(make_posix_volume("x/")->path_of("a"), here + "/x/a");
  EXPECT_EQ(make_posix_volume(".")->path_of(""), here);
}

// One writer or many readers, in one process as between processes; a lock ends with its object.
TEST_F(PosixVolumeTest, LocksConflict) {
  EXPECT_ERROR(Errc::not_found, volume_->lock("a", true));
  (void)create("a");
  {
    auto writer = must(volume_->lock("a", true));
    EXPECT_ERROR(Errc::busy, volume_->lock("a", true));
    EXPECT_ERROR(Errc::busy, volume_->lock("a", false));
  }
  auto one = must(volume_->lock("a", false));
  auto two = must(volume_->lock("a", false));
  EXPECT_ERROR(Errc::busy, volume_->lock("a", true));
  one = nullptr;
  EXPECT_ERROR(Errc::busy, volume_->lock("a", true));
  two = nullptr;
  EXPECT_OK(volume_->lock("a", true));
}

// The transfers of a process that was killed may still be under way. Their ring keeps its file open, and who is to
// write next waits for it; the lock itself is free.
TEST_F(PosixVolumeTest, AnExclusiveLockWaitsForRings) {
  (void)create("a");
  auto device = must(volume_->open("a", OpenMode::read_write, Caching::direct));
  if (device->caps().io == IoBackend::posix) GTEST_SKIP() << "no io_uring here";
  auto queue = device->make_queue(2);
  std::atomic<bool> over{false};
  std::thread ending([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    over = true;
    queue = nullptr;
  });
  EXPECT_OK(volume_->lock("a", false));
  EXPECT_OK(volume_->lock("a", true));
  EXPECT_TRUE(over);
  ending.join();
}

// The lock and the devices of an open file share one descriptor, and the lock ends with its object.
TEST_F(PosixVolumeTest, AnOpenFileHasOneDescriptor) {
  (void)create("a");
  const std::uint64_t before = descriptor_count();
  auto file = must(volume_->open_file("a", true));
  auto lock = must(file->lock(true));
  auto device = must(file->device("a", Caching::buffered));
  EXPECT_EQ(descriptor_count(), before + 1);
  file = nullptr;
  EXPECT_ERROR(Errc::busy, volume_->lock("a", true));
  lock = nullptr;
  EXPECT_OK(volume_->lock("a", true));
  EXPECT_OK(device->flush());
}

// Signals, one upon the other, keep the kernel from making the thread that io_uring hands the transfers of a thread to.
// They are made all the same, and the device does not latch.
TEST_P(PosixDeviceTest, SignalsThatKeepComing) {
  struct sigaction action{};
  struct sigaction before{};
  action.sa_handler = [](int) {};
  action.sa_flags = SA_RESTART;
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);
  const auto bytes = noise(256 * kKiB);
  constexpr std::uint32_t kDepth = 4;
  for (int round = 0; round < 50 && !HasFailure(); ++round) {
    std::atomic<bool> done{false};
    std::thread transfers([&] {
      auto device = create(std::to_string(round));
      EXPECT_OK(device->reserve((kDepth + 1) * bytes.size()));
      if (round % 2 == 0) {
        EXPECT_OK(device->write(kDepth * bytes.size(), bytes));
      }
      auto queue = device->make_queue(kDepth);
      for (std::uint32_t slot = 0; slot < kDepth; ++slot) EXPECT_OK(queue->write(slot, slot * bytes.size(), bytes));
      EXPECT_OK(queue->wait_all());
      if (round % 2 == 1) {
        EXPECT_OK(device->write(kDepth * bytes.size(), bytes));
      }
      std::vector<std::byte> back(bytes.size());
      for (std::uint32_t slot = 0; slot <= kDepth; ++slot) {
        EXPECT_OK(device->read(slot * bytes.size(), back));
        EXPECT_EQ(back, bytes);
      }
      done = true;
    });
    while (!done) ::pthread_kill(transfers.native_handle(), SIGUSR1);
    transfers.join();
    EXPECT_OK(volume_->remove(std::to_string(round)));
  }
  ASSERT_EQ(::sigaction(SIGUSR1, &before, nullptr), 0);
}

// A pipe in the place of a file is an error at once, not a wait for its other end.
TEST_F(PosixVolumeTest, PipesDoNotHang) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(5);  // a hang ends here, by signal
    const bool refused =
        !volume_->lock("pipe", true).ok() && !volume_->open("pipe", OpenMode::read_only, Caching::buffered).ok();
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "hung: killed by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace memlith::test::posix_test
