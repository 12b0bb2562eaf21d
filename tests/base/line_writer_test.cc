// SPDX-License-Identifier: Apache-2.0

#include "base/line_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

constexpr std::chrono::seconds kLong(60);
constexpr size_t kPipeBytes = 4096;

std::string Note(int64_t num_dropped) {
  return absl::StrCat("dropped ", num_dropped, "\n");
}

// A pipe of 4 KiB. Nobody reads it until a call of Read.
class Pipe {
 public:
  Pipe() {
    EXPECT_EQ(pipe2(fds_, O_CLOEXEC), 0);
    EXPECT_EQ(fcntl(fds_[1], F_SETPIPE_SZ, kPipeBytes), static_cast<int>(kPipeBytes));
  }
  ~Pipe() {
    CloseReader();
    close(fds_[1]);
  }

  int fd() const { return fds_[1]; }
  bool IsFull() const {
    pollfd file = {.fd = fds_[1], .events = POLLOUT, .revents = 0};
    return poll(&file, 1, 0) == 0;
  }

  void CloseReader() {
    if (fds_[0] >= 0) close(fds_[0]);
    fds_[0] = -1;
  }

  // Reads until `writer` has written everything. Returns the lines.
  std::vector<std::string> Read(LineWriter* writer) {
    EXPECT_EQ(fcntl(fds_[0], F_SETFL, O_NONBLOCK), 0);
    std::string text;
    while (true) {
      const bool is_done = writer->Flush(milliseconds(1));  // Before the last read.
      char buffer[1000];
      ssize_t n;
      while ((n = read(fds_[0], buffer, sizeof buffer)) > 0) text.append(buffer, static_cast<size_t>(n));
      if (is_done) break;
    }
    EXPECT_TRUE(text.empty() || text.back() == '\n');
    std::vector<std::string> lines = absl::StrSplit(text, '\n');
    lines.pop_back();
    return lines;
  }

 private:
  int fds_[2];
};

TEST(LineWriterTest, LinesComeInTheirOrder) {
  Pipe pipe;
  LineWriter writer(pipe.fd(), 1000, Note);
  writer.Write("first\n");
  writer.Write("second\nthird\n");
  // A pipe of one page is not ready for a second write before the first one has been read, so this reads at once.
  EXPECT_THAT(pipe.Read(&writer), ElementsAre("first", "second", "third"));
  EXPECT_TRUE(writer.IsIdle());
  EXPECT_EQ(writer.num_dropped(), 0);
}

TEST(LineWriterTest, ALineThatIsLongerThanAPipeIsWritten) {
  Pipe pipe;
  LineWriter writer(pipe.fd(), 100'000, Note);
  const std::string line(50'000, 'x');
  writer.Write("before\n" + line + "\nafter\n");
  EXPECT_THAT(pipe.Read(&writer), ElementsAre("before", line, "after"));
}

TEST(LineWriterTest, AReaderThatStallsDelaysNoWriterAndLosesOnlyTheLinesThatTheNoteCounts) {
  constexpr int kNumLines = 10'000;
  Pipe pipe;
  LineWriter writer(pipe.fd(), 20'000, Note);
  // All of these calls return while nobody reads.
  for (int i = 0; i < kNumLines; ++i) writer.Write(absl::StrCat(i, "\n"));
  EXPECT_FALSE(writer.Flush(milliseconds(1)));
  EXPECT_FALSE(writer.IsIdle());
  const int64_t num_dropped = writer.num_dropped();
  EXPECT_GT(num_dropped, 0);
  std::vector<std::string> lines = pipe.Read(&writer);
  writer.Write("later\n");
  lines.push_back(pipe.Read(&writer).at(0));
  EXPECT_EQ(lines.back(), "later");
  // The numbers are whole, and each gap is where a note says how many lines are missing.
  int64_t next = 0;
  int64_t num_said = 0;
  for (const std::string& line : lines) {
    int64_t number = 0;
    if (absl::SimpleAtoi(line, &number)) {
      EXPECT_EQ(number, next);
      ++next;
    } else if (line != "later") {
      ASSERT_TRUE(absl::SimpleAtoi(line.substr(sizeof "dropped"), &number)) << line;
      next += number;
      num_said += number;
    }
  }
  EXPECT_EQ(next, kNumLines);
  EXPECT_EQ(num_said, num_dropped);
  EXPECT_EQ(writer.num_dropped(), num_dropped);
}

TEST(LineWriterTest, TheLastLineIsKeptWhenTheQueueIsFull) {
  Pipe pipe;
  LineWriter writer(pipe.fd(), 10'000, Note);
  while (writer.num_dropped() == 0) writer.Write("a line\n");
  writer.WriteAlways("the end\n");
  const std::vector<std::string> lines = pipe.Read(&writer);
  EXPECT_THAT(lines, ::testing::Contains("the end"));
}

TEST(LineWriterTest, LinesForAReaderThatHasGoneAreDroppedAndCounted) {
  std::signal(SIGPIPE, SIG_IGN);
  Pipe pipe;
  LineWriter writer(pipe.fd(), 1000, Note);
  pipe.CloseReader();
  writer.Write("first\nsecond\n");
  EXPECT_TRUE(writer.Flush(kLong));
  EXPECT_EQ(writer.num_dropped(), 2);
}

TEST(LineWriterTest, LinesForAFullDiskAreDroppedAndCounted) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  {
    LineWriter writer(full, 1000, Note);
    writer.Write("first\n");
    EXPECT_TRUE(writer.Flush(kLong));
    writer.Write("second\nthird\n");
    EXPECT_TRUE(writer.Flush(kLong));
    EXPECT_EQ(writer.num_dropped(), 3);
  }
  close(full);
}

TEST(LineWriterTest, ItEndsWhileItsReaderStalls) {
  std::signal(SIGPIPE, SIG_IGN);
  Pipe pipe;
  const std::future<void> end = std::async(std::launch::async, [&pipe] {
    LineWriter writer(pipe.fd(), 20'000, Note);
    // The pipe takes only a part of this line, so the writer waits for its reader with the rest.
    writer.Write(std::string(2 * kPipeBytes, 'x') + "\n");
    while (!pipe.IsFull()) std::this_thread::yield();
    while (writer.num_dropped() == 0) writer.Write("a line\n");
  });
  EXPECT_EQ(end.wait_for(kLong), std::future_status::ready);
  pipe.CloseReader();  // This ends a writer that waits for its reader.
}

TEST(LineWriterTest, SeveralThreadsMayWrite) {
  constexpr int kNumThreads = 4;
  constexpr int kNumLines = 200;
  Pipe pipe;
  LineWriter writer(pipe.fd(), 100'000, Note);
  std::vector<std::thread> threads;
  for (int t = 0; t < kNumThreads; ++t) {
    threads.emplace_back([&writer] {
      for (int i = 0; i < kNumLines; ++i) writer.Write("a line of a thread\n");
    });
  }
  const std::vector<std::string> lines = pipe.Read(&writer);
  for (std::thread& thread : threads) thread.join();
  const std::vector<std::string> more = pipe.Read(&writer);
  EXPECT_EQ(lines.size() + more.size(), kNumThreads * kNumLines);
}

}  // namespace
}  // namespace quire
