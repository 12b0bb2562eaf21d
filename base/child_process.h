// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_CHILD_PROCESS_H_
#define QUIRE_BASE_CHILD_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace quire {

// A program that runs as a child. It has a session of its own, so that Ctrl-C of the terminal does not reach it, and
// the kernel kills it when this process ends in any way. Used by the main thread, whose end would end the child as
// well.
class ChildProcess {
 public:
  // Where the program's standard error goes. Its standard output can be read in both cases.
  enum class Errors {
    kRead,       // It is read together with standard output.
    kInherited,  // Standard error of this process.
  };

  // Starts `argv`, of which the first element is a path. A program that cannot be run has printed the reason and ends
  // with exit code 127.
  ChildProcess(const std::vector<std::string>& argv, Errors errors);
  // Kills the program, unless it has ended, and waits for it.
  ~ChildProcess();

  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // It can be polled for what the program prints. It is -1 when nothing more can come.
  int fd() const { return fd_; }

  // Returns the lines that have arrived, without newlines, and does not wait. A line of more than 64 KiB is cut.
  std::vector<std::string> ReadLines();

  // Whether the program has ended. Does not wait. What it has printed can still be read.
  bool HasEnded();
  // In words: "exit code 1" or "signal 9 (Killed)". REQUIRES: HasEnded().
  std::string HowItEnded() const;
  // The exit code, or -1 if a signal has ended the program. REQUIRES: HasEnded().
  int exit_code() const;

  // Does nothing when the program has ended.
  void Signal(int signal);

 private:
  pid_t pid_ = -1;  // -1 when it has ended and was waited for.
  int fd_ = -1;
  int wait_status_ = 0;
  std::string rest_;  // The beginning of a line.
};

// Runs a program to its end. Returns what it has printed, and its exit code.
struct FinishedProgram {
  std::vector<std::string> lines;
  int exit_code;  // -1 if a signal has ended it.
};
FinishedProgram RunToEnd(const std::vector<std::string>& argv);

}  // namespace quire

#endif  // QUIRE_BASE_CHILD_PROCESS_H_
