// SPDX-License-Identifier: Apache-2.0

#include "base/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace quire {
namespace {

constexpr size_t kMaxLineBytes = 64 << 10;
constexpr int kCannotRun = 127;  // As in a shell.

// Becomes the program. It runs in the child.
[[noreturn]] void Become(char* const* argv, int out, bool has_own_errors, pid_t parent) {
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kCannotRun);  // The parent has ended before the call above.
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  if (!has_own_errors) dup2(out, STDERR_FILENO);
  close_range(3, ~0U, 0);
  execv(argv[0], argv);
  dprintf(STDERR_FILENO, "cannot run %s: %s\n", argv[0], std::strerror(errno));
  _exit(kCannotRun);
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& argv, Errors errors) {
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  int fds[2];
  QUIRE_CHECK_EQ(pipe2(fds, O_CLOEXEC), 0);
  const pid_t parent = getpid();
  pid_ = fork();
  QUIRE_CHECK_GE(pid_, 0);
  if (pid_ == 0) Become(arguments.data(), fds[1], errors == Errors::kInherited, parent);
  close(fds[1]);
  fd_ = fds[0];
  fcntl(fd_, F_SETFL, O_NONBLOCK);
}

ChildProcess::~ChildProcess() {
  if (!HasEnded()) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (fd_ >= 0) close(fd_);
}

std::vector<std::string> ChildProcess::ReadLines() {
  std::vector<std::string> lines;
  while (fd_ >= 0) {
    char buffer[4096];
    const ssize_t count = read(fd_, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count <= 0) {
      close(std::exchange(fd_, -1));
      if (!rest_.empty()) lines.push_back(std::exchange(rest_, ""));
      break;
    }
    for (const char c : absl::string_view(buffer, static_cast<size_t>(count))) {
      if (c != '\n') rest_ += c;
      if (c == '\n' || rest_.size() >= kMaxLineBytes) lines.push_back(std::exchange(rest_, ""));
    }
  }
  return lines;
}

bool ChildProcess::HasEnded() {
  if (pid_ > 0 && waitpid(pid_, &wait_status_, WNOHANG) == pid_) pid_ = -1;
  return pid_ < 0;
}

std::string ChildProcess::HowItEnded() const {
  if (WIFEXITED(wait_status_)) return absl::StrCat("exit code ", WEXITSTATUS(wait_status_));
  const int signal = WTERMSIG(wait_status_);
  return absl::StrCat("signal ", signal, " (", strsignal(signal), ")");
}

int ChildProcess::exit_code() const {
  return WIFEXITED(wait_status_) ? WEXITSTATUS(wait_status_) : -1;
}

void ChildProcess::Signal(int signal) {
  if (!HasEnded()) kill(pid_, signal);
}

FinishedProgram RunToEnd(const std::vector<std::string>& argv) {
  ChildProcess process(argv, ChildProcess::Errors::kRead);
  FinishedProgram program;
  while (process.fd() >= 0) {
    pollfd output = {process.fd(), POLLIN, 0};
    poll(&output, 1, -1);
    for (std::string& line : process.ReadLines()) program.lines.push_back(std::move(line));
  }
  while (!process.HasEnded()) poll(nullptr, 0, 1);  // It has closed its output, so it is about to end.
  program.exit_code = process.exit_code();
  return program;
}

}  // namespace quire
