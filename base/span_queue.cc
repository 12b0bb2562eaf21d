// SPDX-License-Identifier: Apache-2.0

#include "base/span_queue.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace quire {

TraceSpan SpanQueue::Start(const std::optional<TraceParent>& parent, const uint64_t (&random)[3]) const {
  TraceSpan span = StartSpan(parent, random);
  if (parent.has_value()) return span;
  // 53 random bits of the trace id as a number in [0, 1).
  span.is_sampled = std::ldexp(static_cast<double>(random[2] >> 11), -53) < sampling_ratio_;
  return span;
}

void SpanQueue::Add(Span span) {
  QUIRE_CHECK(span.context.is_sampled);
  const MutexLock lock(&mutex_);
  if (spans_.size() >= max_spans_) {
    ++counts_.num_dropped;
    return;
  }
  spans_.push_back(std::move(span));
  if (spans_.size() == 1 || spans_.size() == kMaxBatch) changed_.NotifyAll();
}

std::vector<Span> SpanQueue::Take(std::chrono::milliseconds linger) {
  const MutexLock lock(&mutex_);
  while (spans_.empty() && !is_closed_) changed_.Wait(&mutex_);
  const auto end = std::chrono::steady_clock::now() + linger;
  while (spans_.size() < kMaxBatch && !is_closed_ && changed_.WaitUntil(&mutex_, end)) {
  }
  const auto count = static_cast<ptrdiff_t>(std::min(kMaxBatch, spans_.size()));
  std::vector<Span> taken(std::make_move_iterator(spans_.begin()), std::make_move_iterator(spans_.begin() + count));
  spans_.erase(spans_.begin(), spans_.begin() + count);
  return taken;
}

bool SpanQueue::Pause(std::chrono::milliseconds pause) {
  const auto end = std::chrono::steady_clock::now() + pause;
  const MutexLock lock(&mutex_);
  while (!is_closed_ && changed_.WaitUntil(&mutex_, end)) {
  }
  return !is_closed_;
}

void SpanQueue::Close() {
  const MutexLock lock(&mutex_);
  is_closed_ = true;
  changed_.NotifyAll();
}

void SpanQueue::CountExported(size_t num_spans) {
  const MutexLock lock(&mutex_);
  counts_.num_exported += static_cast<int64_t>(num_spans);
}

void SpanQueue::CountDropped(size_t num_spans) {
  const MutexLock lock(&mutex_);
  counts_.num_dropped += static_cast<int64_t>(num_spans);
}

SpanQueue::Counts SpanQueue::counts() const {
  const MutexLock lock(&mutex_);
  return counts_;
}

}  // namespace quire
