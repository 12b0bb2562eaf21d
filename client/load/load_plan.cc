// SPDX-License-Identifier: Apache-2.0

#include "client/load/load_plan.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "client/load/request_lengths.h"

namespace quire {
namespace {

// Warm-up requests have different prompts from the measured ones.
constexpr uint64_t kFirstWarmUpIndex = uint64_t{1} << 40;

// The random numbers for different purposes are independent of each other.
enum Stream : uint64_t { kLengths, kArrivals, kSharedPrefix, kPrompts, kChunks };

BenchRandom RandomOf(uint64_t seed, Stream stream, uint64_t index) {
  BenchRandom of_stream(seed * 8 + stream);
  return BenchRandom(of_stream.Next() + index);
}

int Scaled(int tokens, double scale) {
  return std::max(1, static_cast<int>(std::lround(tokens * scale)));
}

}  // namespace

LoadPlan::LoadPlan(const LoadShape& shape, int vocab_size, int max_context_tokens)
    : shape_(shape),
      vocab_size_(static_cast<uint64_t>(vocab_size)),
      max_context_tokens_(max_context_tokens),
      chunk_tokens_(Scaled(TracedPrompt::kChunkTokens, shape.length_scale)),
      lengths_(RandomOf(shape.seed, kLengths, 0)),
      arrivals_(RandomOf(shape.seed, kArrivals, 0)) {}

absl::StatusOr<LoadPlan> LoadPlan::Make(const LoadShape& shape, int vocab_size, int max_context_tokens) {
  LoadPlan plan(shape, vocab_size, max_context_tokens);
  if (shape.trace.empty()) {
    QUIRE_RETURN_IF_ERROR(plan.CheckLengths());
  } else {
    QUIRE_RETURN_IF_ERROR(plan.ReadTrace());
  }
  return plan;
}

// Log-normal lengths have no maximum, so they are cut instead.
absl::Status LoadPlan::CheckLengths() const {
  const bool is_cut = shape_.input.kind == LengthDistribution::Kind::kLogNormal ||
                      shape_.output.kind == LengthDistribution::Kind::kLogNormal;
  const int64_t longest = int64_t{shape_.shared_prefix_tokens} + (is_cut ? 2 : shape_.input.most + shape_.output.most);
  if (longest <= max_context_tokens_) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a request would have up to ", longest, " tokens (", shape_.shared_prefix_tokens, " shared, ",
                   is_cut ? 1 : shape_.input.most, " of its own prompt, ", is_cut ? 1 : shape_.output.most,
                   " of output), the model's context is ", max_context_tokens_));
}

absl::Status LoadPlan::ReadTrace() {
  std::ifstream file(shape_.trace, std::ios::binary);
  std::ostringstream content;
  if (!file || !(content << file.rdbuf())) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read the trace ", shape_.trace));
  }
  const std::string text = std::move(content).str();
  if (absl::StripLeadingAsciiWhitespace(text).substr(0, 1) == "{") {
    QUIRE_ASSIGN_OR_RETURN(traced_prompts_, ParseMooncakeTrace(text));
    for (const TracedPrompt& prompt : traced_prompts_) {
      traced_.push_back({.arrival_s = prompt.arrival_s,
                         .input = prompt.num_tokens,
                         .output = prompt.num_output_tokens,
                         .traced = &prompt});
    }
  } else {
    QUIRE_ASSIGN_OR_RETURN(const std::vector<RequestLengths> requests, ParseAzureTrace(text));
    for (const RequestLengths& request : requests) {
      traced_.push_back({.arrival_s = request.arrival_s, .input = request.prompt, .output = request.output});
    }
  }
  for (size_t i = 0; i < traced_.size(); ++i) {
    traced_[i].input = Scaled(traced_[i].input, shape_.length_scale) + shape_.shared_prefix_tokens;
    traced_[i].output = Scaled(traced_[i].output, shape_.length_scale);
    traced_[i].index = i;
  }
  const size_t num_requests = traced_.size();
  std::erase_if(traced_, [&](const PlannedRequest& request) {
    return int64_t{request.input} + request.output > max_context_tokens_;
  });
  num_left_out_ = static_cast<int64_t>(num_requests - traced_.size());
  if (traced_.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("none of the ", num_requests, " requests of ", shape_.trace,
                                                   " fits the model's context of ", max_context_tokens_,
                                                   " tokens; --trace-scale makes them shorter"));
  }
  std::stable_sort(traced_.begin(), traced_.end(),
                   [](const PlannedRequest& a, const PlannedRequest& b) { return a.arrival_s < b.arrival_s; });
  const double begin_s = traced_.front().arrival_s;
  const double span_s = traced_.back().arrival_s - begin_s;
  for (PlannedRequest& request : traced_) {
    request.arrival_s -= begin_s;
    if (!shape_.rate.has_value()) continue;
    request.arrival_s *= span_s > 0 ? static_cast<double>(traced_.size()) / *shape_.rate / span_s : 0;
  }
  return absl::OkStatus();
}

void LoadPlan::DrawLengths(PlannedRequest* request) {
  const int input = shape_.input.Draw(&lengths_);
  const int output = shape_.output.Draw(&lengths_);
  const int room = max_context_tokens_ - shape_.shared_prefix_tokens;
  request->input = input;
  request->output = output;
  if (input + output > room) {
    ++num_cut_;
    request->input = std::clamp(room / 2, 1, input);
    request->output = std::clamp(room - request->input, 1, output);
  }
  request->input += shape_.shared_prefix_tokens;
}

bool LoadPlan::Next(PlannedRequest* request) {
  const uint64_t number = next_index_++;
  if (!traced_.empty()) {
    if (number >= traced_.size()) return false;
    *request = traced_[number];
    request->index += first_index_;
    return true;
  }
  *request = {.arrival_s = next_arrival_s_, .index = first_index_ + number};
  DrawLengths(request);
  const double rate = shape_.rate.value_or(std::numeric_limits<double>::infinity());
  next_arrival_s_ += arrivals_.Gamma(shape_.burstiness) / shape_.burstiness / rate;
  return true;
}

v1::GenerateRequest LoadPlan::MakeRequest(const PlannedRequest& planned) const {
  v1::GenerateRequest request = shape_.request;
  const auto add = [&](BenchRandom* random) {
    request.mutable_token_ids()->add_ids(static_cast<uint32_t>(random->Next() % vocab_size_));
  };
  BenchRandom shared = RandomOf(shape_.seed, kSharedPrefix, 0);
  for (int i = 0; i < shape_.shared_prefix_tokens; ++i) add(&shared);
  BenchRandom own = RandomOf(shape_.seed, kPrompts, planned.index);
  for (int i = shape_.shared_prefix_tokens; i < planned.input; ++i) {
    const int of_trace = i - shape_.shared_prefix_tokens;
    const size_t chunk = static_cast<size_t>(of_trace / chunk_tokens_);
    if (planned.traced != nullptr && of_trace % chunk_tokens_ == 0 && chunk < planned.traced->chunks.size()) {
      own = RandomOf(shape_.seed, kChunks, first_index_ + planned.traced->chunks[chunk]);
    }
    add(&own);
  }
  request.mutable_stopping()->set_max_tokens(static_cast<uint32_t>(planned.output));
  request.mutable_stopping()->set_ignore_eos(true);
  return request;
}

LoadPlan LoadPlan::WarmUp() const {
  LoadPlan plan(shape_, static_cast<int>(vocab_size_), max_context_tokens_);
  plan.traced_ = traced_;  // The chunks still belong to this plan.
  plan.first_index_ = kFirstWarmUpIndex;
  return plan;
}

}  // namespace quire
