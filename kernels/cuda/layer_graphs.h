// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_LAYER_GRAPHS_H_
#define QUIRE_KERNELS_CUDA_LAYER_GRAPHS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "kernels/cuda/device.h"

namespace quire::cuda {

// Records the layers of decode steps, and the draws behind them, once for each number of tokens and repeats them, which
// takes one call of the driver instead of about ten for each layer. The caller pads a step to PaddedTokens, so that few
// numbers of tokens are recorded. Owned by the executor thread.
class LayerGraphs {
 public:
  static constexpr int kMaxTokens = 256;
  static constexpr size_t kMaxGraphs = 256;  // One more takes the place of the one that was not used for longest.
  // Rounds up to 1, 2, 4, 8, 16, 24, 32 and so on. REQUIRES: 1 <= num_tokens <= kMaxTokens.
  static int PaddedTokens(int num_tokens);

  // Everything that the recorded launches depend on.
  struct Key {
    const void* model;
    int num_tokens;
    bool has_outputs;       // Draws for all tokens follow (LayerRecorder::NumOutputRows).
    int max_top;            // Largest number of tokens that each of these draws returns.
    std::string attention;  // CudaAttention::PlanForRecording
    auto operator<=>(const Key&) const = default;
  };

  explicit LayerGraphs(Device* device) : device_(device) {}
  ~LayerGraphs() { Clear(); }

  // Returns whether the layers of that model have run with that number of tokens, and with or without outputs, since
  // the last Reset (AddRun). Layers are recorded in their second run at the earliest, because the first run allocates
  // memory, loads kernels and chooses algorithms.
  bool HasRun(const void* model, int num_tokens, bool has_outputs) const {
    return runs_.contains({model, num_tokens, has_outputs});
  }
  // Remembers that the layers run now.
  void AddRun(const void* model, int num_tokens, bool has_outputs) { runs_.emplace(model, num_tokens, has_outputs); }

  // Repeats the layers and returns true if they were recorded and nothing has moved since. Otherwise begins to record
  // them, unless a recording has found no memory, and returns false. `num_moves` and Device::num_frees count moves.
  bool ReplayOrRecord(Key key, int64_t num_moves);
  bool is_recording() const { return is_recording_; }
  // Ends the recording, and queues the recorded layers. When there is no memory for the recording, it queues nothing
  // and returns false. Then nothing more is recorded until the older recordings are forgotten. REQUIRES:
  // is_recording().
  bool EndRecording();

  // Forgets all recordings and runs, because a model may be gone.
  void Reset();

 private:
  struct Recording {
    std::unique_ptr<Graph> graph;
    uint64_t last_use;  // A number of num_uses_.
  };

  void Clear();
  void ForgetLeastRecentlyUsed();

  Device* const device_;
  std::map<Key, Recording> graphs_;
  uint64_t num_uses_ = 0;
  std::set<std::tuple<const void*, int, bool>> runs_;
  std::pair<int64_t, int64_t> generation_ = {};  // The numbers of frees and moves when the graphs were recorded.
  bool is_recording_ = false;
  bool is_full_ = false;         // Whether a recording found no memory.
  bool has_complained_ = false;  // The log says that there was no memory.
  Key recorded_key_ = {};
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_LAYER_GRAPHS_H_
