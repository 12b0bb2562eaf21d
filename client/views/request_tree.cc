// SPDX-License-Identifier: Apache-2.0

#include "client/views/request_tree.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "client/views/block_drawing.h"

namespace quire {
namespace {

constexpr int kMaxIdParts = 24;

absl::Status CheckNode(const v1::DescribeRequestResponse& request, int index) {
  const v1::ForkNode& node = request.tree(index);
  const uint32_t num_sequences = static_cast<uint32_t>(request.sequences_size());
  const auto is_there = [&](uint32_t sequence) { return sequence < num_sequences; };
  if (node.sequences().empty() || !std::all_of(node.sequences().begin(), node.sequences().end(), is_there)) {
    return absl::DataLossError(
        absl::StrCat("node ", index, " has none, or other than the ", num_sequences, " samples of the request"));
  }
  const int num_entries = request.sequences(static_cast<int>(node.sequences(0))).blocks_size();
  if (uint64_t{node.first_block()} + node.num_blocks() > static_cast<uint64_t>(num_entries)) {
    return absl::DataLossError(absl::StrCat("node ", index, " has ", node.num_blocks(), " entries from ",
                                            node.first_block(), " on, its sample's table has ", num_entries));
  }
  if (node.parent() < index) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("node ", index, " has the parent ", node.parent(), ", which is not before it"));
}

// Beams all have the sample index 0, while the indices of samples differ.
bool HasBeams(const v1::DescribeRequestResponse& request) {
  const auto& sequences = request.sequences();
  return sequences.size() > 1 && sequences[0].sample_index() == sequences[1].sample_index();
}

// "beam 2" or "samples 0, 1": the sequences of a node. A beam's number is its place in the list of sequences.
std::string NamesOf(const v1::DescribeRequestResponse& request, const v1::ForkNode& node) {
  const bool has_beams = HasBeams(request);
  const std::string numbers = absl::StrJoin(node.sequences(), ", ", [&](std::string* out, uint32_t sequence) {
    const uint32_t sample = request.sequences(static_cast<int>(sequence)).sample_index();
    absl::StrAppend(out, has_beams ? sequence : sample);
  });
  return absl::StrCat(has_beams ? "beam" : "sample", node.sequences_size() == 1 ? " " : "s ", numbers);
}

// The entries of the node. All its sequences have the same ones.
std::string BlocksOf(const v1::DescribeRequestResponse& request, const v1::ForkNode& node) {
  const auto& table = request.sequences(static_cast<int>(node.sequences(0))).blocks();
  const std::vector<uint32_t> ids(table.begin() + node.first_block(),
                                  table.begin() + node.first_block() + node.num_blocks());
  return DrawIds(ids, kMaxIdParts);
}

void DrawNode(const v1::DescribeRequestResponse& request, int index, int depth, std::string* text) {
  const v1::ForkNode& node = request.tree(index);
  absl::StrAppendFormat(text, "%*s%s: ", 2 * depth, "", NamesOf(request, node));
  if (node.num_blocks() == 0) {
    absl::StrAppend(text, "ends here\n");
  } else {
    absl::StrAppendFormat(text, "entries %d .. %d: %s\n", node.first_block(),
                          node.first_block() + node.num_blocks() - 1, BlocksOf(request, node));
  }
  for (int child = index + 1; child < request.tree_size(); ++child) {
    if (request.tree(child).parent() == index) DrawNode(request, child, depth + 1, text);
  }
}

}  // namespace

absl::StatusOr<std::string> DrawTree(const v1::DescribeRequestResponse& request) {
  std::string text;
  for (int i = 0; i < request.tree_size(); ++i) QUIRE_RETURN_IF_ERROR(CheckNode(request, i));
  for (int i = 0; i < request.tree_size(); ++i) {
    if (request.tree(i).parent() < 0) DrawNode(request, i, 0, &text);
  }
  return text;
}

}  // namespace quire
