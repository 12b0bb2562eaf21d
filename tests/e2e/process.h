#ifndef QUIRE_TESTS_E2E_PROCESS_H_
#define QUIRE_TESTS_E2E_PROCESS_H_

#include <sys/types.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace quire {

// A child process whose output is collected. Killed when it goes out of scope.
class Process {
 public:
  // Starts `argv`, standard output and standard error joined. `argv[0]` is a path.
  explicit Process(const std::vector<std::string>& argv);
  ~Process();

  // Waits until a line of the output contains `text` and returns that line; "" when the process ended or the time was
  // up before.
  std::string WaitForLine(const std::string& text, int timeout_ms = 30'000);

  void Signal(int signal);
  // Waits for the end. Returns the exit code, or 128 + the signal that ended it.
  int Wait();

  std::string Output() const;
  pid_t pid() const { return pid_; }

 private:
  void ReadOutput(int fd);

  pid_t pid_ = -1;
  int exit_code_ = -1;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string output_;   // Guarded by mutex_.
  bool closed_ = false;  // Guarded by mutex_.
  std::thread reader_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_E2E_PROCESS_H_
