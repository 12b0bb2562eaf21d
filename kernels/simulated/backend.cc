// SPDX-License-Identifier: Apache-2.0

#include "kernels/simulated/backend.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "kernels/cpu/logit_processing.h"

namespace quire::simulated {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kSumBytes = sizeof(uint64_t);

// Adds up the slots of the first `num_tokens` tokens in the blocks of `table`.
uint64_t SumOfSlots(const uint64_t* pool, const uint32_t* table, int num_tokens, int block_size) {
  uint64_t sum = 0;
  for (int first = 0; first < num_tokens; first += block_size) {
    const uint64_t* slots = pool + size_t{table[first / block_size]} * static_cast<size_t>(block_size);
    const int count = std::min(block_size, num_tokens - first);
    for (int i = 0; i < count; ++i) sum = AddSlot(sum, slots[i], first + i);
  }
  return sum;
}

// Returns whether the row's answer is the best token and nothing else.
bool IsPlainlyGreedy(const SamplingRow& row) {
  return row.temperature == 0 && row.num_top < 0 && row.given_token < 0 && row.num_candidates == 0 &&
         !cpu::ChangesLogits(row);
}

}  // namespace

SimulatedBackend::SimulatedBackend(TokenRule rule, const StepTimes& times)
    : CpuBackend(/*num_threads=*/1, cpu::Isa::kGeneric),
      rule_(std::move(rule)),
      times_(times),
      logits_(static_cast<size_t>(rule_.vocab_size())) {}

// Raise the number when a change gives other tokens.
std::string SimulatedBackend::NumericsFingerprint() const {
  if (rule_.mean_output_tokens() == 0) return "simulated 1";
  return "simulated 1, ends after " + std::to_string(rule_.mean_output_tokens());
}

BackendStatus SimulatedBackend::CheckLayout(const KvLayout& layout, int /*num_heads*/) const {
  const size_t slot_bytes = layout.block_bytes_all_layers() / static_cast<size_t>(layout.block_size);
  if (slot_bytes == kSumBytes) return BackendStatus::Ok();
  return BackendStatus::Error("a slot has " + std::to_string(slot_bytes) + " bytes, it must have " +
                              std::to_string(kSumBytes));
}

void SimulatedBackend::Wait(uint64_t mark) {
  const Clock::time_point end{std::chrono::nanoseconds(mark)};
  if (Clock::now() >= end) return;
  std::unique_lock lock(mutex_);
  interrupted_.wait_until(lock, end, [this] { return is_interrupted_; });
}

void SimulatedBackend::Interrupt() {
  {
    const std::lock_guard lock(mutex_);
    is_interrupted_ = true;
  }
  interrupted_.notify_all();
}

const BatchView* SimulatedBackend::PrepareBatch(const BatchView* views, int num_views, int max_tokens) {
  const auto end = Clock::now().time_since_epoch() + times_.Of(*views);
  end_ns_ = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(end).count());
  return CpuBackend::PrepareBatch(views, num_views, max_tokens);
}

void SimulatedBackend::Linear(const LinearArgs& args) {
  if (!static_cast<const Matrix&>(*args.w).copies) return;
  memcpy(args.y, args.x, static_cast<size_t>(args.num_tokens) * kSumBytes);
}

void SimulatedBackend::RmsNorm(const RmsNormArgs& args) {
  memcpy(args.y, args.x, static_cast<size_t>(args.num_rows) * kSumBytes);
}

void SimulatedBackend::RopeAppend(const RopeAppendArgs& args) {
  const BatchView& batch = *args.batch;
  auto* const pool = static_cast<uint64_t*>(args.kv_pool);
  sums_.resize(static_cast<size_t>(batch.num_tokens));
  for (int s = 0; s < batch.num_sequences; ++s) {
    const int begin = batch.query_starts[s];
    const int end = batch.query_starts[s + 1];
    int position = batch.context_lens[s] - (end - begin);
    uint64_t sum = SumOfSlots(pool, batch.block_tables + batch.table_starts[s], position, args.layout->block_size);
    for (int i = begin; i < end; ++i, ++position) {
      const uint64_t hash = SlotHash(sum, batch.token_ids[i], position);
      pool[batch.slots[i]] = hash;
      sum = AddSlot(sum, hash, position);
      sums_[static_cast<size_t>(i)] = sum;
    }
  }
}

void SimulatedBackend::Attention(const AttentionArgs& args) {
  memcpy(args.out, sums_.data(), sums_.size() * kSumBytes);
}

void SimulatedBackend::ReadRows(const void* x, int num_rows, int dim, float* values) {
  const auto* const sums = static_cast<const uint64_t*>(x);
  for (int i = 0; i < num_rows; ++i) {
    const std::array<float, 2> embedding = EmbeddingOf(sums[i]);
    std::copy_n(embedding.begin(), dim, values + size_t(i) * static_cast<size_t>(dim));
  }
}

void SimulatedBackend::Sample(const SamplingArgs& args) {
  const auto* const sums = reinterpret_cast<const uint64_t*>(args.logits);
  int made = -1;  // The row whose logits are in logits_.
  for (int i = 0; i < args.num_rows; ++i) {
    const SamplingRow& row = args.rows[i];
    const int logit_row = args.logit_rows == nullptr ? i : args.logit_rows[i];
    if (IsPlainlyGreedy(row)) {
      args.results[i] = {.token = rule_.BestToken(sums[logit_row]), .logprob = 0, .rank = 0};
      continue;
    }
    if (logit_row != made) rule_.FillLogits(sums[logit_row], logits_.data());
    made = logit_row;
    SamplingArgs one = args;
    one.logits = logits_.data();
    one.logit_rows = nullptr;
    one.num_rows = 1;
    one.rows = &row;
    one.results = args.results + i;
    one.top = args.top == nullptr ? nullptr : args.top + size_t(i) * static_cast<size_t>(args.max_top);
    CpuBackend::Sample(one);
  }
}

}  // namespace quire::simulated
