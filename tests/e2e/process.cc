// SPDX-License-Identifier: Apache-2.0

#include "tests/e2e/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "base/check.h"

namespace quire {

Process::Process(const std::vector<std::string>& argv) {
  int fds[2];
  QUIRE_CHECK_EQ(pipe(fds), 0);
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  pid_ = fork();
  QUIRE_CHECK_GE(pid_, 0);
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(fds[1], STDOUT_FILENO);
    dup2(fds[1], STDERR_FILENO);
    close_range(3, ~0U, 0);  // Other threads of this process may have opened descriptors.
    execv(arguments[0], arguments.data());
    dprintf(STDERR_FILENO, "cannot run %s: %s\n", arguments[0], strerror(errno));
    _exit(127);
  }
  close(fds[1]);
  fd_ = fds[0];
  reader_ = std::thread([this] { ReadOutput(); });
}

Process::~Process() {
  if (exit_code_ < 0) {
    Signal(SIGKILL);
    Wait();
  }
}

void Process::ReadOutput() {
  char buffer[4096];
  ssize_t n;
  while ((n = read(fd_, buffer, sizeof buffer)) > 0) {
    const MutexLock lock(&mutex_);
    output_.append(buffer, static_cast<size_t>(n));
    changed_.NotifyAll();
    while (!is_reading_) changed_.Wait(&mutex_);
  }
  close(fd_);
  const MutexLock lock(&mutex_);
  closed_ = true;
  changed_.NotifyAll();
}

std::string Process::WaitForLine(const std::string& text, int timeout_ms) {
  const MutexLock lock(&mutex_);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (true) {
    if (const size_t at = output_.find(text); at != std::string::npos) {
      const size_t end = output_.find('\n', at);
      if (end != std::string::npos) {
        const size_t begin = output_.rfind('\n', at) + 1;
        return output_.substr(begin, end - begin);
      }
    }
    if (closed_ || !changed_.WaitUntil(&mutex_, deadline)) return "";
  }
}

void Process::StopReading() {
  // The pipe cannot shrink while much of it is unread.
  while (fcntl(fd_, F_SETPIPE_SZ, 4096) < 0 && errno == EBUSY) std::this_thread::yield();
  const MutexLock lock(&mutex_);
  is_reading_ = false;
}

void Process::ResumeReading() {
  const MutexLock lock(&mutex_);
  is_reading_ = true;
  changed_.NotifyAll();
}

void Process::Signal(int signal) {
  kill(pid_, signal);
  if (signal != SIGSTOP) return;
  // The threads stop a little later, on a busy machine after milliseconds.
  siginfo_t info;
  waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WEXITED | WNOWAIT);
}

int Process::Wait() {
  if (exit_code_ >= 0) return exit_code_;
  int status = 0;
  QUIRE_CHECK_EQ(waitpid(pid_, &status, 0), pid_);
  ResumeReading();
  reader_.join();
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return exit_code_;
}

bool Process::HasEnded() const {
  if (exit_code_ >= 0) return true;
  siginfo_t info = {};
  return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_;
}

std::string Process::Output() const {
  const MutexLock lock(&mutex_);
  return output_;
}

}  // namespace quire
