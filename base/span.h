// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_SPAN_H_
#define QUIRE_BASE_SPAN_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/trace_context.h"

namespace quire {

// Spans of OpenTelemetry, and their form in OTLP (https://opentelemetry.io/docs/specs/otlp/).

// A fact about a span. Its name is one of the semantic conventions of OpenTelemetry, or begins with "quire.".
struct SpanAttribute {
  std::string name;
  std::variant<std::string, int64_t, double, bool, std::vector<std::string>> value;
};

// What a span is. The values are those of OTLP.
enum class SpanKind { kInternal = 1, kServer = 2, kClient = 3 };

// A span that has ended.
struct Span {
  TraceSpan context = {};
  std::string name = "";  // One of few, apart from the name of the model.
  SpanKind kind = SpanKind::kInternal;
  int64_t start_unix_us = 0;
  int64_t end_unix_us = 0;
  std::vector<SpanAttribute> attributes = {};
  std::string error = "";  // Type of the error. Empty: there was none.
};

// Returns the request of OTLP in JSON that exports these spans of a service.
std::string OtlpJson(absl::string_view service, absl::Span<const Span> spans);

}  // namespace quire

#endif  // QUIRE_BASE_SPAN_H_
