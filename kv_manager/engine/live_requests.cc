// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/live_requests.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/clock.h"
#include "kv_manager/engine/step_loop_options.h"

namespace quire {
namespace {

constexpr int64_t kNoToken = -1;

std::unique_ptr<RequestPins> PinsOf(const Request& request) {
  if (request.pins.empty()) return nullptr;
  int num_tokens = 0;
  for (const Request::PrefixPin& pin : request.pins) num_tokens = std::max(num_tokens, pin.num_tokens);
  return std::make_unique<RequestPins>(
      RequestPins{.tenant = request.tenant,
                  .salt = request.cache_salt,
                  .tokens = {request.prompt.begin(), request.prompt.begin() + num_tokens},
                  .pins = request.pins});
}

}  // namespace

LiveRequests::Entry LiveRequests::EntryOf(const Request& request, std::shared_ptr<RequestSink> sink,
                                          std::unique_ptr<TenantQuotas::Ticket> ticket,
                                          const StepLoopOptions& options) {
  return {.sink = std::move(sink),
          .arrival_us = request.arrival_us,
          .deadline_us = request.deadline_us,
          .num_prompt_tokens = static_cast<int>(request.prompt.size()),
          .max_tokens = request.max_tokens,
          .num_outputs = NumOutputs(request),
          .num_rows = NumRows(request),
          .tenant_slot = options.tenants == nullptr ? 0 : options.tenants->SlotOf(request.tenant),
          .num_generated_tokens = NumKnownTokens(request) - static_cast<int>(request.prompt.size()),
          .is_prompt_only = request.is_prompt_only,
          .is_restorable = IsRestorable(request, options),
          .pins = PinsOf(request),
          .ticket = std::move(ticket)};
}

int64_t LiveRequests::WantedBlocks(const Entry& entry) const {
  return groups_.NumBlocks(NumTokens(entry) + 1);
}

void LiveRequests::SetGroups(const CacheGroups& groups) {
  groups_ = groups;
  wanted_blocks_ = 0;
  for (auto& [request, entry] : entries_) {
    if (entry.wanted_blocks == 0) continue;
    entry.wanted_blocks = WantedBlocks(entry);
    wanted_blocks_ += entry.wanted_blocks;
  }
}

void LiveRequests::Add(RequestId request, Entry entry) {
  Entry& added = Insert(request, std::move(entry));
  stats_->prompt_tokens += added.num_prompt_tokens;
  ++stats_->tenants[added.tenant_slot].requests;
  stats_->tenants[added.tenant_slot].prompt_tokens += added.num_prompt_tokens;
}

void LiveRequests::Adopt(RequestId request, Entry entry) {
  Insert(request, std::move(entry));
  moved_.push_back(request);
}

void LiveRequests::StopWantingIf(absl::FunctionRef<bool(RequestId)> is_running) {
  std::erase_if(moved_, [&](RequestId request) {
    const auto it = entries_.find(request);
    if (it == entries_.end()) return true;
    Entry& moved = it->second;
    if (moved.wanted_blocks > 0 && !is_running(request)) return false;
    StopWanting(&moved);
    return true;
  });
}

LiveRequests::Entry& LiveRequests::Insert(RequestId request, Entry entry) {
  const size_t slot = entry.tenant_slot;  // Its tokens are counted there from now on.
  if (stats_->tenants.size() <= slot) stats_->tenants.resize(slot + 1);
  if (entry.deadline_us != kNever) deadlines_.insert({entry.deadline_us, request});
  entry.wanted_blocks = WantedBlocks(entry);
  wanted_blocks_ += entry.wanted_blocks;
  num_rows_ += entry.num_rows;
  num_restorable_ += entry.is_restorable;
  const auto [it, is_new] = entries_.emplace(request, std::move(entry));
  QUIRE_CHECK(is_new) << request << " was submitted twice";
  return it->second;
}

void LiveRequests::Deliver(StepOutput output, int64_t sent_us, int64_t now_us, PinMaker make_pins) {
  for (const Started& started : output.started) {
    if (const auto it = entries_.find(started.request); it != entries_.end()) {
      Start(&it->second, started.num_cached_tokens, sent_us);
    }
  }
  for (PromptLogprobs& logprobs : output.prompt_logprobs) {
    const auto it = entries_.find(logprobs.request);
    if (it == entries_.end()) continue;
    it->second.sink->OnPromptLogprobs(logprobs.first_position, std::move(logprobs.tokens));
  }
  for (Embedding& embedding : output.embeddings) {
    const auto it = entries_.find(embedding.request);
    if (it != entries_.end()) it->second.sink->OnEmbedding(std::move(embedding.values));
  }
  EmitAll(std::move(output.emissions), now_us, make_pins);
  for (const Finished& finished : output.finished) Finish(finished, now_us);
}

void LiveRequests::StopWanting(Entry* entry) {
  wanted_blocks_ -= std::exchange(entry->wanted_blocks, 0);
}

void LiveRequests::Start(Entry* entry, int num_cached_tokens, int64_t sent_us) {
  if (entry->has_started) return;
  entry->has_started = true;
  if (entry->ticket != nullptr) entry->ticket->OnStarted();
  StopWanting(entry);
  stats_->queue_seconds.Observe(Seconds(sent_us - entry->arrival_us));
  stats_->started_tokens += entry->num_prompt_tokens;
  stats_->cached_tokens += num_cached_tokens;
  entry->num_cached_tokens = num_cached_tokens;
  entry->start_us = sent_us;
  entry->sink->OnStarted(num_cached_tokens);
}

void LiveRequests::EmitAll(std::vector<Emission> emissions, int64_t now_us, PinMaker make_pins) {
  struct Target {
    Entry* entry;  // Null: the request has ended.
    bool is_first;
  };
  std::vector<Target> targets;
  targets.reserve(emissions.size());
  for (const Emission& emission : emissions) {
    const auto it = entries_.find(emission.request);
    Entry* const entry = it == entries_.end() ? nullptr : &it->second;
    targets.push_back({entry, entry != nullptr && entry->last_token_us.empty()});
  }
  for (const bool is_first : {true, false}) {
    for (size_t i = 0; i < targets.size(); ++i) {
      Entry* const entry = targets[i].entry;
      if (entry == nullptr || targets[i].is_first != is_first) continue;
      if (const auto pins = std::exchange(entry->pins, nullptr)) entry->sink->OnPinned(make_pins(*pins));
      Emit(std::move(emissions[i]), now_us, entry);
    }
  }
}

void LiveRequests::Emit(Emission emission, int64_t now_us, Entry* to) {
  Entry& entry = *to;
  StopWanting(&entry);
  const int num_generated = entry.is_prompt_only ? 0 : 1;
  stats_->generated_tokens += num_generated;
  const size_t index = emission.sample_index;
  stats_->tenants[entry.tenant_slot].generated_tokens += num_generated;
  entry.num_generated_tokens += num_generated;
  entry.longest_output = std::max(entry.longest_output, emission.position - entry.num_prompt_tokens + num_generated);
  if (entry.last_token_us.empty()) {
    stats_->first_token_seconds.Observe(Seconds(now_us - entry.arrival_us));
    entry.first_token_us = now_us;
  }
  if (entry.last_token_us.size() <= index) entry.last_token_us.resize(index + 1, kNoToken);
  int64_t& last_us = entry.last_token_us[index];
  if (last_us != kNoToken) stats_->inter_token_seconds.Observe(Seconds(now_us - last_us));
  last_us = now_us;
  entry.sink->OnToken(emission.sample_index, emission.position, std::move(emission.token));
}

void LiveRequests::Finish(const Finished& finished, int64_t now_us) {
  const auto it = entries_.find(finished.request);
  if (it == entries_.end()) return;
  // Release the quota first: the client may react to the end at once.
  if (finished.ends_request) it->second.ticket.reset();
  it->second.sink->OnFinished(finished);
  if (!finished.ends_request) return;
  ++stats_->finished[static_cast<int>(finished.reason)];
  ObserveEnd(it->second, now_us);
  Remove(it);
}

double LiveRequests::TokensPerOutput(const Entry& entry) {
  return static_cast<double>(entry.num_generated_tokens) / entry.num_outputs;
}

void LiveRequests::ObserveEnd(const Entry& entry, int64_t now_us) {
  stats_->request_seconds.Observe(Seconds(now_us - entry.arrival_us));
  stats_->request_prompt_tokens.Observe(entry.num_prompt_tokens);
  stats_->request_generated_tokens.Observe(static_cast<double>(entry.num_generated_tokens));
  stats_->request_longest_output.Observe(entry.longest_output);
  stats_->request_max_tokens.Observe(entry.max_tokens);
  stats_->request_outputs.Observe(entry.num_outputs);
  if (entry.last_token_us.empty()) return;
  if (!entry.is_prompt_only) {
    wait_->OnFinished(entry.max_tokens, TokensPerOutput(entry), entry.num_prompt_tokens - entry.num_cached_tokens);
  }
  stats_->request_computed_tokens.Observe(entry.num_prompt_tokens - entry.num_cached_tokens);
  stats_->prefill_seconds.Observe(Seconds(entry.first_token_us - entry.start_us));
  stats_->decode_seconds.Observe(Seconds(now_us - entry.first_token_us));
  stats_->running_seconds.Observe(Seconds(now_us - entry.start_us));
  if (entry.longest_output < 2) return;
  stats_->token_seconds.Observe(Seconds(now_us - entry.first_token_us) / (entry.longest_output - 1));
}

std::vector<RequestId> LiveRequests::Expire(int64_t now_us, const std::string& cause) {
  std::vector<RequestId> expired;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_us) {
    const auto it = entries_.find(deadlines_.begin()->second);
    ++stats_->finished[static_cast<int>(FinishReason::kDeadline)];
    expired.push_back(it->first);
    wait_->OnEndedEarly(it->second.max_tokens, TokensPerOutput(it->second));
    EndWith(it, absl::DeadlineExceededError(absl::StrCat(
                    "the call's deadline passed ", it->second.has_started ? "while it ran" : "before it could run",
                    cause.empty() ? "" : ": ", cause)));
  }
  return expired;
}

std::vector<RequestId> LiveRequests::GiveUp(int64_t now_us, int64_t step_us,
                                            absl::FunctionRef<bool(RequestId)> is_waiting) {
  std::vector<RequestId> given_up;
  for (auto it = deadlines_.begin(); it != deadlines_.end() && it->first <= now_us + step_us; ++it) {
    if (is_waiting(it->second)) given_up.push_back(it->second);
  }
  for (const RequestId request : given_up) {
    const auto it = entries_.find(request);
    ++stats_->finished[static_cast<int>(FinishReason::kDeadline)];
    EndWith(it,
            absl::DeadlineExceededError(absl::StrFormat(
                "the deadline of the call comes before its first token can: the request has waited %d ms, %d ms are "
                "left, and a step takes %d ms",
                (now_us - it->second.arrival_us) / 1000, (it->second.deadline_us - now_us) / 1000, step_us / 1000)));
  }
  return given_up;
}

bool LiveRequests::Drop(RequestId request, FinishReason reason, int64_t now_us) {
  const auto it = entries_.find(request);
  if (it == entries_.end()) return false;
  ++stats_->finished[static_cast<int>(reason)];
  if (reason == FinishReason::kCancelled) {
    wait_->OnEndedEarly(it->second.max_tokens, TokensPerOutput(it->second));
  } else {
    ObserveEnd(it->second, now_us);
  }
  Remove(it);
  return true;
}

void LiveRequests::Fail(RequestId request, const absl::Status& status) {
  const auto it = entries_.find(request);
  if (it == entries_.end()) return;
  ++stats_->failed;
  EndWith(it, status);
}

void LiveRequests::Displace(RequestId request, const absl::Status& status) {
  const auto it = entries_.find(request);
  if (it == entries_.end()) return;
  ++stats_->displaced;
  EndWith(it, status);
}

void LiveRequests::EndWith(Entries::iterator it, const absl::Status& status) {
  it->second.ticket.reset();
  it->second.sink->OnFailed(status);
  Remove(it);
}

void LiveRequests::NoteLoss(absl::FunctionRef<bool(RequestId)> is_running) {
  for (auto& [request, entry] : entries_) entry.was_running = entry.was_running || is_running(request);
}

std::vector<RequestId> LiveRequests::FailAll(absl::FunctionRef<absl::Status(const Entry&)> status_of) {
  std::vector<RequestId> failed;
  failed.reserve(entries_.size());
  for (auto& [request, entry] : entries_) {
    ++stats_->failed;
    const absl::Status status = status_of(entry);
    entry.ticket.reset();
    entry.sink->OnFailed(status);
    failed.push_back(request);
  }
  entries_.clear();
  deadlines_.clear();
  wanted_blocks_ = 0;
  num_rows_ = 0;
  num_restorable_ = 0;
  ended_.insert(ended_.end(), failed.begin(), failed.end());
  return failed;
}

std::vector<RequestId> LiveRequests::LeaveRestorable(const absl::Status& status) {
  std::vector<RequestId> left;
  for (const auto& [request, entry] : entries_) {
    if (entry.is_restorable) left.push_back(request);
  }
  for (const RequestId request : left) EndWith(entries_.find(request), status);
  return left;
}

void LiveRequests::Remove(Entries::iterator it) {
  ended_.push_back(it->first);
  Extract(it);
}

LiveRequests::Entry LiveRequests::Extract(Entries::iterator it) {
  if (it->second.deadline_us != kNever) deadlines_.erase({it->second.deadline_us, it->first});
  StopWanting(&it->second);
  num_rows_ -= it->second.num_rows;
  num_restorable_ -= it->second.is_restorable;
  Entry entry = std::move(it->second);
  entries_.erase(it);
  return entry;
}

LiveRequests::Entry LiveRequests::Take(RequestId request) {
  const auto it = entries_.find(request);
  QUIRE_CHECK(it != entries_.end()) << request;
  return Extract(it);
}

std::optional<int64_t> LiveRequests::MovedAt(RequestId request) const {
  const auto it = entries_.find(request);
  return it == entries_.end() ? std::nullopt : it->second.moved_us;
}

RequestSink* LiveRequests::SinkOf(RequestId request) const {
  const auto it = entries_.find(request);
  QUIRE_CHECK(it != entries_.end()) << request;
  return it->second.sink.get();
}

std::vector<RequestId> LiveRequests::ByProgress() const {
  std::vector<std::pair<int64_t, RequestId>> order;
  order.reserve(entries_.size());
  for (const auto& [request, entry] : entries_) order.emplace_back(-entry.num_generated_tokens, request);
  std::sort(order.begin(), order.end());
  std::vector<RequestId> requests;
  requests.reserve(order.size());
  for (const auto& [progress, request] : order) requests.push_back(request);
  return requests;
}

int64_t LiveRequests::next_deadline_us() const {
  return deadlines_.empty() ? kNever : deadlines_.begin()->first;
}

}  // namespace quire
