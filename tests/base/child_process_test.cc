// SPDX-License-Identifier: Apache-2.0

#include "base/child_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

ChildProcess Shell(const std::string& script) {
  return ChildProcess({"/bin/sh", "-c", script}, ChildProcess::Errors::kRead);
}

std::vector<std::string> NextLines(ChildProcess* child) {
  pollfd output = {child->fd(), POLLIN, 0};
  EXPECT_EQ(poll(&output, 1, 30'000), 1);
  return child->ReadLines();
}

void WaitForEnd(ChildProcess* child) {
  while (!child->HasEnded()) poll(nullptr, 0, 1);
}

TEST(ChildProcessTest, LinesAreReadAsTheyCome) {
  const FinishedProgram program = RunToEnd({"/bin/sh", "-c", "echo one; echo two >&2; printf three; exit 4"});
  EXPECT_THAT(program.lines, ElementsAre("one", "two", "three"));
  EXPECT_EQ(program.exit_code, 4);
}

TEST(ChildProcessTest, ALongLineIsCut) {
  const FinishedProgram program = RunToEnd({"/bin/sh", "-c", "head -c 100000 /dev/zero | tr '\\0' x"});
  ASSERT_THAT(program.lines, SizeIs(2));
  EXPECT_THAT(program.lines[0], SizeIs(65536));
  EXPECT_THAT(program.lines[1], SizeIs(100000 - 65536));
}

TEST(ChildProcessTest, AProgramThatCannotBeRunSaysWhy) {
  const FinishedProgram program = RunToEnd({"/none/program"});
  EXPECT_THAT(program.lines, ElementsAre("cannot run /none/program: No such file or directory"));
  EXPECT_EQ(program.exit_code, 127);
}

TEST(ChildProcessTest, ItsEndIsDescribed) {
  ChildProcess exits = Shell("exit 3");
  WaitForEnd(&exits);
  EXPECT_EQ(exits.HowItEnded(), "exit code 3");
  ChildProcess killed = Shell("kill -KILL $$");
  WaitForEnd(&killed);
  EXPECT_EQ(killed.HowItEnded(), "signal 9 (Killed)");
  EXPECT_EQ(killed.exit_code(), -1);
}

TEST(ChildProcessTest, ItHasASessionOfItsOwnAndNoBlockedSignals) {
  sigset_t term;
  sigset_t before;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  sigprocmask(SIG_BLOCK, &term, &before);
  ChildProcess child = Shell("echo $$; cut -d ' ' -f 6 /proc/$$/stat; exec sleep 20");
  sigprocmask(SIG_SETMASK, &before, nullptr);
  std::vector<std::string> lines;
  while (lines.size() < 2) {
    for (const std::string& line : NextLines(&child)) lines.push_back(line);
  }
  EXPECT_EQ(std::stoi(lines[0]), std::stoi(lines[1]));
  child.Signal(SIGTERM);
  WaitForEnd(&child);
  EXPECT_EQ(child.HowItEnded(), "signal 15 (Terminated)");
}

TEST(ChildProcessTest, ItEndsWithItsParent) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // So that the child of the child can be waited for.
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    ChildProcess child = Shell("echo $$; exec sleep 20");
    const int pid = std::stoi(NextLines(&child)[0]);
    if (write(fds[1], &pid, sizeof(pid)) == sizeof(pid)) pause();
    _exit(1);
  }
  int pid = 0;
  ASSERT_EQ(read(fds[0], &pid, sizeof(pid)), static_cast<ssize_t>(sizeof(pid)));
  close(fds[0]);
  close(fds[1]);
  EXPECT_EQ(waitpid(pid, nullptr, WNOHANG), -1);  // It is no child of this process yet.
  kill(parent, SIGKILL);
  ASSERT_EQ(waitpid(parent, nullptr, 0), parent);
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

}  // namespace
}  // namespace quire
