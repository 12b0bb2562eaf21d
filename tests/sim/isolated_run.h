// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SIM_ISOLATED_RUN_H_
#define QUIRE_TESTS_SIM_ISOLATED_RUN_H_

#include <functional>
#include <string>

#include <sys/types.h>

#include "absl/status/status.h"

namespace quire {

// A run that takes more processor time than this is treated as an endless loop.
constexpr int kMaxSecondsPerRun = 20;

// Starts a timer that ends this process if it takes more than kMaxSecondsPerRun of processor time from now on. Called
// before each run.
void LimitRun();

// Starts `body` in a new process, whose standard error goes to `error_fd`. The process exits with 0 if `body` returns
// true, and with 1 otherwise.
pid_t StartProcess(const std::function<bool()>& body, int error_fd);

// Runs `run` in a new process, so that a failed check, a crash or an endless loop is returned as an error.
// After an endless loop, the message says that the run did not end. Otherwise it is the last line on standard error. If
// `run` returns an error, this line is the error. If nothing was printed, the message names the signal that ended the
// process.
absl::Status RunIsolated(const std::function<absl::Status()>& run);

// Describes how a failed process ended, from its wait status and its output.
std::string DescribeEnd(int wait_status, const std::string& output);

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_ISOLATED_RUN_H_
