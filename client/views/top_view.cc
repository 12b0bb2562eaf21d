// SPDX-License-Identifier: Apache-2.0

#include "client/views/top_view.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "client/views/block_drawing.h"
#include "client/views/state_text.h"

namespace quire {
namespace {

constexpr int kMinBarWidth = 20;

// 0 when the manager was started again meanwhile.
uint64_t Increase(uint64_t before, uint64_t now) {
  return now >= before ? now - before : 0;
}

// "12.3 ms", "1.25 s".
std::string Duration(std::optional<double> seconds) {
  if (!seconds.has_value()) return "-";
  return *seconds < 1 ? absl::StrFormat("%.1f ms", *seconds * 1e3) : absl::StrFormat("%.2f s", *seconds);
}

std::string Latency(const char* name, const v1::LatencyHistogram& before, const v1::LatencyHistogram& now) {
  return absl::StrCat(name, " p50 ", Duration(Quantile(before, now, 0.5)), "  p95 ",
                      Duration(Quantile(before, now, 0.95)));
}

const v1::WorkerStatus* FindWorker(const v1::GetStatusResponse& status, const std::string& address) {
  const auto it = std::find_if(status.workers().begin(), status.workers().end(),
                               [&](const v1::WorkerStatus& worker) { return worker.address() == address; });
  return it == status.workers().end() ? nullptr : &*it;
}

// `before` is null at the first look, and for a worker that was not there then: both count from 0.
std::string DrawWorker(const v1::WorkerStatus* before, const v1::WorkerStatus& now, double seconds, int address_width,
                       const Terminal& terminal) {
  const v1::BlockCounts& blocks = now.blocks();
  const bool is_other_session = before != nullptr && before->epoch() != now.epoch();
  const uint64_t steps = is_other_session ? 0 : Increase(before == nullptr ? 0 : before->steps(), now.steps());
  std::string text = absl::StrFormat("%-*s %-10s %5u run %5u wait %7.1f steps/s %6u preempted\n", address_width,
                                     now.address(), StateOf(now), now.running_requests(), now.waiting_requests(),
                                     steps / seconds, static_cast<unsigned>(now.preemptions()));
  if (!now.last_error().empty()) absl::StrAppend(&text, "  ", now.last_error(), "\n");
  absl::StrAppend(&text, RankLines(now));
  if (blocks.total() == 0) return text;
  const StateCount counts[] = {{v1::BLOCK_STATE_SHARED, blocks.shared()},
                               {v1::BLOCK_STATE_USED, blocks.used() - blocks.shared()},
                               {v1::BLOCK_STATE_EVICTABLE, blocks.evictable()},
                               {v1::BLOCK_STATE_FREE, blocks.free()}};
  const int width = std::max(terminal.columns - 4, kMinBarWidth);
  absl::StrAppend(&text, "  [", DrawBar(counts, width, terminal), "]\n");
  absl::StrAppendFormat(&text, "  %.0f%% of %u blocks used: %u shared, %u pinned; %u cached, %u free",
                        100.0 * blocks.used() / blocks.total(), blocks.total(), blocks.shared(), blocks.pinned(),
                        blocks.evictable(), blocks.free());
  if (blocks.host_total() > 0) absl::StrAppendFormat(&text, "; host %u of %u", blocks.host_used(), blocks.host_total());
  return absl::StrCat(text, "\n");
}

}  // namespace

std::optional<double> Quantile(const v1::LatencyHistogram& before, const v1::LatencyHistogram& now, double quantile) {
  std::vector<uint64_t> counts(now.counts().begin(), now.counts().end());
  const bool is_continued = before.counts_size() == now.counts_size();
  uint64_t total = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (is_continued) counts[i] = Increase(before.counts(static_cast<int>(i)), counts[i]);
    total += counts[i];
  }
  if (total == 0 || now.upper_bounds_seconds().empty()) return std::nullopt;
  const double wanted = quantile * static_cast<double>(total);
  double below = 0;
  double lower = 0;
  for (int i = 0; i < now.upper_bounds_seconds_size(); ++i) {
    const double upper = now.upper_bounds_seconds(i);
    const double count = static_cast<double>(counts[i]);
    if (count > 0 && below + count >= wanted) return lower + (upper - lower) * (wanted - below) / count;
    below += count;
    lower = upper;
  }
  return lower;
}

std::string DrawTop(const v1::GetStatusResponse& before, const v1::GetStatusResponse& now, double seconds,
                    const Terminal& terminal) {
  uint64_t num_running = 0;
  uint64_t num_waiting = 0;
  for (const v1::WorkerStatus& worker : now.workers()) {
    num_running += worker.running_requests();
    num_waiting += worker.waiting_requests();
  }
  const uint64_t prompt = Increase(before.prompt_tokens(), now.prompt_tokens());
  const uint64_t cached = Increase(before.cached_prompt_tokens(), now.cached_prompt_tokens());
  std::string text =
      absl::StrCat("quire-manager ", now.version(), ", up ", absl::FormatDuration(absl::Seconds(now.uptime_seconds())),
                   ", model ", now.model_name().empty() ? "not known yet" : now.model_name(),
                   now.is_draining() ? ", draining: new requests are refused" : "", "\n");
  absl::StrAppendFormat(&text, "tokens/s  %.1f generated  %.1f prompt",
                        Increase(before.completion_tokens(), now.completion_tokens()) / seconds, prompt / seconds);
  if (prompt > 0) absl::StrAppendFormat(&text, ", %.0f%% cached", std::min(100.0 * cached / prompt, 100.0));
  absl::StrAppendFormat(&text, "    requests  %u running  %u waiting\n", num_running, num_waiting);
  absl::StrAppend(&text, Latency("TTFT", before.time_to_first_token(), now.time_to_first_token()), "    ",
                  Latency("ITL", before.inter_token_latency(), now.inter_token_latency()), "\n\n");
  const int width = AddressWidth(now);
  for (const v1::WorkerStatus& worker : now.workers()) {
    absl::StrAppend(&text, DrawWorker(FindWorker(before, worker.address()), worker, seconds, width, terminal));
  }
  if (now.workers().empty()) {
    absl::StrAppend(&text, "no workers\n");
    // They may say that the manager stands by.
    for (const std::string& warning : now.warnings()) absl::StrAppend(&text, "warning: ", warning, "\n");
  }
  return text;
}

}  // namespace quire
