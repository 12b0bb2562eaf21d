#ifndef QUIRE_TESTS_SIM_ISOLATED_RUN_H_
#define QUIRE_TESTS_SIM_ISOLATED_RUN_H_

#include <functional>
#include <string>

#include <sys/types.h>

#include "absl/status/status.h"

namespace quire {

// A run that takes so much processor time goes nowhere.
constexpr int kMaxSecondsPerRun = 20;

// This process ends when its next run takes longer. Called before each.
void LimitRun();

// Starts `body` in a process of its own, whose error output goes to `error_fd`. It ends with code 0 when `body` returns
// true, else with 1.
pid_t StartProcess(const std::function<bool()>& body, int error_fd);

// Runs `run` in a process of its own, so that a failed check, a crash or a loop without end is an error like any other.
// The message is that of `run`, or the last line that the process has printed.
absl::Status RunIsolated(const std::function<absl::Status()>& run);

// What the wait status of a process that did not end well says, with what it printed last.
std::string DescribeEnd(int wait_status, const std::string& output);

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_ISOLATED_RUN_H_
