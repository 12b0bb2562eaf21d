// SPDX-License-Identifier: Apache-2.0

#include "absl/time/clock.h"
#include "client/commands/commands.h"
#include "client/commands/option_range.h"
#include "client/commands/shared_options.h"
#include "client/views/top_view.h"

#include <algorithm>
#include <cstdio>

namespace quire {
namespace {

struct TopOptions {
  int num_frames = 0;  // 0 means until Ctrl-C.
  double interval_s = 1;
};

// The seconds that the rates of the first frame cover: the time since the manager's start, when all counts were 0.
double SecondsSinceStart(const v1::GetStatusResponse& status) {
  return std::max<double>(static_cast<double>(status.uptime_seconds()), 1);
}

// The first frame clears the screen. Later frames move to the top left corner and clear everything from there.
const char* BeginFrame(int frame, bool redraws) {
  if (!redraws) return frame == 0 ? "" : "\n";
  return frame == 0 ? "\033[2J\033[H" : "\033[H\033[J";
}

int RunTop(const TopOptions& options, const CommandContext& context) {
  const bool is_live = DescribeTerminal().is_terminal && context.format == OutputFormat::kText;
  const int num_frames = options.num_frames == 0 && !is_live ? 1 : options.num_frames;
  Client client(context.client);
  v1::GetStatusResponse before;
  absl::Time looked_at;
  for (int frame = 0; num_frames == 0 || frame < num_frames; ++frame) {
    if (frame > 0) absl::SleepFor(absl::Seconds(options.interval_s));
    const absl::StatusOr<v1::GetStatusResponse> status = client.GetStatus();
    if (!status.ok()) return ReportError(status.status(), context.client.endpoint);
    const absl::Time now = absl::Now();
    if (context.format == OutputFormat::kJson) {
      PrintJson(*status);
    } else {
      const double seconds = frame == 0 ? SecondsSinceStart(*status) : absl::ToDoubleSeconds(now - looked_at);
      const std::string text = DrawTop(before, *status, std::max(seconds, 1e-3), DescribeTerminal());
      std::printf("%s%s", BeginFrame(frame, is_live && num_frames != 1), text.c_str());
    }
    if (!FlushOutput()) return kExitFailed;
    before = *status;
    looked_at = now;
  }
  return kExitOk;
}

}  // namespace

void AddTopCommand(CommandList* list) {
  const auto [command, options] = list->Add(
      "top",
      "Show workers, their blocks, tokens per second and latencies, refreshed until Ctrl-C. With -n 1, show them once, "
      "with rates since the manager's start. This is the default when standard output is not a terminal. TTFT is the "
      "time from a request's arrival to its first token, ITL the time between two tokens.",
      RunTop);
  AddOption(command, "-n,--frames", &options->num_frames, "NUMBER [0]", "Number of updates; 0 means until Ctrl-C")
      ->check(InRange<int>(0, 1'000'000));
  AddOption(command, "-i,--interval", &options->interval_s, "SECONDS [1]", "Time between two updates")
      ->transform(InSeconds<double>(0.1, 3600));
}

}  // namespace quire
