// SPDX-License-Identifier: Apache-2.0

#include "base/log_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "base/check.h"
#include "base/log.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::ExitedWithCode;
using ::testing::KilledBySignal;

// The tests run in child processes, because the threads of the log cannot be stopped. The child begins as a new
// process, because a process that was forked from one with threads may have locks that nobody releases.
class LogOutputDeathTest : public testing::Test {
 protected:
  LogOutputDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// Connects standard error to a pipe that nobody reads.
void StallStandardError() {
  int fds[2];
  QUIRE_CHECK_EQ(pipe(fds), 0);
  QUIRE_CHECK_GE(fcntl(fds[1], F_SETPIPE_SZ, 4096), 0);
  QUIRE_CHECK_EQ(dup2(fds[1], STDERR_FILENO), STDERR_FILENO);
}

TEST_F(LogOutputDeathTest, LinesBeforeAnAbortComeOutAlsoThoseThatLibrariesPrint) {
  EXPECT_EXIT(
      {
        StartLogThreads();
        for (int i = 0; i < 1000; ++i) QUIRE_LOG(kInfo) << "line " << i;
        std::fprintf(stderr, "from a library\n");
        std::abort();
      },
      KilledBySignal(SIGABRT), "line 999\nW [^ ]+ from a library\n");
}

TEST_F(LogOutputDeathTest, TheMessageOfAFailedCheckComesOut) {
  EXPECT_EXIT(
      {
        StartLogThreads();
        QUIRE_LOG(kInfo) << "the line before";
        QUIRE_CHECK(NumDroppedLogLines() < 0) << "the reason";
      },
      KilledBySignal(SIGABRT), "the line before\n.*check failed: NumDroppedLogLines\\(\\) < 0 the reason\n");
}

TEST_F(LogOutputDeathTest, AFailedCheckEndsTheProcessWhileTheReaderStalls) {
  EXPECT_EXIT(
      {
        StallStandardError();
        StartLogThreads();
        while (NumDroppedLogLines() == 0) QUIRE_LOG(kInfo) << "a line that nobody reads";
        QUIRE_CHECK(NumDroppedLogLines() == 0) << "the reason";
      },
      KilledBySignal(SIGABRT), "");
}

TEST_F(LogOutputDeathTest, TheEndOfTheProcessDoesNotWaitForAReaderThatStalls) {
  EXPECT_EXIT(
      {
        StallStandardError();
        StartLogThreads();
        while (NumDroppedLogLines() == 0) QUIRE_LOG(kInfo) << "a line that nobody reads";
        FlushLog();
        std::_Exit(7);
      },
      ExitedWithCode(7), "");
}

TEST_F(LogOutputDeathTest, NoOtherFileGetsTheNumberOfAClosedStandardError) {
  EXPECT_EXIT(
      {
        close(STDERR_FILENO);
        StartLogThreads();
        const int fd = open("/dev/null", O_RDONLY);
        QUIRE_LOG(kInfo) << "a line";
        FlushLog();
        std::_Exit(fd > STDERR_FILENO ? 0 : 1);
      },
      ExitedWithCode(0), "");
}

}  // namespace
}  // namespace quire
