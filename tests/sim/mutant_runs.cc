// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/mutant_runs.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <vector>

#include <sys/wait.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace quire {
namespace {

// Returns the output of `command`. `wait_status` is its wait status.
std::string OutputOf(const std::string& command, int* wait_status) {
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "";
  std::string output;
  char buffer[4096];
  for (size_t size; (size = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) output.append(buffer, size);
  *wait_status = pclose(pipe);
  return output;
}

}  // namespace

bool CatchMutants(const std::string& folder, const std::string& only, double seconds, int jobs) {
  std::vector<std::filesystem::path> mutants;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.is_regular_file() && entry.path().filename().string().find(only) != std::string::npos) {
      mutants.push_back(entry.path());
    }
  }
  std::sort(mutants.begin(), mutants.end());
  int num_caught = 0;
  double slowest = 0;
  for (const auto& mutant : mutants) {
    const auto start = std::chrono::steady_clock::now();
    int wait_status = -1;
    const std::string output =
        OutputOf(absl::StrCat("'", mutant.string(), "' --no-shrink --seconds ", seconds, " --jobs ", jobs, " 2>&1"),
                 &wait_status);
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const bool is_caught = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 1;
    const absl::string_view first_line = absl::string_view(output).substr(0, output.find('\n'));
    std::printf("%-8s %-40s %6.2f s  %s\n", is_caught ? "caught" : "MISSED", mutant.filename().c_str(), took,
                std::string(first_line).c_str());
    std::fflush(stdout);
    num_caught += is_caught;
    slowest = std::max(slowest, took);
  }
  std::printf("%d of %zu mutants caught, the slowest after %.2f s\n", num_caught, mutants.size(), slowest);
  return num_caught > 0 && num_caught == static_cast<int>(mutants.size());
}

}  // namespace quire
