#include "kv_manager/live_requests.h"

#include "base/check.h"

namespace quire {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

double Seconds(int64_t us) {
  return static_cast<double>(us) * 1e-6;
}

}  // namespace

void LiveRequests::Add(RequestId request, Entry entry) {
  if (entry.deadline_us != kNever) deadlines_.insert({entry.deadline_us, request});
  wanted_blocks_ += entry.wanted_blocks;
  const bool is_new = entries_.emplace(request, std::move(entry)).second;
  QUIRE_CHECK(is_new) << request << " was submitted twice";
}

void LiveRequests::Deliver(StepOutput output, int64_t now_us) {
  for (const RequestId request : output.started) {
    if (const auto it = entries_.find(request); it != entries_.end()) Start(&it->second, now_us);
  }
  for (PromptLogprobs& logprobs : output.prompt_logprobs) {
    const auto it = entries_.find(logprobs.request);
    if (it == entries_.end()) continue;
    it->second.sink->OnPromptLogprobs(logprobs.first_position, std::move(logprobs.tokens));
  }
  for (Emission& emission : output.emissions) Emit(std::move(emission), now_us);
  for (const Finished& finished : output.finished) Finish(finished.request, finished.reason, now_us);
}

void LiveRequests::Start(Entry* entry, int64_t now_us) {
  if (entry->started) return;
  entry->started = true;
  wanted_blocks_ -= entry->wanted_blocks;
  stats_->queue_seconds.Observe(Seconds(now_us - entry->arrival_us));
  entry->sink->OnStarted();
}

void LiveRequests::Emit(Emission emission, int64_t now_us) {
  const auto it = entries_.find(emission.request);
  if (it == entries_.end()) return;
  Entry& entry = it->second;
  ++stats_->generated_tokens;
  if (entry.last_token_us < 0) {
    stats_->first_token_seconds.Observe(Seconds(now_us - entry.arrival_us));
  } else {
    stats_->inter_token_seconds.Observe(Seconds(now_us - entry.last_token_us));
  }
  entry.last_token_us = now_us;
  entry.sink->OnToken(emission.sample_index, emission.position, std::move(emission.token));
}

void LiveRequests::Finish(RequestId request, FinishReason reason, int64_t now_us) {
  const auto it = entries_.find(request);
  if (it == entries_.end()) return;
  ++stats_->finished[static_cast<int>(reason)];
  stats_->request_seconds.Observe(Seconds(now_us - it->second.arrival_us));
  it->second.sink->OnFinished(0, reason);
  Remove(it);
}

bool LiveRequests::Drop(RequestId request) {
  const auto it = entries_.find(request);
  if (it == entries_.end()) return false;
  ++stats_->finished[static_cast<int>(FinishReason::kCancelled)];
  Remove(it);
  return true;
}

std::vector<RequestId> LiveRequests::FailAll(const absl::Status& status) {
  std::vector<RequestId> failed;
  failed.reserve(entries_.size());
  for (const auto& [request, entry] : entries_) {
    ++stats_->failed;
    entry.sink->OnFailed(status);
    failed.push_back(request);
  }
  entries_.clear();
  deadlines_.clear();
  wanted_blocks_ = 0;
  ended_.insert(ended_.end(), failed.begin(), failed.end());
  return failed;
}

void LiveRequests::Remove(Entries::iterator it) {
  if (it->second.deadline_us != kNever) deadlines_.erase({it->second.deadline_us, it->first});
  if (!it->second.started) wanted_blocks_ -= it->second.wanted_blocks;
  ended_.push_back(it->first);
  entries_.erase(it);
}

std::vector<RequestId> LiveRequests::Expired(int64_t now_us) const {
  std::vector<RequestId> expired;
  for (const auto& [deadline_us, request] : deadlines_) {
    if (deadline_us > now_us) break;
    expired.push_back(request);
  }
  return expired;
}

int64_t LiveRequests::next_deadline_us() const {
  return deadlines_.empty() ? kNever : deadlines_.begin()->first;
}

}  // namespace quire
