// SPDX-License-Identifier: Apache-2.0

#include "base/program_main.h"

#include <cstdio>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace quire {

int ProgramMain(const ProgramFlags& flags, int argc, char** argv, absl::FunctionRef<absl::Status()> run) {
  const absl::StatusOr<std::optional<std::string>> text = ReadFlags(flags, absl::MakeConstSpan(argv + 1, argc - 1));
  if (!text.ok()) {
    std::fprintf(stderr, "%s: %s\n", flags.program, std::string(text.status().message()).c_str());
    return kExitWrongUsage;
  }
  if (text->has_value()) {
    std::fputs((*text)->c_str(), stdout);
    return 0;
  }
  // Lines are printed at once, so that people can watch the table grow even through a pipe.
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const absl::Status status = run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s: %s\n", flags.program, std::string(status.message()).c_str());
  return status.code() == absl::StatusCode::kInvalidArgument ? kExitWrongUsage : 1;
}

}  // namespace quire
