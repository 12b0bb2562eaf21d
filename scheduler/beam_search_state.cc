// SPDX-License-Identifier: Apache-2.0

#include "scheduler/beam_search_state.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>

namespace quire {
namespace {

constexpr int kBitsPerByte = 7;  // Bits of a number in one byte. The eighth bit says that more bytes follow.

class Writer {
 public:
  void Number(uint64_t value) {
    for (; value >= (1 << kBitsPerByte); value >>= kBitsPerByte) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }
  void Float(float value) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    for (int i = 0; i < 4; ++i) bytes_.push_back(static_cast<char>(bits >> (8 * i)));
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// After the first number that is missing or too large, everything that it reads is 0.
class Reader {
 public:
  explicit Reader(absl::string_view bytes) : bytes_(bytes) {}

  uint64_t Number(uint64_t max) {
    uint64_t value = 0;
    for (int shift = 0; !bytes_.empty() && shift < 64; shift += kBitsPerByte) {
      const auto byte = static_cast<uint8_t>(bytes_.front());
      bytes_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) != 0) continue;
      if (value > max) break;
      return value;
    }
    return Fail();
  }
  int Int(int max) { return max < 0 ? Fail() : static_cast<int>(Number(static_cast<uint64_t>(max))); }
  // The number of items that follow, each of which has at least a byte.
  int Count(int max) { return Int(std::min<int64_t>(max, static_cast<int64_t>(bytes_.size()))); }
  float Float() {
    if (bytes_.size() < 4) return static_cast<float>(Fail());
    uint32_t bits = 0;
    for (int i = 0; i < 4; ++i) bits |= uint32_t{static_cast<uint8_t>(bytes_[i])} << (8 * i);
    bytes_.remove_prefix(4);
    float value = 0;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }
  float FiniteFloat() {
    const float value = Float();
    return std::isfinite(value) ? value : static_cast<float>(Fail());
  }
  bool is_ok() const { return is_ok_; }
  bool is_at_end() const { return is_ok_ && bytes_.empty(); }

 private:
  int Fail() {
    is_ok_ = false;
    bytes_ = {};
    return 0;
  }

  absl::string_view bytes_;
  bool is_ok_ = true;
};

constexpr FinishReason kReasons[] = {FinishReason::kLength, FinishReason::kStopToken};

// Returns whether the parts of a state that has been read fit together.
bool IsConsistent(const BeamSearchState& state, int num_return) {
  std::vector<int> length(state.nodes.size());
  std::vector<bool> is_agreed(state.nodes.size());  // Begins with the agreed tokens.
  std::vector<bool> is_used(state.nodes.size());
  for (size_t i = 0; i < state.nodes.size(); ++i) {
    const int parent = state.nodes[i].parent;
    length[i] = parent == BeamSearchState::kRoot ? 1 : length[parent] + 1;
    is_agreed[i] = static_cast<int>(i) == state.agreed_node || state.agreed_node == BeamSearchState::kRoot ||
                   (parent != BeamSearchState::kRoot && is_agreed[parent]);
    if (parent != BeamSearchState::kRoot) is_used[parent] = true;
  }
  size_t num_beams = 0;
  for (const BeamSearchState::Group& group : state.groups) {
    if (group.is_done != group.beams.empty()) return false;
    num_beams += group.beams.size();
    for (const BeamSearchState::Beam& beam : group.beams) {
      if (length[beam.node] != state.num_generated || !is_agreed[beam.node]) return false;
      is_used[beam.node] = true;
    }
    for (size_t i = 0; i < group.finished.size(); ++i) {
      const BeamSearchState::Finished& finished = group.finished[i];
      const bool is_dropped = finished.node == BeamSearchState::kDropped;
      if (is_dropped != (i >= static_cast<size_t>(num_return))) return false;
      if (i > 0 && finished.score > group.finished[i - 1].score) return false;
      if (is_dropped) continue;
      if (length[finished.node] > state.num_generated || !is_agreed[finished.node]) return false;
      is_used[finished.node] = true;
    }
  }
  std::vector<SequenceId> ids = state.sequences;
  std::sort(ids.begin(), ids.end());
  return num_beams > 0 && num_beams == ids.size() && std::adjacent_find(ids.begin(), ids.end()) == ids.end() &&
         std::all_of(is_used.begin(), is_used.end(), [](bool is) { return is; });
}

}  // namespace

std::vector<TokenLogprob> BeamSearchState::TokensOf(int node) const {
  std::vector<TokenLogprob> tokens;
  for (; node != kRoot; node = nodes[node].parent) tokens.push_back(nodes[node].token);
  std::reverse(tokens.begin(), tokens.end());
  return tokens;
}

std::vector<int> BeamSearchState::LiveNodes() const {
  std::vector<int> live;
  for (const Group& group : groups) {
    for (const Beam& beam : group.beams) live.push_back(beam.node);
  }
  return live;
}

std::string EncodeBeamSearchState(const BeamSearchState& state) {
  Writer writer;
  writer.Number(state.num_generated);
  writer.Number(state.nodes.size());
  for (size_t i = 0; i < state.nodes.size(); ++i) {
    const BeamSearchState::Node& node = state.nodes[i];
    writer.Number(i - static_cast<uint64_t>(int64_t{node.parent}));  // At least 1. The root is before all nodes.
    writer.Number(static_cast<uint64_t>(node.token.token));
    writer.Float(node.token.logprob);
  }
  writer.Number(static_cast<uint64_t>(state.agreed_node + 1));
  for (const BeamSearchState::Group& group : state.groups) {
    writer.Number(group.is_done);
    writer.Number(group.beams.size());
    for (const BeamSearchState::Beam& beam : group.beams) {
      writer.Number(beam.node);
      writer.Float(beam.sum);
    }
    writer.Number(group.finished.size());
    for (const BeamSearchState::Finished& finished : group.finished) {
      writer.Number(static_cast<uint64_t>(finished.node == BeamSearchState::kDropped ? 0 : finished.node + 1));
      writer.Float(finished.score);
      writer.Number(finished.reason == FinishReason::kStopToken);
    }
  }
  for (const SequenceId sequence : state.sequences) writer.Number(Value(sequence));
  return writer.Take();
}

std::optional<BeamSearchState> DecodeBeamSearchState(absl::string_view bytes, const Request& request, int vocab_size) {
  const BeamParams& params = *request.beam;
  const int group_width = params.width / params.num_groups;
  Reader reader(bytes);
  BeamSearchState state;
  // A search whose beams have all their tokens is over.
  state.num_generated = reader.Int(request.max_tokens - 1);
  const int num_nodes = reader.Count(std::numeric_limits<int>::max());
  for (int i = 0; i < num_nodes && reader.is_ok(); ++i) {
    const int distance = reader.Int(i + 1);
    if (distance == 0) return std::nullopt;
    const TokenId token = reader.Int(vocab_size - 1);
    state.nodes.push_back({i - distance, {token, reader.FiniteFloat()}});
  }
  state.agreed_node = reader.Int(num_nodes) - 1;
  for (int i = 0; i < params.num_groups && reader.is_ok(); ++i) {
    BeamSearchState::Group& group = state.groups.emplace_back();
    group.is_done = reader.Int(1) == 1;
    for (int left = reader.Count(group_width); left > 0 && reader.is_ok(); --left) {
      const int node = reader.Int(num_nodes - 1);
      group.beams.push_back({node, reader.FiniteFloat()});
    }
    for (int left = reader.Count(group_width); left > 0 && reader.is_ok(); --left) {
      const int node = reader.Int(num_nodes);
      const float score = reader.Float();
      if (std::isnan(score)) return std::nullopt;
      group.finished.push_back({node == 0 ? BeamSearchState::kDropped : node - 1, score, kReasons[reader.Int(1)]});
    }
  }
  for (size_t left = state.LiveNodes().size(); left > 0 && reader.is_ok(); --left) {
    state.sequences.push_back(SequenceId{reader.Number(std::numeric_limits<uint64_t>::max())});
  }
  if (!reader.is_at_end() || state.num_generated == 0 || !IsConsistent(state, params.num_return)) return std::nullopt;
  return state;
}

std::optional<int> NumGeneratedOf(absl::string_view bytes) {
  Reader reader(bytes);
  const int num_generated = reader.Int(std::numeric_limits<int>::max());
  return reader.is_ok() ? std::optional(num_generated) : std::nullopt;
}

}  // namespace quire
