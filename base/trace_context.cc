// SPDX-License-Identifier: Apache-2.0

#include "base/trace_context.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "base/number_text.h"

namespace quire {
namespace {

// The format is: version "-" trace-id "-" parent-id "-" trace-flags.
constexpr size_t kTraceIdAt = 3;
constexpr size_t kParentIdAt = 36;
constexpr size_t kFlagsAt = 53;
constexpr size_t kLength = 55;
constexpr char kSampledBit = 1;

// Only lowercase digits count, as in the specification.
bool IsHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool IsId(std::string_view text) {
  return IsHex(text) && text.find_first_not_of('0') != std::string_view::npos;
}

std::string Hex(uint64_t number) {
  return absl::StrCat(absl::Hex(number, absl::kZeroPad16));
}

}  // namespace

std::optional<TraceParent> ParseTraceparent(std::string_view text) {
  if (text.size() < kLength) return std::nullopt;
  const std::string_view version = text.substr(0, 2);
  if (!IsHex(version) || version == "ff") return std::nullopt;
  // Later versions may have more fields, after another dash.
  if (text.size() > kLength && (version == "00" || text[kLength] != '-')) return std::nullopt;
  for (const size_t dash : {kTraceIdAt - 1, kParentIdAt - 1, kFlagsAt - 1}) {
    if (text[dash] != '-') return std::nullopt;
  }
  const std::string_view trace_id = text.substr(kTraceIdAt, 32);
  const std::string_view parent_id = text.substr(kParentIdAt, 16);
  const std::string_view flags = text.substr(kFlagsAt, 2);
  if (!IsId(trace_id) || !IsId(parent_id) || !IsHex(flags)) return std::nullopt;
  return TraceParent{std::string(trace_id), std::string(parent_id), (HexValue(flags[1]) & kSampledBit) != 0};
}

TraceSpan StartSpan(const std::optional<TraceParent>& parent, const uint64_t (&random)[3]) {
  // An id of only zeros is not valid, so one bit is always set.
  TraceSpan span{.trace_id = {}, .span_id = Hex(random[0] | 1), .parent_id = {}};
  if (!parent.has_value()) {
    span.trace_id = absl::StrCat(Hex(random[1]), Hex(random[2] | 1));
    return span;
  }
  span.trace_id = parent->trace_id;
  span.parent_id = parent->parent_id;
  span.is_sampled = parent->is_sampled;
  return span;
}

std::string Traceparent(const TraceSpan& span) {
  return absl::StrCat("00-", span.trace_id, "-", span.span_id, span.is_sampled ? "-01" : "-00");
}

}  // namespace quire
