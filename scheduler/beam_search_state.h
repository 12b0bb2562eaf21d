// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_BEAM_SEARCH_STATE_H_
#define QUIRE_SCHEDULER_BEAM_SEARCH_STATE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/ids.h"
#include "scheduler/request.h"
#include "scheduler/step_plan.h"

namespace quire {

// The state of a beam search, without its parameters. A search that is made from the same parameters and this value
// makes the same decisions from here on. A value.
struct BeamSearchState {
  static constexpr int kRoot = -1;     // The empty list of tokens.
  static constexpr int kDropped = -2;  // See Finished.

  // The list of tokens of an earlier node with one more token. Lists share their beginnings.
  struct Node {
    int parent;  // The index of an earlier node, or kRoot.
    TokenLogprob token;

    bool operator==(const Node&) const = default;
  };
  struct Beam {
    int node;
    float sum;  // The sum of its logprobs, less its diversity penalties.

    bool operator==(const Beam&) const = default;
  };
  struct Finished {
    int node;  // kDropped when the hypothesis cannot be returned but still has to be beaten by others.
    float score;
    FinishReason reason;

    bool operator==(const Finished&) const = default;
  };
  struct Group {
    std::vector<Beam> beams;         // Best first.
    std::vector<Finished> finished;  // Best first.
    bool is_done = false;

    bool operator==(const Group&) const = default;
  };

  int num_generated = 0;    // Tokens of each live beam.
  int agreed_node = kRoot;  // The list that may be streamed.
  std::vector<Node> nodes;  // Each is part of a beam or of a hypothesis.
  std::vector<Group> groups;
  std::vector<SequenceId> sequences;  // All live beams, group by group.

  bool operator==(const BeamSearchState&) const = default;

  // The tokens of a node's list, the first one first.
  std::vector<TokenLogprob> TokensOf(int node) const;
  // The nodes of all live beams, group by group.
  std::vector<int> LiveNodes() const;
};

// About 8 bytes per node.
std::string EncodeBeamSearchState(const BeamSearchState& state);
// Returns nothing unless a beam search with the parameters of this request can be in this state. REQUIRES: request.beam
// is set and valid.
std::optional<BeamSearchState> DecodeBeamSearchState(absl::string_view bytes, const Request& request, int vocab_size);
// The number of generated tokens that the state names first, or nothing. It does not check the rest.
std::optional<int> NumGeneratedOf(absl::string_view bytes);

}  // namespace quire

#endif  // QUIRE_SCHEDULER_BEAM_SEARCH_STATE_H_
