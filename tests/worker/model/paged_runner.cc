// SPDX-License-Identifier: Apache-2.0

#include "tests/worker/model/paged_runner.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

constexpr int kMaxTokens = 256;   // Of one step.
constexpr int kPoolTokens = 640;  // Of all sequences.

BackendBuffer Allocate(Backend* backend, size_t bytes) {
  auto buffer = BackendBuffer::Allocate(backend, bytes, "a test's array");
  QUIRE_CHECK(buffer.ok()) << buffer.status();
  return *std::move(buffer);
}

}  // namespace

struct PagedRunner::StepArrays {
  std::vector<int32_t> token_ids;
  std::vector<int32_t> positions;
  std::vector<int64_t> slots;
  std::vector<int32_t> query_starts = {0};
  std::vector<int32_t> context_lens;
  std::vector<int32_t> table_starts = {0};
  std::vector<uint32_t> block_tables;
};

PagedRunner::PagedRunner(const Model* model, Backend* backend, const Options& options, Collective* group)
    : model_(*model), backend_(backend) {
  const ModelConfig& config = model->config;
  layout_ = {config.num_layers, config.num_kv_heads, config.head_dim, options.block_size, options.kv_type};
  auto transformer =
      Transformer::Create(&model->config, &model->weights, backend, {kMaxTokens, options.max_logit_rows});
  QUIRE_CHECK(transformer.ok()) << transformer.status();
  transformer_ = *std::move(transformer);
  free_blocks_.resize(kPoolTokens / options.block_size);
  std::iota(free_blocks_.begin(), free_blocks_.end(), 0u);
  std::mt19937 random(options.placement_seed);
  for (size_t i = free_blocks_.size(); i > 1; --i) std::swap(free_blocks_[i - 1], free_blocks_[random() % i]);
  for (int i = 0; i < config.num_layers; ++i) {
    pools_.push_back(Allocate(backend, free_blocks_.size() * layout_.block_bytes()));
    pool_pointers_.push_back(pools_.back().get());
  }
  if (group == nullptr) return;
  transformer_->SetGroup(group);
  const BackendStatus status = backend->SetGroup(group);
  QUIRE_CHECK(status.ok()) << status.message();
}

uint32_t PagedRunner::TakeBlock() {
  QUIRE_CHECK(!free_blocks_.empty());
  const uint32_t block = free_blocks_.back();
  free_blocks_.pop_back();
  return block;
}

void PagedRunner::Fork(int sequence, int copy) {
  Sequence copied = sequences_[sequence];
  const std::vector<uint32_t> sources = copied.blocks;
  for (uint32_t& block : copied.blocks) block = TakeBlock();
  backend_->CopyBlocks({.sources = sources.data(),
                        .destinations = copied.blocks.data(),
                        .num_copies = static_cast<int>(sources.size()),
                        .layout = &layout_,
                        .kv_pools = pool_pointers_.data()});
  sequences_[copy] = copied;
}

void PagedRunner::Swap(int sequence) {
  std::vector<uint32_t>& blocks = sequences_[sequence].blocks;
  std::vector<uint32_t> host_blocks(blocks.size());
  std::iota(host_blocks.begin(), host_blocks.end(), 0u);
  void* const host_pool = backend_->AllocateHost(blocks.size() * layout_.block_bytes_all_layers());
  for (const SwapDirection direction : {SwapDirection::kOut, SwapDirection::kIn}) {
    if (direction == SwapDirection::kIn) {
      for (uint32_t& block : blocks) block = TakeBlock();
    }
    backend_->SwapBlocks({.direction = direction,
                          .blocks = blocks.data(),
                          .host_blocks = host_blocks.data(),
                          .num_swaps = static_cast<int>(blocks.size()),
                          .layout = &layout_,
                          .kv_pools = pool_pointers_.data(),
                          .host_pool = host_pool});
  }
  backend_->FreeHost(host_pool);
}

void PagedRunner::Place(const Slice& slice, StepArrays* step) {
  Sequence& sequence = sequences_[slice.sequence];
  for (const int32_t token : slice.tokens) {
    const int position = sequence.length++;
    if (position % layout_.block_size == 0) {
      sequence.blocks.push_back(TakeBlock());
    }
    step->token_ids.push_back(token);
    step->positions.push_back(position);
    step->slots.push_back(int64_t{sequence.blocks.back()} * layout_.block_size + position % layout_.block_size);
  }
  step->query_starts.push_back(static_cast<int32_t>(step->token_ids.size()));
  step->context_lens.push_back(sequence.length);
  step->block_tables.insert(step->block_tables.end(), sequence.blocks.begin(), sequence.blocks.end());
  step->table_starts.push_back(static_cast<int32_t>(step->block_tables.size()));
}

std::vector<Logits> PagedRunner::Run(const std::vector<Slice>& slices) {
  StepArrays step;
  for (const Slice& slice : slices) Place(slice, &step);
  BatchView batch{};
  batch.num_tokens = static_cast<int>(step.token_ids.size());
  batch.num_sequences = static_cast<int>(slices.size());
  batch.token_ids = step.token_ids.data();
  batch.positions = step.positions.data();
  batch.slots = step.slots.data();
  batch.query_starts = step.query_starts.data();
  batch.context_lens = step.context_lens.data();
  batch.table_starts = step.table_starts.data();
  batch.block_tables = step.block_tables.data();
  transformer_->Forward({batch}, layout_, pool_pointers_.data());
  return ReadLogits(batch.num_tokens);
}

std::vector<Logits> PagedRunner::ReadLogits(int num_rows) {
  std::vector<Logits> result;
  for (int first = 0; first < num_rows; first += transformer_->limits().max_logit_rows) {
    std::vector<int32_t> rows(std::min(num_rows - first, transformer_->limits().max_logit_rows));
    std::iota(rows.begin(), rows.end(), first);
    const float* logits = transformer_->Logits(rows.data(), static_cast<int>(rows.size()));
    for (size_t i = 0; i < rows.size(); ++i) {
      const size_t vocab_size = model_.config.vocab_size;
      result.emplace_back(vocab_size);
      backend_->CopyToHost(result.back().data(), logits + i * vocab_size, vocab_size * sizeof(float));
    }
  }
  return result;
}

std::vector<Logits> PagedRunner::Prefill(int sequence, const Tokens& tokens, int chunk_size) {
  std::vector<Logits> result;
  for (size_t first = 0; first < tokens.size(); first += chunk_size) {
    const size_t last = std::min(tokens.size(), first + chunk_size);
    const Tokens chunk(tokens.begin() + first, tokens.begin() + last);
    for (Logits& logits : Run({{sequence, chunk}})) result.push_back(std::move(logits));
  }
  return result;
}

Tokens PagedRunner::Greedy(int sequence, Logits logits, int count) {
  Tokens tokens;
  while (true) {
    tokens.push_back(ArgMax(logits));
    if (static_cast<int>(tokens.size()) == count) return tokens;
    logits = Run({{sequence, {tokens.back()}}}).front();
  }
}

int32_t ArgMax(const Logits& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

float RelativeError(const Logits& actual, const Logits& expected) {
  QUIRE_CHECK_EQ(actual.size(), expected.size());
  float error = 0;
  float largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!std::isfinite(actual[i])) return INFINITY;
    error = std::max(error, std::abs(actual[i] - expected[i]));
    largest = std::max(largest, std::abs(expected[i]));
  }
  return error / largest;
}

float LargestError(const std::vector<Logits>& actual, const std::vector<Logits>& expected) {
  QUIRE_CHECK_EQ(actual.size(), expected.size());
  float largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) largest = std::max(largest, RelativeError(actual[i], expected[i]));
  return largest;
}

}  // namespace quire
