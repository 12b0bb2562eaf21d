// SPDX-License-Identifier: Apache-2.0

#include "worker/step_times_file.h"

#include <set>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/config_file.h"
#include "base/status.h"

namespace quire {
namespace {

using simulated::StepTimes;

struct Key {
  const char* name;
  std::chrono::nanoseconds StepTimes::*time;
  absl::Duration max;
};
// Sums of these times cannot overflow: a step has at most 2^20 tokens, and contexts of at most 2^40 tokens together.
constexpr Key kKeys[] = {{"step", &StepTimes::step, absl::Minutes(10)},
                         {"prefill_token", &StepTimes::prefill_token, absl::Seconds(1)},
                         {"decode_row", &StepTimes::decode_row, absl::Seconds(1)},
                         {"context_token", &StepTimes::context_token, absl::Milliseconds(1)}};

absl::Status ReadTime(const ConfigEntry& entry, StepTimes* times) {
  for (const Key& key : kKeys) {
    if (entry.key != key.name) continue;
    if (entry.is_list) return InvalidArgument(entry.value_at, ": ", entry.key, " is a list, it must be one duration");
    absl::Duration time;
    if (!absl::ParseDuration(entry.values[0], &time) || time < absl::ZeroDuration() || time > key.max) {
      return InvalidArgument(entry.value_at, ": ", entry.key, " is ", absl::CHexEscape(entry.values[0]),
                             ", it must be a duration such as 5ms, from 0 to ", absl::FormatDuration(key.max));
    }
    times->*key.time = absl::ToChronoNanoseconds(time);
    return absl::OkStatus();
  }
  return InvalidArgument(entry.key_at, ": unknown key ", absl::CHexEscape(entry.key),
                         ", it must be step, prefill_token, decode_row or context_token");
}

}  // namespace

StepTimes DefaultStepTimes() {
  using namespace std::chrono_literals;  // NOLINT(build/namespaces): the suffixes of durations
  return {.step = 10ms, .prefill_token = 50us, .decode_row = 50us, .context_token = 5ns};
}

absl::StatusOr<StepTimes> ParseStepTimes(const std::string& name, const std::string& text) {
  if (text.size() > kMaxConfigBytes) return InvalidArgument(name, ": it has more than ", kMaxConfigBytes, " bytes");
  QUIRE_ASSIGN_OR_RETURN(const std::vector<ConfigEntry> entries, ParseConfig(name, text));
  if (entries.empty()) return InvalidArgument(name, ": it has no time; \"step: 0\" makes steps as fast as possible");
  StepTimes times;
  std::set<std::string> given;
  for (const ConfigEntry& entry : entries) {
    if (!given.insert(entry.key).second) return InvalidArgument(entry.key_at, ": ", entry.key, " is given twice");
    QUIRE_RETURN_IF_ERROR(ReadTime(entry, &times));
  }
  return times;
}

}  // namespace quire
