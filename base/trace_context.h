// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_TRACE_CONTEXT_H_
#define QUIRE_BASE_TRACE_CONTEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

// W3C Trace Context (https://www.w3.org/TR/trace-context-1/), which connects a request with the traces of a larger
// system.

// The fields of a caller's `traceparent`. The ids are hexadecimal digits, as in the header.
struct TraceParent {
  std::string trace_id;   // 32 digits, not all 0.
  std::string parent_id;  // The caller's span: 16 digits, not all 0.
  bool is_sampled = false;
};

// Parses the header as section 3.2 says. Returns nothing when it is malformed; the request then starts a trace of its
// own. If the version is unknown, only the fields of version 00 are read.
std::optional<TraceParent> ParseTraceparent(std::string_view text);

// The span in which we serve a request.
struct TraceSpan {
  std::string trace_id;   // The caller's, or a new one.
  std::string span_id;    // 16 digits, not all 0.
  std::string parent_id;  // The caller's span, or "" in a new trace.
  bool is_sampled = false;
};

// Makes the span for a request. `random` are three random numbers.
TraceSpan StartSpan(const std::optional<TraceParent>& parent, const uint64_t (&random)[3]);

// Returns the header for this span: "00-<trace id>-<span id>-01", or the same with "-00" if it is not sampled.
std::string Traceparent(const TraceSpan& span);

}  // namespace quire

#endif  // QUIRE_BASE_TRACE_CONTEXT_H_
