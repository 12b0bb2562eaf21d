#include "kernels/cuda/layer_graphs.h"

#include <bit>

namespace quire::cuda {

int LayerGraphs::PaddedTokens(int num_tokens) {
  constexpr int kStep = 8;  // The result is a power of two up to here, and a multiple of it above.
  if (num_tokens > kStep) return (num_tokens + kStep - 1) / kStep * kStep;
  return int(std::bit_ceil(unsigned(num_tokens)));
}

bool LayerGraphs::ReplayOrRecord(Key key, int64_t num_moves) {
  const std::pair generation = {device_->num_frees(), num_moves};
  if (generation != generation_) Clear();
  generation_ = generation;
  const auto found = graphs_.find(key);
  if (found != graphs_.end()) {
    device_->Replay(*found->second);
    return true;
  }
  if (graphs_.size() == kMaxGraphs) Clear();
  recorded_key_ = std::move(key);
  is_recording_ = true;
  device_->BeginRecording();
  return false;
}

void LayerGraphs::EndRecording() {
  is_recording_ = false;
  std::unique_ptr<Graph>& graph = graphs_[std::move(recorded_key_)];
  graph = device_->EndRecording();
  device_->Replay(*graph);
}

void LayerGraphs::Reset() {
  Clear();
  runs_.clear();
}

void LayerGraphs::Clear() {
  if (graphs_.empty()) return;
  device_->Synchronize();  // A graph may be running.
  graphs_.clear();
}

}  // namespace quire::cuda
