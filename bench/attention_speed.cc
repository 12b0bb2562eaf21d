// SPDX-License-Identifier: Apache-2.0

#include "bench/attention_speed.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "bench/clocks.h"
#include "kernels/half_float.h"

namespace quire {
namespace {

// The block tables of the sequences in a step.
struct Tables {
  std::vector<int32_t> starts = {0};
  std::vector<uint32_t> blocks;
};

// The arrays of a BatchView, except the block tables.
struct StepArrays {
  std::vector<int32_t> positions, query_starts = {0}, context_lens;

  BatchView View(const Tables& tables) const {
    BatchView view = {};
    view.num_tokens = static_cast<int>(positions.size());
    view.num_sequences = static_cast<int>(context_lens.size());
    view.positions = positions.data();
    view.query_starts = query_starts.data();
    view.context_lens = context_lens.data();
    view.table_starts = tables.starts.data();
    view.block_tables = tables.blocks.data();
    return view;
  }
};

int NumBlocks(const AttentionLoad& load, int block_size) {
  const int shared = load.shared_tokens / block_size;
  const int all = (load.context_tokens + block_size - 1) / block_size;
  return shared + load.num_sequences * (all - shared);
}

// Takes blocks in the given order.
Tables MakeTables(const AttentionLoad& load, int block_size, const std::vector<uint32_t>& order) {
  Tables tables;
  const int shared = load.shared_tokens / block_size;
  size_t next = shared;
  for (int i = 0; i < load.num_sequences; ++i) {
    tables.blocks.insert(tables.blocks.end(), order.begin(), order.begin() + shared);
    for (int token = shared * block_size; token < load.context_tokens; token += block_size) {
      tables.blocks.push_back(order[next++]);
    }
    tables.starts.push_back(static_cast<int32_t>(tables.blocks.size()));
  }
  return tables;
}

StepArrays MakeStep(const AttentionLoad& load) {
  StepArrays step;
  for (int i = 0; i < load.num_sequences; ++i) {
    for (int query = load.num_queries; query > 0; --query) step.positions.push_back(load.context_tokens - query);
    step.query_starts.push_back(static_cast<int32_t>(step.positions.size()));
    step.context_lens.push_back(load.context_tokens);
  }
  return step;
}

using Pool = std::unique_ptr<void, std::function<void(void*)>>;

template <typename T>
void FillWith(const std::vector<T>& values, size_t bytes, void* pool) {
  for (size_t i = 0; i < bytes / sizeof(T); ++i) static_cast<T*>(pool)[i] = values[i % values.size()];
}

// Fills `num_units` units with random numbers. They repeat after a prime number of them, so that no two units are
// alike.
void FillPool(const KvLayout& layout, size_t num_units, std::mt19937* random, char* pool) {
  constexpr size_t kNumValues = 4099;
  const size_t unit_bytes = layout.unit_bytes();
  if (layout.type == KvType::kBFloat16) {
    std::normal_distribution<float> normal;
    std::vector<BFloat16> values(kNumValues);
    for (BFloat16& value : values) value = ToBFloat16(normal(*random));
    return FillWith(values, num_units * unit_bytes, pool);
  }
  std::uniform_int_distribution<int> whole(-127, 127);
  std::vector<int8_t> values(kNumValues);
  for (int8_t& value : values) value = static_cast<int8_t>(whole(*random));
  FillWith(values, num_units * unit_bytes, pool);
  for (size_t unit = 0; unit < num_units; ++unit) {
    auto* const scales = reinterpret_cast<float*>(pool + unit * unit_bytes + layout.key_scales_start());
    std::fill_n(scales, 2 * layout.unit_tokens(), 3.0f / 127);
  }
}

}  // namespace

absl::StatusOr<AttentionSpeed> MeasureAttention(Backend* backend, MemoryReader* memory, int num_threads,
                                                const AttentionModel& model, KvType kv_type, const AttentionLoad& load,
                                                int block_size, int num_rounds) {
  const KvLayout layout = {.num_layers = model.num_layers,
                           .num_kv_heads = model.num_kv_heads,
                           .head_dim = model.head_dim,
                           .block_size = block_size,
                           .type = kv_type};
  const int num_blocks = NumBlocks(load, block_size);
  const size_t layer_bytes = num_blocks * layout.block_bytes();
  const Pool pool(backend->Allocate(layer_bytes * model.num_layers), [&](void* memory) { backend->Free(memory); });
  if (pool == nullptr) return absl::ResourceExhaustedError("not enough memory for K and V");
  std::mt19937 random(1);
  auto* const bytes = static_cast<char*>(pool.get());
  FillPool(layout, layer_bytes * model.num_layers / layout.unit_bytes(), &random, bytes);

  std::vector<uint32_t> order(num_blocks);
  std::iota(order.begin(), order.end(), 0);
  const Tables contiguous = MakeTables(load, block_size, order);
  std::shuffle(order.begin(), order.end(), random);
  const Tables scattered = MakeTables(load, block_size, order);
  const StepArrays step = MakeStep(load);

  const int row_size = model.num_heads * model.head_dim;
  std::vector<float> q(step.positions.size() * row_size), out(q.size());
  std::normal_distribution<float> normal;
  for (float& value : q) value = normal(random);
  const auto run = [&](const Tables& tables) {
    const BatchView view = step.View(tables);
    const double start = SecondsOf(num_threads);
    for (int layer = 0; layer < model.num_layers; ++layer) {
      backend->Attention({.batch = &view,
                          .q = q.data(),
                          .q_stride = row_size,
                          .out = out.data(),
                          .num_heads = model.num_heads,
                          .scale = 1 / std::sqrt(static_cast<float>(model.head_dim)),
                          .window = 0,
                          .layout = &layout,
                          .kv_pool = bytes + layer * layer_bytes});
    }
    return SecondsOf(num_threads) - start;
  };

  AttentionSpeed speed;
  const double tokens = load.shared_tokens + double(load.num_sequences) * (load.context_tokens - load.shared_tokens);
  const double seen = load.context_tokens - (load.num_queries - 1) / 2.0;  // Mean number of tokens that a query sees.
  speed.kv_bytes = tokens * static_cast<double>(layout.block_bytes_all_layers()) / block_size;
  speed.flop = 4.0 * model.num_layers * row_size * seen * static_cast<double>(step.positions.size());
  run(contiguous);
  for (int round = 0; round < num_rounds; ++round) {
    const double before = memory->ReadOnce();
    const double scattered_seconds = run(scattered), contiguous_seconds = run(contiguous);
    const double bandwidth = (before + memory->ReadOnce()) / 2;
    speed.scattered.Add(scattered_seconds);
    speed.contiguous.Add(contiguous_seconds);
    speed.bandwidth.Add(bandwidth);
    speed.memory_share.Add(1e-9 * speed.kv_bytes / bandwidth / scattered_seconds);
    speed.scatter_ratio.Add(scattered_seconds / contiguous_seconds);
  }
  return speed;
}

}  // namespace quire
