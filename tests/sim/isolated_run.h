#ifndef QUIRE_TESTS_SIM_ISOLATED_RUN_H_
#define QUIRE_TESTS_SIM_ISOLATED_RUN_H_

#include <functional>
#include <string>

#include <sys/types.h>

#include "absl/status/status.h"

namespace quire {

// A run that takes more processor time than this is treated as an endless loop.
constexpr int kMaxSecondsPerRun = 20;

// Ends this process if its next run takes longer. Called before each run.
void LimitRun();

// Starts `body` in a new process, whose standard error goes to `error_fd`. The process exits with 0 if `body` returns
// true, and with 1 otherwise.
pid_t StartProcess(const std::function<bool()>& body, int error_fd);

// Runs `run` in a new process, so that a failed check, a crash or an endless loop is returned as an error. Its
// message is the last line that the process has printed to standard error, which is the error of `run` if it returned
// one. Otherwise it says by which signal the process ended, or that it did not end.
absl::Status RunIsolated(const std::function<absl::Status()>& run);

// Describes how a failed process ended, from its wait status and the last lines of its output.
std::string DescribeEnd(int wait_status, const std::string& output);

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_ISOLATED_RUN_H_
