// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_E2E_PROCESS_H_
#define QUIRE_TESTS_E2E_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace quire {

// A child process whose output is collected. The destructor kills it.
class Process {
 public:
  // Starts `argv`. Standard output and standard error are joined, standard input is /dev/null. `argv[0]` is a path.
  explicit Process(const std::vector<std::string>& argv);
  ~Process();

  // Waits until a line of the output contains `text` and returns that line. Returns "" if the process ends or the time
  // is up before.
  std::string WaitForLine(const std::string& text, int timeout_ms = 30'000);

  // Makes the pipe as small as the system allows, 4 KiB, and reads nothing from it until the next call of ResumeReading
  // or Wait.
  void StopReading();
  void ResumeReading();

  // Returns after SIGSTOP only when all threads of the process have stopped.
  void Signal(int signal);
  // Waits for the end. Returns the exit code, or 128 + the signal that ended it.
  int Wait();

  // Whether the process has ended by itself or by a signal. Does not wait.
  bool HasEnded() const;

  std::string Output() const;
  pid_t pid() const { return pid_; }

 private:
  void ReadOutput();

  pid_t pid_ = -1;
  int fd_ = -1;  // The reader's end of the pipe.
  int exit_code_ = -1;
  mutable Mutex mutex_;
  CondVar changed_;
  std::string output_ QUIRE_GUARDED_BY(mutex_);
  bool is_reading_ QUIRE_GUARDED_BY(mutex_) = true;
  bool closed_ QUIRE_GUARDED_BY(mutex_) = false;
  std::thread reader_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_E2E_PROCESS_H_
