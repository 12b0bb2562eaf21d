// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/isolated_run.h"

#include <csignal>
#include <cstdio>
#include <cstring>

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/check.h"

namespace quire {

pid_t StartProcess(const std::function<bool()>& body, int error_fd) {
  std::fflush(nullptr);
  const pid_t process = fork();
  QUIRE_CHECK_GE(process, 0) << "fork";
  if (process > 0) return process;
  const rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // It does not outlive its parent.
  dup2(error_fd, STDERR_FILENO);
  const bool is_good = body();
  std::fflush(nullptr);
  _exit(is_good ? 0 : 1);
}

void LimitRun() {
  const itimerval limit = {{0, 0}, {kMaxSecondsPerRun, 0}};
  setitimer(ITIMER_PROF, &limit, nullptr);
}

absl::Status RunIsolated(const std::function<absl::Status()>& run) {
  int ends[2];
  QUIRE_CHECK_EQ(pipe(ends), 0) << "pipe";
  const pid_t process = StartProcess(
      [&] {
        close(ends[0]);
        LimitRun();
        const absl::Status status = run();
        if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
        return status.ok();
      },
      ends[1]);
  close(ends[1]);
  std::string output;
  char buffer[4096];
  for (ssize_t size; (size = read(ends[0], buffer, sizeof(buffer))) > 0;) output.append(buffer, size);
  close(ends[0]);
  int wait_status = 0;
  waitpid(process, &wait_status, 0);
  if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) return absl::OkStatus();
  return absl::InternalError(DescribeEnd(wait_status, output));
}

std::string DescribeEnd(int wait_status, const std::string& output) {
  const absl::string_view text = absl::StripSuffix(output, "\n");
  const absl::string_view last_line = text.substr(text.rfind('\n') + 1);
  if (WIFEXITED(wait_status)) return std::string(last_line);
  if (WTERMSIG(wait_status) == SIGPROF) return absl::StrCat("no end after ", kMaxSecondsPerRun, " s");
  return last_line.empty() ? absl::StrCat("ended by ", strsignal(WTERMSIG(wait_status))) : std::string(last_line);
}

}  // namespace quire
