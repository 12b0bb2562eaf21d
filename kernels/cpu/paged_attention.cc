// SPDX-License-Identifier: Apache-2.0

#include "kernels/paged_attention.h"

#include <algorithm>
#include <thread>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/isa/cpu_features.h"
#include "kernels/cpu/kv_repack.h"
#include "kernels/cpu/memory.h"
#include "kernels/half_float.h"

namespace quire {
namespace {

using cpu::Memory;
using cpu::ThreadPool;

// Number of elements of K and V that justify one more thread.
constexpr int64_t kElementsPerThread = 1 << 18;

int NumThreads(const PagedAttentionArgs& args, const PagedAttentionStep& step) {
  int64_t tokens = 0;
  for (const int32_t context_len : step.context_lens) tokens += context_len;
  const int64_t elements = tokens * 2 * args.num_kv_heads * args.head_dim;
  return int(std::clamp<int64_t>(elements / kElementsPerThread, 1, std::max(1u, std::thread::hardware_concurrency())));
}

template <typename T>
void RepackUsedBlocks(const PagedAttentionArgs& args, const PagedAttentionStep& step, const KvLayout& layout,
                      void* kv_pool, ThreadPool* pool) {
  pool->ForEach(int(step.used_blocks.size()), [&](int i, int) {
    const PagedAttentionStep::UsedBlock& used = step.used_blocks[i];
    const cpu::BlockRows<T> rows = {
        .key = static_cast<const T*>(args.key_cache) + used.block * args.key_strides[0],
        .key_strides = {args.key_strides[1], args.key_strides[2]},
        .value = static_cast<const T*>(args.value_cache) + used.block * args.value_strides[0],
        .value_strides = {args.value_strides[1], args.value_strides[2]},
    };
    cpu::RepackBlock<T>(rows, used.num_tokens, layout, i, static_cast<T*>(kv_pool));
  });
}

// Returns the queries of the active sequences in float32, contiguous.
template <typename T>
std::vector<float> WidenQueries(const PagedAttentionArgs& args, const PagedAttentionStep& step) {
  std::vector<float> queries(step.rows.size() * args.num_heads * args.head_dim);
  float* to = queries.data();
  for (const int32_t row : step.rows) {
    for (int64_t head = 0; head < args.num_heads; ++head) {
      const T* const from =
          static_cast<const T*>(args.query) + row * args.query_strides[0] + head * args.query_strides[1];
      for (int64_t d = 0; d < args.head_dim; ++d) *to++ = ToFloat(from[d]);
    }
  }
  return queries;
}

template <typename T>
void WriteOutput(const PagedAttentionArgs& args, const PagedAttentionStep& step, const std::vector<float>& values) {
  const int64_t row_elements = args.num_heads * args.head_dim;
  std::fill_n(static_cast<T*>(args.out), args.num_seqs * row_elements, T{});
  const float* from = values.data();
  for (const int32_t row : step.rows) {
    T* const to = static_cast<T*>(args.out) + row * row_elements;
    for (int64_t i = 0; i < row_elements; ++i) FromFloat(*from++, to + i);
  }
}

template <typename T>
PagedAttentionStatus Forward(const PagedAttentionArgs& args, const PagedAttentionStep& step) {
  const KvLayout layout = {.num_layers = 1,
                           .num_kv_heads = int(args.num_kv_heads),
                           .head_dim = int(args.head_dim),
                           .block_size = int(args.block_size),
                           .type = KvTypeOf(args.type)};
  const size_t pool_bytes = step.used_blocks.size() * layout.block_bytes();
  const Memory kv_pool(pool_bytes);
  if (kv_pool.data() == nullptr && pool_bytes > 0) {
    return PagedAttentionStatus::Unavailable("not enough memory for a copy of the " +
                                             std::to_string(step.used_blocks.size()) + " blocks in use, " +
                                             std::to_string(pool_bytes) + " bytes");
  }
  ThreadPool pool(NumThreads(args, step));
  RepackUsedBlocks<T>(args, step, layout, kv_pool.data(), &pool);

  const std::vector<float> queries = WidenQueries<T>(args, step);
  std::vector<float> out(queries.size());
  std::vector<int32_t> positions;
  for (const int32_t row : step.rows) positions.push_back(step.positions[row]);
  const BatchView batch = {.num_tokens = int(step.rows.size()),
                           .num_sequences = int(step.rows.size()),
                           .token_ids = nullptr,
                           .positions = positions.data(),
                           .slots = nullptr,
                           .query_starts = step.query_starts.data(),
                           .context_lens = step.context_lens.data(),
                           .table_starts = step.table_starts.data(),
                           .block_tables = step.block_tables.data()};
  cpu::CpuAttention(&cpu::KernelsFor(cpu::SupportedIsas().back()), &pool)
      .Run({.batch = &batch,
            .q = queries.data(),
            .q_stride = int(args.num_heads * args.head_dim),
            .out = out.data(),
            .num_heads = int(args.num_heads),
            .scale = float(args.scale),
            .window = 0,
            .layout = &layout,
            .kv_pool = kv_pool.data()});
  WriteOutput<T>(args, step, out);
  return {};
}

}  // namespace

PagedAttentionStatus paged_attention_cpu_forward(const PagedAttentionArgs& args) {
  if (PagedAttentionStatus status = CheckPagedAttentionShape(args); !status.ok()) return status;
  // The arrays are copied, so that nobody can change them between the check and their use.
  std::vector<int32_t> block_tables(args.num_seqs * args.max_blocks);
  for (int64_t sequence = 0; sequence < args.num_seqs; ++sequence) {
    std::copy_n(args.block_tables + sequence * args.block_tables_stride, args.max_blocks,
                block_tables.data() + sequence * args.max_blocks);
  }
  const std::vector<int32_t> context_lens(args.context_lens, args.context_lens + args.num_seqs);
  PagedAttentionStep step;
  if (PagedAttentionStatus status = PlanPagedAttention(args, block_tables.data(), context_lens.data(), &step);
      !status.ok()) {
    return status;
  }
  switch (args.type) {
    case DataType::kFloat32:
      return Forward<float>(args, step);
    case DataType::kBFloat16:
      return Forward<BFloat16>(args, step);
    case DataType::kFloat16:
      return Forward<Float16>(args, step);
  }
  return PagedAttentionStatus::Invalid("type is none of float32, bfloat16 and float16");
}

}  // namespace quire
