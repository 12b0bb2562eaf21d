#include "kv_manager/engine/revival.h"

#include <algorithm>
#include <utility>

#include "base/num_blocks.h"
#include "scheduler/stop.h"

namespace quire {
namespace {

Revival::Sample ReadSample(const Request& request, const WorkerInventory::Row& row) {
  Revival::Sample sample{.index = static_cast<int>(row.sample_index), .generated = {}, .end = std::nullopt};
  // A plan that was made before the end was known may have drawn one token too many.
  for (auto token = row.tokens.begin() + row.prompt_length; token != row.tokens.end() && !sample.end.has_value();
       ++token) {
    sample.generated.push_back(*token);
    sample.end = StopReason(request, static_cast<int>(sample.generated.size()), *token);
  }
  return sample;
}

// Whether the rows have everything: each sample once, or the one sequence from which all samples are going to be
// forked.
bool AreComplete(const Request& request, const std::vector<Revival::Sample>& samples) {
  if (request.beam.has_value() || request.sampling.num_logprobs >= 0 || request.sampling.num_prompt_logprobs >= 0) {
    return false;
  }
  if (samples.size() == 1 && samples[0].index == 0 && samples[0].generated.empty()) return true;
  for (int i = 0; i < static_cast<int>(samples.size()); ++i) {
    if (samples[i].index != i || samples[i].generated.empty()) return false;
  }
  return static_cast<int>(samples.size()) == request.num_samples;
}

}  // namespace

Revival Revive(Request request, int num_cached_tokens, const RowsOfRequest& rows, const InventoryCheck& check) {
  Revival revival;
  for (const WorkerInventory::Row* row : rows.rows) revival.samples.push_back(ReadSample(request, *row));
  revival.request.num_cached_tokens = std::min(num_cached_tokens, static_cast<int>(request.prompt.size()));
  if (!AreComplete(request, revival.samples)) {
    revival.samples.clear();
    for (const WorkerInventory::Row* row : rows.rows) {
      revival.end_rows.push_back(row->row);
      revival.request.num_computed = std::max(revival.request.num_computed, row->num_computed);
    }
    revival.request.request = std::move(request);
    return revival;
  }
  for (size_t i = 0; i < rows.rows.size(); ++i) {
    const WorkerInventory::Row& row = *rows.rows[i];
    if (revival.samples[i].end.has_value()) {
      revival.request.ended_rows.push_back(row.row);
      continue;
    }
    // The last token must be computed, because its logits are needed.
    const int num_stored = std::min(check.NumStored(row), static_cast<int>(row.tokens.size()) - 1);
    const int num_blocks = NumBlocksFor(num_stored, check.block_size());
    revival.tables.push_back({.sequence = row.sequence,
                              .blocks = {row.blocks.begin(), row.blocks.begin() + num_blocks},
                              .num_stored = num_stored,
                              .tokens = row.tokens,
                              .salt = request.bypass_prefix_cache ? std::nullopt : std::optional(request.cache_salt)});
    revival.request.samples.push_back({.sequence = row.sequence,
                                       .sample_index = revival.samples[i].index,
                                       .row = row.row,
                                       .tokens = row.tokens,
                                       .num_stored = num_stored,
                                       .num_computed = std::min<int>(row.num_computed, row.tokens.size() - 1)});
    revival.next_blocks.insert(revival.next_blocks.end(), row.blocks.begin() + num_blocks, row.blocks.end());
  }
  revival.is_over = revival.request.samples.empty();
  revival.request.request = std::move(request);
  return revival;
}

}  // namespace quire
