// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/revival.h"

#include <algorithm>
#include <utility>

#include "base/num_blocks.h"
#include "scheduler/beam_search.h"
#include "scheduler/stop.h"

namespace quire {
namespace {

// See HasStopString.
constexpr size_t kMaxLateTokens = 32;

// A row with which the request continues.
struct LiveRow {
  const WorkerInventory::Row* row;
  int num_generated;  // The tokens behind the prompt, up to the end.
  std::optional<FinishReason> end = std::nullopt;
};

// Returns where the numerics of the row have changed, as its record says.
std::optional<NumericsChange> ChangeOf(const WorkerInventory::Row& row) {
  const std::optional<RowRecord> record = ReadRowRecord(row.record);
  return record.has_value() ? record->numerics_change : std::nullopt;
}

std::optional<int> FirstChange(const WorkerInventory::Row& row) {
  const std::optional<NumericsChange> change = ChangeOf(row);
  return change.has_value() ? std::optional(change->first) : std::nullopt;
}

// Returns whether the row has all tokens that it was started with when its numerics changed.
bool HasTokensOfStart(const WorkerInventory::Row& row) {
  const std::optional<NumericsChange> change = ChangeOf(row);
  return !change.has_value() ||
         (change->first >= row.prompt_length && change->last <= static_cast<int>(row.tokens.size()));
}

// Returns the greatest position at which the numerics of a row have changed.
std::optional<int> LastChange(const RowsOfRequest& rows) {
  std::optional<int> last;
  if (rows.record.numerics_change.has_value()) last = rows.record.numerics_change->last;
  for (const WorkerInventory::Row* row : rows.rows) {
    const std::optional<NumericsChange> change = ChangeOf(*row);
    if (change.has_value()) last = std::max(last.value_or(0), change->last);
  }
  return last;
}

bool HasScores(const Request& request) {
  return request.sampling.num_logprobs >= 0 && !request.beam.has_value();
}

LiveRow ReadSample(const Request& request, const WorkerInventory::Row& row) {
  LiveRow live{.row = &row, .num_generated = 0};
  // A plan that was made before the end was known may have drawn one token too many.
  for (auto token = row.tokens.begin() + row.prompt_length; token != row.tokens.end() && !live.end.has_value();
       ++token) {
    live.end = StopReason(request, ++live.num_generated, *token);
  }
  return live;
}

// The rows have everything: each sample once, or the one sequence from which all samples or beams are going to be
// forked.
bool AreComplete(const Request& request, const std::vector<LiveRow>& rows) {
  if (rows.size() == 1 && rows[0].row->sample_index == 0 && rows[0].num_generated == 0) return true;
  if (request.beam.has_value()) return false;
  for (size_t i = 0; i < rows.size(); ++i) {
    const LiveRow& live = rows[i];
    if (live.row->sample_index != i || live.num_generated == 0) return false;
    if (HasScores(request) && static_cast<int>(live.row->scores.size()) < live.num_generated) return false;
  }
  return static_cast<int>(rows.size()) == request.num_samples;
}

std::vector<LiveRow> ReadSamples(const Request& request, const RowsOfRequest& rows) {
  std::vector<LiveRow> samples;
  for (const WorkerInventory::Row* row : rows.rows) samples.push_back(ReadSample(request, *row));
  if (!AreComplete(request, samples)) samples.clear();
  return samples;
}

// The rows of the live beams, in the order of the search. None when one of them has other tokens or is missing.
std::vector<LiveRow> ReadBeams(const RowsOfRequest& rows, const BeamSearchState& search) {
  std::vector<LiveRow> beams;
  const std::vector<int> nodes = search.LiveNodes();
  for (size_t i = 0; i < nodes.size(); ++i) {
    const std::vector<TokenLogprob> tokens = search.TokensOf(nodes[i]);
    const auto is_row = [&](const WorkerInventory::Row* row) {
      return row->sequence == search.sequences[i] && row->sample_index == 0 &&
             std::equal(tokens.begin(), tokens.end(), row->tokens.begin() + row->prompt_length, row->tokens.end(),
                        [](const TokenLogprob& token, TokenId other) { return token.token == other; });
    };
    const auto found = std::find_if(rows.rows.begin(), rows.rows.end(), is_row);
    if (found == rows.rows.end()) return {};
    beams.push_back({.row = *found, .num_generated = search.num_generated});
  }
  return beams;
}

// Returns what the stream was told of the hypotheses.
std::vector<Revival::Sample> AgreedHypotheses(const Request& request, const BeamSearchState& search,
                                              std::optional<int> numerics_changed_at) {
  std::vector<ScoredToken> agreed;
  for (const TokenLogprob& token : search.TokensOf(search.agreed_node)) {
    agreed.push_back({.token = token.token,
                      .logprob = request.sampling.num_logprobs >= 0 ? token.logprob : 0,
                      .rank = 0,
                      .top = {}});
  }
  std::vector<Revival::Sample> hypotheses;
  for (int rank = 0; rank < request.beam->num_return; ++rank) {
    hypotheses.push_back({rank, agreed, std::nullopt, numerics_changed_at});
  }
  return hypotheses;
}

std::vector<ScoredToken> GeneratedBy(const Request& request, const LiveRow& live) {
  if (HasScores(request)) {
    return {live.row->scores.begin(), live.row->scores.begin() + live.num_generated};
  }
  std::vector<ScoredToken> generated;
  for (int i = 0; i < live.num_generated; ++i) {
    const TokenId token = live.row->tokens[live.row->prompt_length + i];
    generated.push_back({.token = token, .logprob = 0, .rank = 0, .top = {}});
  }
  return generated;
}

// Returns whether the rows report what the scheduler will expect of them. A row that reports candidates reports no
// logprobs of tokens, because it draws none. No row reports more than the whole vocabulary.
bool AgreeOnReports(const Request& request, int vocab_size, const std::vector<LiveRow>& rows) {
  int num_candidates = 0;
  if (request.beam.has_value()) {
    const BeamSearch search(*request.beam, request.max_tokens, request.stop_token_ids, request.beam_stop.get());
    num_candidates = std::min(search.num_candidates(), vocab_size);
  }
  const int num_logprobs = request.beam.has_value() ? -1 : std::min(request.sampling.num_logprobs, vocab_size);
  const int num_prompt_logprobs = std::min(request.sampling.num_prompt_logprobs, vocab_size);
  return std::all_of(rows.begin(), rows.end(), [&](const LiveRow& live) {
    return live.row->num_candidates == num_candidates && live.row->num_logprobs == num_logprobs &&
           live.row->num_prompt_logprobs == num_prompt_logprobs;
  });
}

// The scores of the prompt from position 1 on, as far as the rows have them.
std::vector<ScoredToken> PromptScores(const Request& request, int vocab_size, const RowsOfRequest& rows) {
  const std::vector<ScoredToken>* longest = nullptr;
  for (const WorkerInventory::Row* row : rows.rows) {
    const bool is_as_requested = row->num_prompt_logprobs == std::min(request.sampling.num_prompt_logprobs, vocab_size);
    if (!is_as_requested) continue;
    if (longest == nullptr || row->prompt_scores.size() > longest->size()) longest = &row->prompt_scores;
  }
  if (request.sampling.num_prompt_logprobs < 0 || longest == nullptr) return {};
  return *longest;
}

// Returns whether the text of the sample has a stop string at one of its last tokens. The manager before may have let
// the sample run on for a few steps, until a text thread had found it.
bool HasStopString(const LiveRow& live, const StopCondition& stop_strings) {
  const absl::Span<const TokenId> tokens = absl::MakeConstSpan(live.row->tokens).subspan(live.row->prompt_length);
  const size_t first = tokens.size() > kMaxLateTokens ? tokens.size() - kMaxLateTokens : 0;
  for (size_t end = first + 1; end <= tokens.size(); ++end) {
    const size_t num_last = std::min<size_t>(end, stop_strings.num_tokens_needed());
    if (stop_strings.IsMet(tokens.subspan(end - num_last, num_last), static_cast<int>(end))) return true;
  }
  return false;
}

}  // namespace

bool IsOver(const Request& request, const RowsOfRequest& rows, const StopCondition* stop_strings) {
  if (request.beam.has_value()) return false;
  const std::vector<LiveRow> samples = ReadSamples(request, rows);
  return !samples.empty() && std::all_of(samples.begin(), samples.end(), [&](const LiveRow& live) {
    const bool has_end = live.end.has_value() || (stop_strings != nullptr && HasStopString(live, *stop_strings));
    return has_end && HasTokensOfStart(*live.row);
  });
}

Revival Revive(Request request, int vocab_size, const RowsOfRequest& rows, const InventoryCheck& check, bool is_over) {
  Revival revival;
  const int num_prompt_tokens = static_cast<int>(request.prompt.size());
  revival.request.num_cached_tokens = std::min(rows.record.num_cached_tokens, num_prompt_tokens);
  revival.request.num_moves = rows.record.num_moves;
  std::vector<LiveRow> live;
  if (rows.search.empty()) {
    live = ReadSamples(request, rows);
  } else if (request.beam.has_value()) {
    revival.request.search = DecodeBeamSearchState(rows.search, request, vocab_size);
    if (revival.request.search.has_value()) live = ReadBeams(rows, *revival.request.search);
  }
  std::vector<ScoredToken> prompt_scores = PromptScores(request, vocab_size, rows);
  const bool wants_prompt_scores = request.sampling.num_prompt_logprobs >= 0;
  const bool has_generated = !live.empty() && live[0].num_generated > 0;
  const std::optional<int> last_change = LastChange(rows);
  const bool lacks_prompt_scores =
      wants_prompt_scores && has_generated && static_cast<int>(prompt_scores.size()) < num_prompt_tokens - 1;
  const bool lacks_tokens =
      std::any_of(live.begin(), live.end(), [](const LiveRow& sample) { return !HasTokensOfStart(*sample.row); });
  if (live.empty() || lacks_tokens || lacks_prompt_scores || !AgreeOnReports(request, vocab_size, live)) {
    revival.request.search.reset();
    revival.is_lost = last_change.has_value() && *last_change > num_prompt_tokens;
    revival.has_changed_numerics = revival.request.has_changed_numerics = last_change.has_value();
    for (const WorkerInventory::Row* row : rows.rows) {
      revival.end_rows.push_back(row->row);
      revival.request.num_computed = std::max(revival.request.num_computed, row->num_computed);
    }
    revival.request.request = std::move(request);
    return revival;
  }
  for (LiveRow& sample : live) {
    if (is_over && !sample.end.has_value()) sample.end = FinishReason::kStopToken;
  }
  if (revival.request.search.has_value()) {
    revival.samples = AgreedHypotheses(request, *revival.request.search, FirstChange(*live[0].row));
  } else {
    for (const LiveRow& sample : live) {
      revival.samples.push_back({static_cast<int>(sample.row->sample_index), GeneratedBy(request, sample), sample.end,
                                 has_generated ? FirstChange(*sample.row) : std::nullopt});
    }
    revival.has_changed_numerics = !has_generated && last_change.has_value();
  }
  std::vector<RowId> used;
  for (const LiveRow& sample : live) {
    const WorkerInventory::Row& row = *sample.row;
    used.push_back(row.row);
    if (sample.end.has_value()) {
      revival.request.ended_rows.push_back(row.row);
      continue;
    }
    // The last token must be computed, because its logits are needed. A token of the prompt whose score is not known
    // must come after tokens that are computed again.
    // Under another root than the request has, the cache may have the same blocks for other requests.
    const std::optional<std::string> salt =
        request.bypass_prefix_cache ? std::nullopt : std::optional<std::string>(request.cache_salt);
    int num_stored =
        check.SaltOf(row) == salt ? std::min(check.NumStored(row), static_cast<int>(row.tokens.size()) - 1) : 0;
    if (wants_prompt_scores) {
      const int num_known = static_cast<int>(prompt_scores.size());
      if (num_known < num_prompt_tokens - 1) num_stored = std::min(num_stored, num_known);
    }
    const int num_blocks = NumBlocksFor(num_stored, check.block_size());
    revival.tables.push_back({.sequence = row.sequence,
                              .blocks = {row.blocks.begin(), row.blocks.begin() + num_blocks},
                              .num_stored = num_stored,
                              .tokens = row.tokens,
                              .salt = salt});
    revival.request.samples.push_back({.sequence = row.sequence,
                                       .sample_index = static_cast<int>(row.sample_index),
                                       .row = row.row,
                                       .tokens = row.tokens,
                                       .num_stored = num_stored,
                                       .num_computed = std::min<int>(row.num_computed, row.tokens.size() - 1),
                                       .scores = HasScores(request) ? row.scores : std::vector<ScoredToken>(),
                                       .numerics_change = ChangeOf(row)});
    // A search that has ended looks like one that makes its last step, and other sequences may have got its blocks.
    if (revival.request.search.has_value()) continue;
    revival.next_blocks.insert(revival.next_blocks.end(), row.blocks.begin() + num_blocks, row.blocks.end());
  }
  // Beams that have died.
  for (const WorkerInventory::Row* row : rows.rows) {
    if (std::find(used.begin(), used.end(), row->row) == used.end()) revival.end_rows.push_back(row->row);
  }
  revival.request.prompt_scores = std::move(prompt_scores);
  revival.is_over = revival.request.samples.empty();
  revival.request.request = std::move(request);
  return revival;
}

RestoredCopy CopyOf(const Revival& revival, int num_outputs) {
  RestoredCopy copy{
      .num_moves = revival.request.num_moves, .num_tokens = std::vector<int>(num_outputs), .is_over = revival.is_over};
  for (const Revival::Sample& sample : revival.samples) {
    copy.num_tokens[sample.index] = static_cast<int>(sample.generated.size());
  }
  return copy;
}

}  // namespace quire
