#ifndef QUIRE_KERNELS_CUDA_LAYER_GRAPHS_H_
#define QUIRE_KERNELS_CUDA_LAYER_GRAPHS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "kernels/cuda/device.h"

namespace quire::cuda {

// The layers of decode steps, recorded once for each number of tokens and repeated: one call of the driver instead of
// some ten for each layer. A step is padded to the next number of tokens that is recorded. Owned by the executor
// thread.
class LayerGraphs {
 public:
  static constexpr int kMaxTokens = 256;
  static constexpr size_t kMaxGraphs = 128;  // One more, and those before it are forgotten.
  // 1, 2, 4, 8, 16, 24, 32 and so on. REQUIRES: 1 <= num_tokens <= kMaxTokens.
  static int PaddedTokens(int num_tokens);

  // What the recorded launches depend on.
  struct Key {
    const void* model;
    int num_tokens;
    std::string attention;  // CudaAttention::PlanForRecording
    auto operator<=>(const Key&) const = default;
  };

  explicit LayerGraphs(Device* device) : device_(device) {}
  ~LayerGraphs() { Clear(); }

  // Whether the layers of that model have run with so many tokens before, so that all they need is there: memory,
  // kernels that are loaded, algorithms that were tried. From now on they have.
  bool HasRun(const void* model, int num_tokens) { return !has_run_.emplace(model, num_tokens).second; }

  // Repeats the layers, or begins to record them if they are new or something has moved since: `num_moves` counts that,
  // and so does Device::num_frees. Returns whether they were repeated.
  bool ReplayOrRecord(Key key, int64_t num_moves);
  bool is_recording() const { return is_recording_; }
  // Ends the recording that has begun, and runs it.
  void EndRecording();

  // Forgets everything: models may be gone.
  void Reset();

 private:
  void Clear();

  Device* const device_;
  std::map<Key, std::unique_ptr<Graph>> graphs_;
  std::set<std::pair<const void*, int>> has_run_;
  std::pair<int64_t, int64_t> generation_ = {};  // Frees and moves before the graphs were recorded.
  bool is_recording_ = false;
  Key recorded_key_ = {};
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_LAYER_GRAPHS_H_
