// SPDX-License-Identifier: Apache-2.0

#include "tests/kernels/cuda/emulated_attention.h"

#include <cmath>

#include "kernels/cuda/attention_launches.h"
#include "kernels/cuda/emulated_entry.h"
#include "kernels/cuda/make_kernel_table.h"

namespace quire::cuda {
namespace {

using simt::LaunchConfig;
using simt::ReadOnlyBuffer;
using simt::WritableBuffer;

// Calls f.operator()<kHeadDim>().
template <typename F>
auto ForHeads(int head_dim, F f) {
  switch (head_dim) {
    case 80:
      return f.template operator()<80>();
    case 96:
      return f.template operator()<96>();
    case 128:
      return f.template operator()<128>();
    case 256:
      return f.template operator()<256>();
    default:
      return f.template operator()<64>();
  }
}

KernelTable TableFor(const Shape& shape, bool is_sm90) {
  const bool is_small = shape.block_size < KvLayout::kUnitTokens;
  return ForHeads(shape.head_dim, [&]<int kHeadDim>() {
    if (is_sm90 && !is_small) {
      return shape.type == DataType::kFloat16 ? MakeKernelTable<EmulatedEntry, F16, UnitSize::kFull, kHeadDim, true>()
                                              : MakeKernelTable<EmulatedEntry, Bf16, UnitSize::kFull, kHeadDim, true>();
    }
    if (shape.type == DataType::kFloat16) {
      return is_small ? MakeKernelTable<EmulatedEntry, F16, UnitSize::kSmall, kHeadDim>()
                      : MakeKernelTable<EmulatedEntry, F16, UnitSize::kFull, kHeadDim>();
    }
    return is_small ? MakeKernelTable<EmulatedEntry, Bf16, UnitSize::kSmall, kHeadDim>()
                    : MakeKernelTable<EmulatedEntry, Bf16, UnitSize::kFull, kHeadDim>();
  });
}

KernelTable KernelsFor(const Shape& shape, bool is_sm90) {
  const KernelTable table = TableFor(shape, is_sm90);
  return shape.int8_kv ? *table.int8_kv : table;
}

}  // namespace

EmulatedRun RunAttention(const Shape& shape, const std::vector<Slice>& slices, PagedPool* pool,
                         const EmulationOptions& options) {
  PagedBatch batch;
  std::vector<float> q;
  const int row_size = shape.num_heads * shape.head_dim;
  for (const Slice& slice : slices) {
    batch.Add(slice.table, slice.begin, slice.end, shape.block_size);
    q.insert(q.end(), slice.sequence->q.begin() + int64_t{slice.begin} * row_size,
             slice.sequence->q.begin() + int64_t{slice.end} * row_size);
  }
  const BatchView view = batch.View();
  const int group_size = shape.num_heads / shape.num_kv_heads;
  const KernelTable kernels = KernelsFor(shape, options.is_sm90);
  AttentionPlanner planner;
  const AttentionPlan& plan = planner.Plan(view, CuttingPlanOptions({.num_kv_heads = shape.num_kv_heads,
                                                                     .group_size = group_size,
                                                                     .window = shape.window,
                                                                     .block_size = shape.block_size},
                                                                    MostItemRows(kernels, shape.softcap > 0)));
  std::vector<AttentionItem> items;
  std::vector<AttentionLaunch> launches;
  ListLaunches(plan, group_size, &items, &launches);
  const std::vector<char> q_bits = Encoded(q, shape.type);
  std::vector<char> out(size_t(view.num_tokens) * row_size * 2, char(0xff));
  std::vector<SoftmaxState> states(plan.num_partials, {NAN, NAN});
  std::vector<float> values(size_t(plan.num_partials) * shape.head_dim, NAN);

  AttentionArgs args{};
  args.q = reinterpret_cast<const uint16_t*>(q_bits.data());
  args.q_stride = row_size;
  args.out = reinterpret_cast<uint16_t*>(out.data());
  args.kv_pool = static_cast<const char*>(pool->data());
  args.positions = view.positions;
  args.table_starts = view.table_starts;
  args.block_tables = view.block_tables;
  args.tokens = plan.tokens.data();
  args.items = items.data();
  args.merges = plan.merges.data();
  args.places = plan.places.data();
  args.partial_states = states.data();
  args.partial_values = values.data();
  args.num_kv_heads = shape.num_kv_heads;
  args.group_size = group_size;
  args.block_size = shape.block_size;
  args.window = shape.window;
  args.scale_log2 = float(1 / std::sqrt(double(shape.head_dim)) / std::log(2.0));
  if (shape.softcap > 0) SetSoftcap(1 / std::sqrt(double(shape.head_dim)), shape.softcap, &args);

  EmulatedRun result;
  for (const AttentionLaunch& launch : launches) {
    const Kernel<AttentionArgs>& kernel = kernels.*launch.kernel;
    const int32_t range[] = {launch.begin, launch.end};
    args.range = range;
    LaunchConfig config;
    config.num_blocks = options.num_blocks;
    config.num_threads = kernel.num_threads;
    config.shared_bytes = kernel.shared_bytes;
    config.seed = options.seed;
    config.landing = options.landing;
    config.buffers = {ReadOnlyBuffer("q", q_bits.data(), q_bits.size()),
                      WritableBuffer("out", out.data(), out.size()),
                      ReadOnlyBuffer("pool", static_cast<const char*>(pool->data()), pool->bytes()),
                      ReadOnlyBuffer("positions", view.positions, view.num_tokens),
                      ReadOnlyBuffer("table starts", view.table_starts, view.num_sequences + 1),
                      ReadOnlyBuffer("block tables", view.block_tables, view.table_starts[view.num_sequences]),
                      ReadOnlyBuffer("tokens", plan.tokens.data(), plan.tokens.size()),
                      ReadOnlyBuffer("items", items.data(), items.size()),
                      ReadOnlyBuffer("merges", plan.merges.data(), plan.merges.size()),
                      ReadOnlyBuffer("places", plan.places.data(), plan.places.size()),
                      ReadOnlyBuffer("range", range, 2),
                      WritableBuffer("states", states.data(), states.size()),
                      WritableBuffer("values", values.data(), values.size())};
    const auto run = reinterpret_cast<EntryFunction>(const_cast<void*>(kernel.entry));
    result.reports.push_back(simt::Launch(config, [&] { run(&args); }));
    if (launch.kernel == &KernelTable::attention_prefill) result.num_prefill_items += launch.end - launch.begin;
    if (launch.kernel == &KernelTable::attention_prefill_sm90) result.num_sm90_items += launch.end - launch.begin;
  }
  result.out = Decoded(out, shape.type);
  return result;
}

}  // namespace quire::cuda
