// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_SPAN_QUEUE_H_
#define QUIRE_BASE_SPAN_QUEUE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "base/span.h"
#include "base/trace_context.h"

namespace quire {

// The spans that wait to be exported. Whoever ends a span never waits: a span that finds the queue full is dropped and
// counted. Thread-safe.
class SpanQueue {
 public:
  static constexpr size_t kMaxSpans = 8192;
  static constexpr size_t kMaxBatch = 512;

  // `sampling_ratio` is the share of the traces that begin here and are sampled, in [0, 1].
  explicit SpanQueue(double sampling_ratio, size_t max_spans = kMaxSpans)
      : sampling_ratio_(sampling_ratio), max_spans_(max_spans) {}

  // As StartSpan, but a trace that begins here may be sampled. The sampling of a caller's trace is the caller's.
  TraceSpan Start(const std::optional<TraceParent>& parent, const uint64_t (&random)[3]) const;

  // Adds a span that has ended. REQUIRES: it is sampled.
  void Add(Span span);

  // Takes at most kMaxBatch spans. Waits until there is one, and then for more of them until `linger` is over. Returns
  // none when the queue is closed and empty.
  std::vector<Span> Take(std::chrono::milliseconds linger);

  // Waits for `pause`. Returns false, perhaps earlier, when the queue is closed.
  bool Pause(std::chrono::milliseconds pause);

  // Nothing is waited for any more.
  void Close();

  // The collector has taken spans of the queue.
  void CountExported(size_t num_spans);
  // It has not taken them.
  void CountDropped(size_t num_spans);

  struct Counts {
    int64_t num_exported = 0;
    int64_t num_dropped = 0;  // The queue was full, or the collector did not take them.
  };
  Counts counts() const;

 private:
  const double sampling_ratio_;
  const size_t max_spans_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<Span> spans_ QUIRE_GUARDED_BY(mutex_);
  bool is_closed_ QUIRE_GUARDED_BY(mutex_) = false;
  Counts counts_ QUIRE_GUARDED_BY(mutex_);
};

}  // namespace quire

#endif  // QUIRE_BASE_SPAN_QUEUE_H_
