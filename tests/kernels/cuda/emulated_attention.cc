#include "tests/kernels/cuda/emulated_attention.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/cuda/attention_decode.h"
#include "kernels/cuda/attention_merge.h"
#include "kernels/cuda/attention_prefill.h"

namespace quire::cuda {
namespace {

using simt::LaunchConfig;
using simt::ReadOnlyBuffer;
using simt::WritableBuffer;

constexpr int kDecodeRows = 16;
constexpr int kItemRows = 64;
constexpr int kStages = 3;

struct Kernel {
  void (*run)(const AttentionArgs&);
  int num_threads;
  size_t shared_bytes;
};

struct Kernels {
  Kernel decode, prefill, merge;
};

template <typename K>
Kernel Of() {
  return {K::Run, K::kThreads, K::kSharedBytes};
}

template <typename Element, UnitSize kSize, int kHeadDim>
Kernels Choose() {
  return {.decode = Of<AttentionDecode<Element, kSize, kHeadDim, kStages>>(),
          .prefill = Of<AttentionPrefill<Element, kSize, kHeadDim, 2>>(),
          .merge = Of<AttentionMergeKernel<Element, kHeadDim>>()};
}

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

Kernels KernelsFor(const Shape& shape) {
  const bool is_small = shape.block_size < KvLayout::kUnitTokens;
  return ForHeads(shape.head_dim, [&]<int kHeadDim>() {
    if (shape.type == DataType::kFloat16) {
      return is_small ? Choose<F16, UnitSize::kSmall, kHeadDim>() : Choose<F16, UnitSize::kFull, kHeadDim>();
    }
    return is_small ? Choose<Bf16, UnitSize::kSmall, kHeadDim>() : Choose<Bf16, UnitSize::kFull, kHeadDim>();
  });
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
  AttentionPlanner planner;
  const AttentionPlan& plan = planner.Plan(view, {.num_kv_heads = shape.num_kv_heads,
                                                  .group_size = group_size,
                                                  .window = shape.window,
                                                  .block_size = shape.block_size,
                                                  .tile_tokens = kSplitTokens,
                                                  .split_tokens = kSplitTokens,
                                                  .item_rows = kItemRows,
                                                  .min_items = std::numeric_limits<int>::max()});
  const std::vector<char> q_bits = Encoded(q, shape.type);
  std::vector<char> out(size_t(view.num_tokens) * row_size * 2, char(0xff));
  std::vector<SoftmaxState> states(plan.num_partials, {NAN, NAN});
  std::vector<float> values(size_t(plan.num_partials) * shape.head_dim, NAN);
  std::vector<AttentionItem> items = plan.items;

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

  const Kernels kernels = KernelsFor(shape);
  EmulatedRun result;
  const auto launch = [&](const Kernel& kernel, int first, int end) {
    if (first == end) return;
    const int32_t range[] = {first, end};
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
    result.reports.push_back(simt::Launch(config, [&] { kernel.run(args); }));
  };
  int begin = 0;
  for (const int end : plan.phase_ends) {
    const auto is_small = [&](const AttentionItem& item) { return item.num_rows * group_size <= kDecodeRows; };
    const int middle = int(std::stable_partition(items.begin() + begin, items.begin() + end, is_small) - items.begin());
    launch(kernels.decode, begin, middle);
    launch(kernels.prefill, middle, end);
    result.num_decode_items += middle - begin;
    result.num_prefill_items += end - middle;
    begin = end;
  }
  result.num_merges = int(plan.merges.size());
  launch(kernels.merge, 0, result.num_merges);
  result.out = Decoded(out, shape.type);
  return result;
}

}  // namespace quire::cuda
