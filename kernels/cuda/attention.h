#ifndef QUIRE_KERNELS_CUDA_ATTENTION_H_
#define QUIRE_KERNELS_CUDA_ATTENTION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/attention_plan.h"
#include "kernels/cuda/attention_args.h"
#include "kernels/cuda/attention_launches.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/upload_arena.h"

namespace quire::cuda {

// Attention of a step: plans it once for all layers of a kind, and launches the kernels that the plan asks for. Owned
// by the executor thread.
class CudaAttention {
 public:
  // With `exact` a row's result does not depend on the rows beside it: every item is cut at its splits, and one kernel
  // does them all. Otherwise as many are cut as it takes to fill the device, and items of many rows go to a kernel of
  // their own, which adds in another order. The device must outlive this object.
  CudaAttention(Device* device, bool exact);

  // Takes the memory that a step of `max_tokens` in contexts of at most `max_context_tokens` can need. The bytes that
  // are missing, or 0.
  size_t Reserve(const KvLayout& layout, int num_heads, int max_tokens, int max_context_tokens);

  // The next step's batch in host memory, and on the device. Both stay valid until the next call.
  void BeginStep(const BatchView& batch, const BatchView& on_device);

  // args.batch is the one of the step.
  void Run(const quire::AttentionArgs& args, const KernelTable& kernels);

  // For launches that are recorded and repeated in other steps. Plans the step for all kinds of layers that have run so
  // far; the answer names the launches of each kind. Launches that are recorded now are right for every step with the
  // same answer and as many tokens: what differs between them is in memory, at the same addresses as long as num_moves
  // and Device::num_frees stay the same.
  std::string PlanForRecording();
  int64_t num_moves() const { return num_moves_; }
  // What is launched from now on is to be recorded, or is not.
  void set_is_recording(bool is_recording) { is_recording_ = is_recording; }

 private:
  // What plans are the same for.
  struct Kind {
    int head_dim;
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
    // For how many values the arrays have room: more than one step needs, so that they stay where they are in the next.
    size_t token_capacity = 0, item_capacity = 0, merge_capacity = 0, place_capacity = 0;
    UploadArena arena;
    AttentionArgs args = {};  // What all layers have in common.
    int num_partials = 0;
    std::vector<AttentionLaunch> launches;
    const int32_t* ranges = nullptr;  // [launches][2], on the device.
  };

  // How many partial results steps are planned with, as far as that is a choice.
  static int64_t MaxPartials(int head_dim);
  const StepPlan& PlanFor(const quire::AttentionArgs& args);
  void MakePlan(StepPlan* plan);
  // Copies the plan to the device.
  void UploadPlan(const AttentionPlan& steps, StepPlan* plan);

  Device* const device_;
  const bool exact_;
  bool is_recording_ = false;
  int64_t num_moves_ = 0;  // How often a plan's arrays were given more room, and so other addresses.
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
