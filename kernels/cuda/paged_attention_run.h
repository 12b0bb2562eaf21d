// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_PAGED_ATTENTION_RUN_H_
#define QUIRE_KERNELS_CUDA_PAGED_ATTENTION_RUN_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cuda/attention_args.h"
#include "kernels/cuda/attention_launches.h"
#include "kernels/cuda/kernel_table.h"
#include "kernels/cuda/repack_blocks.h"
#include "kernels/paged_attention.h"

// The steps of paged_attention_cuda_forward over any device, so that tests can run them on the emulated one.

namespace quire::cuda {

// The memory of a call. It is freed in the order of the device's work.
template <typename Device>
class CallMemory {
 public:
  explicit CallMemory(Device* device) : device_(device) {}
  ~CallMemory() {
    for (void* memory : allocations_) device_->Free(memory);
  }
  CallMemory(const CallMemory&) = delete;
  CallMemory& operator=(const CallMemory&) = delete;

  // Returns zeroed memory. Returns null when there is not enough, and in all calls after that.
  template <typename T>
  T* Allocate(size_t count) {
    if (is_exhausted_) return nullptr;
    void* const memory = device_->Allocate(std::max<size_t>(1, count) * sizeof(T));
    is_exhausted_ = memory == nullptr;
    if (!is_exhausted_) allocations_.push_back(memory);
    return static_cast<T*>(memory);
  }
  template <typename T>
  T* Upload(const std::vector<T>& values) {
    T* const memory = Allocate<T>(values.size());
    if (memory != nullptr && !values.empty()) device_->Copy(memory, values.data(), values.size() * sizeof(T));
    return memory;
  }
  bool is_exhausted() const { return is_exhausted_; }

 private:
  Device* const device_;
  std::vector<void*> allocations_;
  bool is_exhausted_ = false;
};

// One call. Device has Allocate, Free, Copy (also of pageable host memory), Synchronize, FindKernels and Launch as in
// device.h.
template <typename Device>
class PagedAttentionRun {
 public:
  PagedAttentionRun(const PagedAttentionArgs& args, const Kernel<RepackBlocksArgs>& repack, Device* device)
      : args_(args), repack_(repack), device_(device), memory_(device) {}

  PagedAttentionStatus Run() {
    if (PagedAttentionStatus status = CheckPagedAttentionShape(args_); !status.ok()) return status;
    if (PagedAttentionStatus status = CheckLimits(); !status.ok()) return status;
    if (PagedAttentionStatus status = PlanStep(); !status.ok()) return status;
    RepackBlocksArgs repack = PrepareRepack();
    AttentionArgs attention = PrepareAttention();
    if (memory_.is_exhausted()) {
      return PagedAttentionStatus::Unavailable("not enough memory on the GPU for a copy of the " +
                                               std::to_string(step_.used_blocks.size()) + " blocks in use");
    }
    ClearInactiveRows();
    if (step_.rows.empty()) return {};
    Launch(repack_, repack, (repack.num_blocks * int64_t{repack.num_kv_heads} * repack.block_size + 7) / 8);
    for (size_t i = 0; i < launches_.size(); ++i) {
      const AttentionLaunch& launch = launches_[i];
      attention.range = ranges_on_device_ + 2 * i;
      Launch(kernels_->*launch.kernel, attention, int64_t{launch.end - launch.begin} * attention.num_kv_heads);
    }
    return {};
  }

 private:
  static constexpr int64_t kMaxGrid = 1 << 16;  // A larger grid is not needed, because kernels loop over the work.

  int group_size() const { return int(args_.num_heads / args_.num_kv_heads); }
  float scale_log2() const { return float(args_.scale / std::log(2.0)); }
  int64_t row_elements() const { return args_.num_heads * args_.head_dim; }

  PagedAttentionStatus CheckLimits() {
    if (args_.type == DataType::kFloat32) {
      return PagedAttentionStatus::Invalid("query is float32, must be bfloat16 or float16 on a GPU");
    }
    kernels_ = IsRepackedHeadDim(args_.head_dim)
                   ? device_->FindKernels(args_.type, int(args_.head_dim), int(args_.block_size))
                   : nullptr;
    if (kernels_ == nullptr) {
      return PagedAttentionStatus::Invalid("head_dim is " + std::to_string(args_.head_dim) +
                                           ", must be 32, 64, 80, 96, 128 or 256 on a GPU");
    }
    if (group_size() > kPrefillRows) {
      return PagedAttentionStatus::Invalid("num_heads is " + std::to_string(args_.num_heads) + ", must be at most " +
                                           std::to_string(kPrefillRows) + " times num_kv_heads " +
                                           std::to_string(args_.num_kv_heads) + " on a GPU");
    }
    if (!(scale_log2() > 0)) {
      return PagedAttentionStatus::Invalid("scale is " + std::to_string(args_.scale) + ", must be positive on a GPU");
    }
    return {};
  }

  // Reads the tables back to the host.
  PagedAttentionStatus PlanStep() {
    std::vector<int32_t> tables(args_.num_seqs * args_.max_blocks), lens(args_.num_seqs);
    if (args_.block_tables_stride == args_.max_blocks) {
      Copy(tables.data(), args_.block_tables, tables.size());
    } else {
      for (int64_t s = 0; s < args_.num_seqs; ++s) {
        Copy(tables.data() + s * args_.max_blocks, args_.block_tables + s * args_.block_tables_stride,
             args_.max_blocks);
      }
    }
    Copy(lens.data(), args_.context_lens, lens.size());
    device_->Synchronize();
    return PlanPagedAttention(args_, tables.data(), lens.data(), &step_);
  }

  template <typename T>
  void Copy(T* to, const T* from, size_t count) {
    if (count > 0) device_->Copy(to, from, count * sizeof(T));
  }

  RepackBlocksArgs PrepareRepack() {
    const size_t block_bytes = 2 * sizeof(uint16_t) * args_.block_size * args_.num_kv_heads * args_.head_dim;
    kv_pool_ = memory_.template Allocate<char>(step_.used_blocks.size() * block_bytes);
    RepackBlocksArgs repack{};
    repack.key_cache = static_cast<const uint16_t*>(args_.key_cache);
    repack.value_cache = static_cast<const uint16_t*>(args_.value_cache);
    bool is_aligned = (uintptr_t(args_.key_cache) | uintptr_t(args_.value_cache)) % 16 == 0;
    for (int i = 0; i < 3; ++i) {
      repack.key_strides[i] = args_.key_strides[i];
      repack.value_strides[i] = args_.value_strides[i];
      is_aligned = is_aligned && args_.key_strides[i] % 8 == 0 && args_.value_strides[i] % 8 == 0;
    }
    repack.used_blocks = memory_.Upload(step_.used_blocks);
    repack.kv_pool = kv_pool_;
    repack.num_blocks = int32_t(step_.used_blocks.size());
    repack.block_size = int32_t(args_.block_size);
    repack.num_kv_heads = int32_t(args_.num_kv_heads);
    repack.head_dim = int32_t(args_.head_dim);
    repack.has_aligned_rows = is_aligned;
    return repack;
  }

  AttentionArgs PrepareAttention() {
    const BatchView batch = {.num_tokens = int(step_.rows.size()),
                             .num_sequences = int(step_.rows.size()),
                             .token_ids = nullptr,
                             .positions = nullptr,
                             .slots = nullptr,
                             .query_starts = step_.query_starts.data(),
                             .context_lens = step_.context_lens.data(),
                             .table_starts = step_.table_starts.data(),
                             .block_tables = step_.block_tables.data()};
    const AttentionPlan& plan = planner_.Plan(batch, CuttingPlanOptions({.num_kv_heads = int(args_.num_kv_heads),
                                                                         .group_size = group_size(),
                                                                         .window = 0,
                                                                         .block_size = int(args_.block_size)},
                                                                        kPrefillRows));
    std::vector<AttentionItem> items;
    ListLaunches(plan, group_size(), &items, &launches_);
    for (const AttentionLaunch& launch : launches_) ranges_.insert(ranges_.end(), {launch.begin, launch.end});
    // Rows of the plan count only sequences with a context. They are mapped to the rows of query and out.
    std::vector<int32_t> tokens = plan.tokens;
    for (int32_t& token : tokens) token = step_.rows[token];
    ranges_on_device_ = memory_.Upload(ranges_);
    zero_row_ = memory_.template Allocate<uint16_t>(row_elements());

    AttentionArgs attention{};
    PlaceQueries(&attention);
    attention.out = static_cast<uint16_t*>(args_.out);
    attention.kv_pool = kv_pool_;
    attention.positions = memory_.Upload(step_.positions);
    attention.table_starts = memory_.Upload(step_.table_starts);
    attention.block_tables = memory_.Upload(step_.block_tables);
    attention.tokens = memory_.Upload(tokens);
    attention.items = memory_.Upload(items);
    attention.merges = memory_.Upload(plan.merges);
    attention.places = memory_.Upload(plan.places);
    attention.partial_states = memory_.template Allocate<SoftmaxState>(plan.num_partials);
    attention.partial_values = memory_.template Allocate<float>(size_t(plan.num_partials) * args_.head_dim);
    attention.num_kv_heads = int32_t(args_.num_kv_heads);
    attention.group_size = group_size();
    attention.block_size = int32_t(args_.block_size);
    attention.window = 0;
    attention.scale_log2 = scale_log2();
    return attention;
  }

  // The kernels read pairs of elements of rows with contiguous heads. Other queries are copied, head by head.
  void PlaceQueries(AttentionArgs* attention) {
    const auto* const query = static_cast<const uint16_t*>(args_.query);
    const bool is_in_place = uintptr_t(query) % 4 == 0 && args_.query_strides[1] == args_.head_dim &&
                             args_.query_strides[0] % 2 == 0 &&
                             std::abs(args_.query_strides[0]) <= std::numeric_limits<int32_t>::max();
    attention->q = query;
    attention->q_stride = int32_t(is_in_place ? args_.query_strides[0] : row_elements());
    if (is_in_place) return;
    uint16_t* const copy = memory_.template Allocate<uint16_t>(args_.num_seqs * row_elements());
    attention->q = copy;
    if (copy == nullptr) return;
    for (const int32_t row : step_.rows) {
      for (int64_t head = 0; head < args_.num_heads; ++head) {
        Copy(copy + row * row_elements() + head * args_.head_dim,
             query + row * args_.query_strides[0] + head * args_.query_strides[1], args_.head_dim);
      }
    }
  }

  void ClearInactiveRows() {
    for (int64_t row = 0; row < args_.num_seqs; ++row) {
      if (step_.positions[row] >= 0) continue;
      Copy(static_cast<uint16_t*>(args_.out) + row * row_elements(), zero_row_, row_elements());
    }
  }

  template <typename Args>
  void Launch(const Kernel<Args>& kernel, const Args& args, int64_t num_blocks) {
    device_->Launch(kernel, args, int(std::min(num_blocks, kMaxGrid)));
  }

  const PagedAttentionArgs& args_;
  const Kernel<RepackBlocksArgs> repack_;
  Device* const device_;
  CallMemory<Device> memory_;
  const KernelTable* kernels_ = nullptr;
  PagedAttentionStep step_;
  AttentionPlanner planner_;
  std::vector<AttentionLaunch> launches_;
  std::vector<int32_t> ranges_;
  const int32_t* ranges_on_device_ = nullptr;
  const uint16_t* zero_row_ = nullptr;
  char* kv_pool_ = nullptr;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_PAGED_ATTENTION_RUN_H_
