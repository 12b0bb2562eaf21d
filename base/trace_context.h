#ifndef QUIRE_BASE_TRACE_CONTEXT_H_
#define QUIRE_BASE_TRACE_CONTEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

// W3C Trace Context, https://www.w3.org/TR/trace-context-1/: who a request belongs to in the traces of a larger system.

// What a caller's `traceparent` says, in hexadecimal as it stands there.
struct TraceParent {
  std::string trace_id;   // 32 digits, not all 0.
  std::string parent_id;  // 16 digits, not all 0: the caller's span.
  bool is_sampled = false;
};

// Section 3.2. Nothing when it is malformed, and then the request starts a trace of its own. Of a version that is not
// known yet the part is read that version 00 has.
std::optional<TraceParent> ParseTraceparent(std::string_view text);

// The span of ours that serves a request.
struct TraceSpan {
  std::string trace_id;   // The caller's, or a new one.
  std::string span_id;    // 16 digits, not all 0.
  std::string parent_id;  // The caller's span; "" in a new trace.
  bool is_sampled = false;
};

// `random` are three numbers drawn for it.
TraceSpan StartSpan(const std::optional<TraceParent>& parent, const uint64_t (&random)[3]);

// "00-<trace id>-<span id>-01".
std::string Traceparent(const TraceSpan& span);

}  // namespace quire

#endif  // QUIRE_BASE_TRACE_CONTEXT_H_
