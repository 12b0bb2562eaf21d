// SPDX-License-Identifier: Apache-2.0

#include "tests/chaos/process_state.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace quire {

ProcessState ReadProcessState(pid_t pid) {
  ProcessState state;
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  if (!status) return state;
  state.pid = pid;
  for (std::string word; status >> word;) {
    if (word == "VmRSS:") {
      status >> state.resident_mib;
      state.resident_mib /= 1024;  // The file has KiB.
    } else if (word == "Threads:") {
      status >> state.num_threads;
    }
  }
  std::error_code error;
  const std::filesystem::directory_iterator files(absl::StrCat("/proc/", pid, "/fd"), error);
  if (!error) state.num_files = static_cast<int>(std::distance(begin(files), end(files)));
  return state;
}

}  // namespace quire
