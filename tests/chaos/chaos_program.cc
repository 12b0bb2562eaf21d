// SPDX-License-Identifier: Apache-2.0

#include "tests/chaos/chaos_program.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>

namespace quire {

int RunChaosProgram(const ProgramFlags& flags, int argc, const char* const* argv, absl::FunctionRef<bool()> run) {
  const auto text = ReadFlags(flags, {argv + 1, static_cast<size_t>(argc - 1)});
  if (!text.ok()) {
    std::fprintf(stderr, "%s\n", std::string(text.status().message()).c_str());
    return 2;
  }
  if (text->has_value()) {
    std::printf("%s\n", (*text)->c_str());
    return 0;
  }
  const bool is_good = run();
  std::printf("%s\n", is_good ? "passed" : "failed");
  return is_good ? 0 : 1;
}

std::string Seconds(absl::Duration duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", absl::ToDoubleSeconds(duration));
  return text;
}

std::string Percentile(std::vector<absl::Duration> values, double percent) {
  if (values.empty()) return "-";
  std::sort(values.begin(), values.end());
  return Seconds(values[std::min(values.size() - 1, static_cast<size_t>(percent / 100 * values.size()))]);
}

}  // namespace quire
