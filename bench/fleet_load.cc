// SPDX-License-Identifier: Apache-2.0

#include "bench/fleet_load.h"

#include <random>

#include "base/status.h"

namespace quire {

FleetLoad::FleetLoad(const std::string& endpoint, const simulated::TokenRule* rule, int num_streams)
    : rule_(*rule), client_({.endpoint = endpoint}), streams_(static_cast<size_t>(num_streams)) {}

FleetLoad::~FleetLoad() {
  is_ending_ = true;
  for (Stream& stream : streams_) {
    if (stream.call != nullptr) stream.call->Cancel();
  }
  for (Stream& stream : streams_) {
    if (stream.reader.joinable()) stream.reader.join();
  }
}

absl::Status FleetLoad::Start(int num_requests, int prompt_tokens, int max_tokens) {
  std::mt19937 random(1);
  std::vector<v1::GenerateRequest> requests(static_cast<size_t>(num_requests));
  for (int i = 0; i < num_requests; ++i) {
    Stream& stream = streams_[static_cast<size_t>(i) % streams_.size()];
    v1::GenerateRequest& request = requests[static_cast<size_t>(i)];
    std::vector<int32_t> prompt;
    for (int t = 0; t < prompt_tokens; ++t) {
      prompt.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(rule_.vocab_size())));
      request.mutable_token_ids()->add_ids(static_cast<uint32_t>(prompt.back()));
    }
    request.mutable_sampling()->set_temperature(0);
    request.mutable_stopping()->set_max_tokens(static_cast<uint32_t>(max_tokens));
    stream.requests.push_back({.sum = simulated::SumOf(prompt), .position = prompt_tokens});
  }
  for (Stream& stream : streams_) {
    stream.call = client_.GenerateBatch();
    stream.reader = std::thread([this, &stream] { Read(&stream); });
  }
  for (int i = 0; i < num_requests; ++i) {
    const size_t stream = static_cast<size_t>(i) % streams_.size();
    const uint64_t tag = static_cast<uint64_t>(i) / streams_.size() + 1;
    QUIRE_RETURN_IF_ERROR(streams_[stream].call->Start(tag, requests[static_cast<size_t>(i)]));
  }
  return absl::OkStatus();
}

void FleetLoad::Read(Stream* stream) {
  v1::GenerateBatchResponse response;
  while (stream->call->Next(&response)) {
    for (const v1::GenerateBatchEntry& entry : response.entries()) TakeEntry(stream, entry);
  }
  const absl::Status end = stream->call->Finish();
  if (!is_ending_) SetError(end.ok() ? absl::InternalError("a call has ended") : end);
}

void FleetLoad::TakeEntry(Stream* stream, const v1::GenerateBatchEntry& entry) {
  Request& request = stream->requests[entry.tag() - 1];
  for (const uint32_t id : entry.response().token_ids()) {
    const auto token = static_cast<int32_t>(id);
    if (token != rule_.BestToken(request.sum)) ++num_wrong_;
    request.sum =
        simulated::AddSlot(request.sum, simulated::SlotHash(request.sum, token, request.position), request.position);
    ++request.position;
    ++num_tokens_;
    if (!request.is_running) ++num_running_;
    request.is_running = true;
  }
  if (!entry.has_end()) return;
  if (request.is_running) --num_running_;
  request.is_running = false;
  const absl::Status end = FromRpcStatus(entry.end());
  ++(end.ok() ? num_ended_ : num_failed_);
  if (!end.ok() && !is_ending_) SetError(end);
}

FleetLoad::Counts FleetLoad::Count() const {
  return {.tokens = num_tokens_,
          .wrong_tokens = num_wrong_,
          .running = num_running_,
          .ended = num_ended_,
          .failed = num_failed_};
}

void FleetLoad::SetError(const absl::Status& error) {
  const MutexLock lock(&mutex_);
  if (first_error_.ok()) first_error_ = error;
}

absl::Status FleetLoad::first_error() const {
  const MutexLock lock(&mutex_);
  return first_error_;
}

}  // namespace quire
