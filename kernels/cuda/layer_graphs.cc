// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/layer_graphs.h"

#include <algorithm>
#include <bit>

#include "kernels/cuda/line_writer.h"

namespace quire::cuda {

int LayerGraphs::PaddedTokens(int num_tokens) {
  constexpr int kStep = 8;  // The result is a power of two up to here, and a multiple of it above.
  if (num_tokens > kStep) return CeilDiv(num_tokens, kStep) * kStep;
  return int(std::bit_ceil(unsigned(num_tokens)));
}

bool LayerGraphs::ReplayOrRecord(Key key, int64_t num_moves) {
  const std::pair generation = {device_->num_frees(), num_moves};
  if (generation != generation_) Clear();
  generation_ = generation;
  const auto found = graphs_.find(key);
  if (found != graphs_.end()) {
    device_->Replay(*found->second.graph);
    found->second.last_use = ++num_uses_;
    return true;
  }
  if (is_full_) return false;
  if (graphs_.size() == kMaxGraphs) ForgetLeastRecentlyUsed();
  recorded_key_ = std::move(key);
  is_recording_ = true;
  device_->BeginRecording();
  return false;
}

bool LayerGraphs::EndRecording() {
  is_recording_ = false;
  std::unique_ptr<Graph> graph = device_->EndRecording();
  if (graph == nullptr) {
    is_full_ = true;
    if (!has_complained_) {
      WriteLine(/*is_error=*/false, "no memory to record the layers of a step; they are launched one by one");
    }
    has_complained_ = true;
    return false;
  }
  device_->Replay(*graph);
  graphs_[std::move(recorded_key_)] = {std::move(graph), ++num_uses_};
  return true;
}

void LayerGraphs::Reset() {
  Clear();
  runs_.clear();
}

void LayerGraphs::ForgetLeastRecentlyUsed() {
  const auto oldest = std::min_element(graphs_.begin(), graphs_.end(), [](const auto& a, const auto& b) {
    return a.second.last_use < b.second.last_use;
  });
  device_->Synchronize();  // It may be running.
  graphs_.erase(oldest);
}

void LayerGraphs::Clear() {
  is_full_ = false;
  if (graphs_.empty()) return;
  device_->Synchronize();  // A graph may be running.
  graphs_.clear();
}

}  // namespace quire::cuda
