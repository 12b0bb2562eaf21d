// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_ATTENTION_H_
#define QUIRE_KERNELS_CUDA_ATTENTION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/attention_plan.h"
#include "kernels/backend.h"
#include "kernels/cuda/attention_args.h"
#include "kernels/cuda/attention_launches.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/upload_arena.h"

namespace quire::cuda {

// The attention of a step. It is planned once for all layers of a kind, and then the kernels of the plan are launched.
// Owned by the executor thread.
class CudaAttention {
 public:
  // With `exact`, a row's result does not depend on the other rows: every item is cut at its splits, and one kernel
  // runs all items. Otherwise only enough items are cut to fill the device, and items of many rows go to other
  // kernels, which add in different orders. The device must outlive this object.
  CudaAttention(Device* device, bool exact);

  // Reserves the device memory that a step of these sizes can need. Returns the number of missing bytes, or 0.
  size_t Reserve(const KvLayout& layout, int num_heads, const StepSizes& sizes);
  // An upper bound on the room that PlanStep can want in steps of the reserved sizes, for the kinds of layers that have
  // run so far; 0 before Reserve.
  size_t MostUploadBytes() const;

  // Sets the only view of the next step's batch, which is in host memory. It must stay valid until the next step
  // begins.
  void BeginStep(const BatchView& batch);
  // The same in two parts for several views, with the plans of all kinds of layers that have run so far in the caller's
  // upload. The first part plans the step and returns how much room the plans need. The second one adds them to the
  // arena.
  size_t PlanStep(const BatchView* views, int num_views);
  void AddPlans(UploadArena* arena);

  // args.batch must be the view with this number, on the device.
  void Run(const quire::AttentionArgs& args, const KernelTable& kernels, int view = 0);

  // For launches that are recorded and repeated in other steps. Plans the step for all kinds of layers that have run so
  // far, and returns a text that names the launches of each kind with their grids. Launches that are recorded now are
  // valid for every step with the same text and the same number of tokens. All differences between such steps are in
  // memory. The addresses stay the same while num_moves and Device::num_frees stay the same.
  std::string PlanForRecording();
  int64_t num_moves() const { return num_moves_; }
  // Sets whether the following launches are recorded.
  void set_is_recording(bool is_recording) { is_recording_ = is_recording; }

 private:
  // Layers of the same kind share a plan.
  struct Kind {
    int view;  // Number of the view of the batch.
    int head_dim;
    int num_kv_heads;
    int group_size;
    int window;
    int block_size;
    KvType kv_type;
    bool has_softcap;
    bool operator==(const Kind&) const = default;
  };
  struct StepPlan {
    StepPlan(const Kind& kind, int most_item_rows, Device* device)
        : kind(kind), most_item_rows(most_item_rows), arena(device) {}

    const Kind kind;
    const int most_item_rows;  // MostItemRows of the kernels.
    bool is_current = false;   // The plan is for the current step.
    // Number of values for which the arrays have room. It exceeds the need of one step, so that later steps use the
    // same addresses.
    size_t token_capacity = 0, item_capacity = 0, merge_capacity = 0, place_capacity = 0;
    UploadArena arena;
    AttentionArgs args = {};  // The arguments that are the same for all layers.
    int num_partials = 0;
    std::vector<AttentionLaunch> launches;
    const int32_t* ranges = nullptr;  // [launches][2], in device memory.

    // The arrays of the plan in host memory, before they are uploaded.
    std::vector<int32_t> host_tokens;
    std::vector<AttentionItem> host_items;
    std::vector<AttentionMerge> host_merges;
    std::vector<PartialPlace> host_places;
    std::vector<int32_t> host_ranges;  // [launches][2]
  };

  // Limit on the number of partial results per step when not exact.
  static int64_t MaxPartials(int head_dim);
  const StepPlan& PlanFor(const quire::AttentionArgs& args, const KernelTable& kernels, int view);
  // The size of the grid of a launch. When it is recorded, the size depends only on a power of two near the number of
  // items, so that steps with about the same number of items share a recording.
  int NumBlocks(const Kind& kind, const AttentionLaunch& launch, bool is_recorded) const;
  // Plans the step on the host.
  void MakePlan(StepPlan* plan);
  // The largest number of query rows of an item.
  int ItemRows(const StepPlan& plan) const { return exact_ ? kDecodeRows : plan.most_item_rows; }
  static size_t UploadBytes(const StepPlan& plan);
  static size_t UploadBytes(size_t tokens, size_t items, size_t merges, size_t places, size_t launches);
  void AddPlan(StepPlan* plan, UploadArena* arena);
  void MakeAndUploadPlan(StepPlan* plan);

  Device* const device_;
  const bool exact_;
  bool is_recording_ = false;
  StepSizes reserved_ = {};
  int64_t reserved_partials_ = 0;
  int64_t num_moves_ = 0;         // Number of times that the arrays of a plan got more room, and thus new addresses.
  std::vector<BatchView> views_;  // Of the step, in host memory.
  AttentionPlanner planner_;
  std::vector<std::unique_ptr<StepPlan>> plans_;  // One per kind of layer.
  DeviceBuffer partial_states_;
  DeviceBuffer partial_values_;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ATTENTION_H_
