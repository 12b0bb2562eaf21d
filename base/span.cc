// SPDX-License-Identifier: Apache-2.0

#include "base/span.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/json_text.h"
#include "base/number_text.h"
#include "base/version.h"

namespace quire {
namespace {

constexpr int kErrorStatus = 2;  // STATUS_CODE_ERROR

void AppendField(const char* name, absl::string_view text, std::string* out) {
  absl::StrAppend(out, "\"", name, "\":");
  AppendJsonString(text, out);
}

// Values of OTLP name their type. Integers are strings, because JSON has no numbers of 64 bits.
struct ValueWriter {
  void operator()(const std::string& text) const { AppendField("stringValue", text, out); }
  void operator()(int64_t number) const { absl::StrAppend(out, "\"intValue\":\"", number, "\""); }
  void operator()(double number) const {
    absl::StrAppend(out, "\"doubleValue\":", std::isfinite(number) ? NumberText(number) : "0");
  }
  void operator()(bool value) const { absl::StrAppend(out, "\"boolValue\":", value ? "true" : "false"); }
  void operator()(const std::vector<std::string>& texts) const {
    out->append("\"arrayValue\":{\"values\":[");
    for (size_t i = 0; i < texts.size(); ++i) {
      out->append(i == 0 ? "{" : ",{");
      (*this)(texts[i]);
      out->append("}");
    }
    out->append("]}");
  }

  std::string* out;
};

void AppendAttributes(absl::Span<const SpanAttribute> attributes, std::string* out) {
  out->append("\"attributes\":[");
  for (size_t i = 0; i < attributes.size(); ++i) {
    out->append(i == 0 ? "{" : ",{");
    AppendField("key", attributes[i].name, out);
    out->append(",\"value\":{");
    std::visit(ValueWriter{out}, attributes[i].value);
    out->append("}}");
  }
  out->append("]");
}

void AppendSpan(const Span& span, std::string* out) {
  out->append("{");
  AppendField("traceId", span.context.trace_id, out);
  out->append(",");
  AppendField("spanId", span.context.span_id, out);
  if (!span.context.parent_id.empty()) {
    out->append(",");
    AppendField("parentSpanId", span.context.parent_id, out);
  }
  out->append(",");
  AppendField("name", span.name, out);
  absl::StrAppend(out, ",\"kind\":", static_cast<int>(span.kind), ",\"startTimeUnixNano\":\"", span.start_unix_us,
                  "000\",\"endTimeUnixNano\":\"", span.end_unix_us, "000\",");
  AppendAttributes(span.attributes, out);
  if (!span.error.empty()) {
    absl::StrAppend(out, ",\"status\":{\"code\":", kErrorStatus, ",");
    AppendField("message", span.error, out);
    out->append("}");
  }
  out->append("}");
}

}  // namespace

std::string OtlpJson(absl::string_view service, absl::Span<const Span> spans) {
  std::string out = "{\"resourceSpans\":[{\"resource\":{";
  AppendAttributes({{"service.name", std::string(service)}, {"service.version", std::string(kVersion)}}, &out);
  out.append("},\"scopeSpans\":[{\"scope\":{\"name\":\"quire\",");
  AppendField("version", kVersion, &out);
  out.append("},\"spans\":[");
  for (size_t i = 0; i < spans.size(); ++i) {
    if (i > 0) out.append(",");
    AppendSpan(spans[i], &out);
  }
  out.append("]}]}]}");
  return out;
}

}  // namespace quire
