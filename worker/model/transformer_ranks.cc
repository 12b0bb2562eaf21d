// SPDX-License-Identifier: Apache-2.0

// What a transformer does on a rank of a group.

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "kernels/linear.h"
#include "worker/model/transformer.h"

namespace quire {

void Transformer::SetGroup(Collective* group) {
  group_ = group == nullptr ? &alone_ : group;
  QUIRE_CHECK_EQ(group_->rank(), config_.shard.rank);
  QUIRE_CHECK_EQ(group_->size(), config_.shard.size);
}

InputLayout Transformer::LastInputLayout(const PackedMatrix& w, bool has_rows, int num_tokens) const {
  return has_rows ? InputLayout::kRows : backend_->InputLayoutOf(w, num_tokens);
}

AddPartsArgs Transformer::AddSums(Collective* group, int num_tokens) const {
  const bool norms_output = config_.norms != NormPlacement::kBefore;
  AddPartsArgs add{};
  add.group = group;
  add.part = sums_.floats();
  add.residual = norms_output ? nullptr : hidden_.get();
  add.y = norms_output ? block_output_.get() : hidden_.get();
  add.num_tokens = num_tokens;
  add.dim = config_.hidden_size;
  return add;
}

void Transformer::AddRankOutput(const void* x, const PackedMatrix& w, InputLayout x_layout, bool has_rows, int cols,
                                const BackendBuffer& bias, int num_tokens) {
  LinearArgs multiply{};
  multiply.x = x;
  multiply.x_layout = x_layout;
  multiply.w = &w;
  multiply.y = sums_.get();
  multiply.num_tokens = num_tokens;
  AddPartsArgs add = AddSums(has_rows ? nullptr : group_, num_tokens);
  add.bias = bias.floats();
  add.scale = config_.residual_scale;
  if (has_rows) {
    backend_->GatherColumns({.group = group_,
                             .x = x,
                             .x_stride = cols / config_.shard.size,
                             .y = wide_input_.get(),
                             .num_rows = num_tokens,
                             .cols = cols,
                             .type = backend_->InputType(w)});
    multiply.x = wide_input_.get();
    multiply.y = row_sums_.get();
  }
  backend_->Linear(multiply);
  if (has_rows) {
    backend_->GatherColumns({.group = group_,
                             .x = row_sums_.get(),
                             .x_stride = config_.hidden_size / config_.shard.size,
                             .y = sums_.get(),
                             .num_rows = num_tokens,
                             .cols = config_.hidden_size,
                             .type = DataType::kFloat32});
  }
  backend_->AddParts(add);
}

// The message of a rank has its results and then its lists of tokens. All messages have the length of the longest.
void Transformer::SampleInTurn(const int32_t* rows, int num_rows, const SamplingArgs& sampling) {
  QUIRE_CHECK(!backend_->IsAsynchronous());
  const int rank = config_.shard.rank, size = config_.shard.size;
  for (int i = 0; i < sampling.num_rows; ++i) sampling.results[i] = {.token = -1, .logprob = 0, .rank = 0};
  MultiplyOutput(rows, num_rows, own_logits_.get());
  backend_->ExchangeRows({.group = group_,
                          .x = own_logits_.get(),
                          .x_stride = OwnVocabulary(config_).size(),
                          .y = logits_.get(),
                          .num_rows = num_rows,
                          .cols = config_.vocab_size,
                          .type = DataType::kFloat32});
  const auto logits_row = [&](int i) { return sampling.logit_rows == nullptr ? i : sampling.logit_rows[i]; };
  std::array<int, kMaxSlices> counts = {};
  turn_rows_.clear();
  turn_logit_rows_.clear();
  for (int i = 0; i < sampling.num_rows; ++i) {
    ++counts[logits_row(i) % size];
    if (logits_row(i) % size != rank) continue;
    turn_rows_.push_back(sampling.rows[i]);
    turn_logit_rows_.push_back(logits_row(i) / size);
  }
  const size_t most = *std::ranges::max_element(counts), top_start = most * sizeof(SamplingResult);
  const size_t bytes = top_start + most * sampling.max_top * sizeof(ScoredCandidate);
  drawn_.assign(bytes, 0);
  all_drawn_.resize(bytes * size);
  SamplingArgs own = sampling;
  own.logits = logits_.floats();
  own.logit_rows = turn_logit_rows_.data();
  own.rows = turn_rows_.data();
  own.num_rows = static_cast<int>(turn_rows_.size());
  own.results = reinterpret_cast<SamplingResult*>(drawn_.data());
  own.top = sampling.top == nullptr ? nullptr : reinterpret_cast<ScoredCandidate*>(drawn_.data() + top_start);
  if (own.num_rows > 0) backend_->Sample(own);
  if (!group_->AllGather(drawn_.data(), bytes, all_drawn_.data())) return;
  std::array<size_t, kMaxSlices> next = {};
  for (int i = 0; i < sampling.num_rows; ++i) {
    const int from = logits_row(i) % size;
    const char* const message = all_drawn_.data() + from * bytes;
    const size_t place = next[from]++, top_bytes = sampling.max_top * sizeof(ScoredCandidate);
    std::memcpy(&sampling.results[i], message + place * sizeof(SamplingResult), sizeof(SamplingResult));
    if (sampling.top == nullptr) continue;
    std::memcpy(sampling.top + static_cast<size_t>(i) * sampling.max_top, message + top_start + place * top_bytes,
                top_bytes);
  }
}

void Transformer::NormalizeWholeHeads(void* x, int num_heads, const BackendBuffer& weight, int num_tokens) {
  const int dim = num_heads * config_.head_dim;
  backend_->GatherColumns({.group = group_,
                           .x = x,
                           .x_stride = config_.qkv_rows(),
                           .y = whole_heads_.get(),
                           .num_rows = num_tokens,
                           .cols = dim * config_.shard.size,
                           .type = backend_->ActivationType()});
  RmsNormArgs norm = NormOf(whole_heads_.get(), weight, num_tokens, x);
  norm.dim = dim * config_.shard.size;
  norm.y_stride = config_.qkv_rows();
  norm.y_first = dim * config_.shard.rank;
  norm.y_cols = dim;
  backend_->RmsNorm(norm);
}

}  // namespace quire
