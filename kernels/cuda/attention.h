#ifndef QUIRE_KERNELS_CUDA_ATTENTION_H_
#define QUIRE_KERNELS_CUDA_ATTENTION_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/attention.h"
#include "kernels/attention_plan.h"
#include "kernels/cuda/attention_args.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/upload_arena.h"

namespace quire::cuda {

// Attention of a step: plans it once for all layers of a kind, and launches the kernels that the plan asks for. Owned
// by the executor thread.
class CudaAttention {
 public:
  // Items of many rows go to a kernel of their own, which adds in another order; with `exact` they do not, so that a
  // row's result does not depend on the rows beside it. The device must outlive this object.
  CudaAttention(Device* device, bool exact);

  // The next step's batch in host memory, and on the device. Both stay valid until the next call.
  void BeginStep(const BatchView& batch, const BatchView& on_device);

  // args.batch is the one of the step.
  void Run(const quire::AttentionArgs& args, const KernelTable& kernels);

 private:
  // Items, or merges, that one kernel does.
  struct LaunchRange {
    Kernel<AttentionArgs> KernelTable::*kernel;
    const int32_t* range;  // On the device.
    int count;
  };
  // What plans are the same for.
  struct Kind {
    int num_kv_heads;
    int group_size;
    int window;
    int block_size;
    bool operator==(const Kind&) const = default;
  };
  struct StepPlan {
    StepPlan(const Kind& kind, Device* device) : kind(kind), arena(device) {}

    const Kind kind;
    bool is_current = false;  // Of this step.
    UploadArena arena;
    AttentionArgs args = {};  // What all layers have in common.
    int num_partials = 0;
    std::vector<LaunchRange> launches;
  };

  const StepPlan& PlanFor(const quire::AttentionArgs& args);
  void MakePlan(StepPlan* plan);

  Device* const device_;
  const bool exact_;
  BatchView batch_ = {};
  BatchView on_device_ = {};
  AttentionPlanner planner_;
  std::vector<std::unique_ptr<StepPlan>> plans_;  // One per kind of layer: one or two.
  DeviceBuffer partial_states_;
  DeviceBuffer partial_values_;
  // Of MakePlan.
  std::vector<AttentionItem> items_;
  std::vector<int32_t> ranges_;  // [launches][2]
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ATTENTION_H_
