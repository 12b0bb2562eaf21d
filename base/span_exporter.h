// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_SPAN_EXPORTER_H_
#define QUIRE_BASE_SPAN_EXPORTER_H_

#include <string>
#include <thread>

#include "base/http_client.h"
#include "base/span_queue.h"
#include "base/trace_flags.h"

namespace quire {

// Sends spans to a collector of OpenTelemetry, by OTLP over HTTP in JSON, from a thread of its own with low priority.
// A batch that the collector does not take is sent again for a few seconds, and then dropped and counted. Meanwhile the
// queue fills. Thread-safe.
class SpanExporter {
 public:
  // REQUIRES: options.is_on().
  explicit SpanExporter(const TraceOptions& options);
  // Sends what waits. Gives up when the collector does not take a batch.
  ~SpanExporter();

  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  SpanQueue* queue() { return &queue_; }

 private:
  void Run();
  // Logs when the collector stops taking spans, and when it takes them again.
  void NoteResult(bool is_taken, const std::string& reason);

  const std::string url_;
  const std::string service_;
  SpanQueue queue_;
  HttpClient client_;     // Used by the thread.
  bool is_taken_ = true;  // The last batch. Used by the thread.
  std::thread thread_;    // Uses the other members.
};

}  // namespace quire

#endif  // QUIRE_BASE_SPAN_EXPORTER_H_
