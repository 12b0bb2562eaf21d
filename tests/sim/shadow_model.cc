// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/shadow_model.h"

#include <algorithm>

#include "tests/sim/reference_beam_search.h"

namespace quire {
namespace {

uint64_t SaltOf(int numerics) {
  return numerics == 0 ? 0 : MixBits(static_cast<uint64_t>(numerics));
}

uint64_t PrefixOf(const Request& request) {
  uint64_t prefix = kEmptyPrefix;
  for (const TokenId token : request.prompt) prefix = ExtendPrefix(prefix, token);
  return prefix;
}

SoloSample DrawSample(const ShadowModel& model, absl::Span<const ModelChange> changes, const Request& request,
                      uint64_t prefix, uint64_t seed) {
  SoloSample sample;
  const std::vector<TokenId>& stops = request.stop_token_ids;
  for (int i = 0; i < request.max_tokens; ++i) {
    const TokenId token = ModelAt(model, changes, i).Sample(prefix, seed);
    sample.tokens.push_back(token);
    if (request.sampling.num_logprobs >= 0) sample.scores.push_back(ScoreToken(prefix, token));
    if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
      sample.reason = FinishReason::kStopToken;
      break;
    }
    prefix = ExtendPrefix(prefix, token);
  }
  return sample;
}

std::vector<float> EmbeddingOf(const Request& request) {
  ShadowEmbedding embedding;
  uint64_t prefix = kEmptyPrefix;
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    prefix = ExtendPrefix(prefix, request.prompt[i]);
    const bool is_last = i + 1 == request.prompt.size();
    if (IsPooled(request.sampling.pooling, static_cast<int>(i), is_last)) embedding.Add(prefix);
  }
  return embedding.Values();
}

}  // namespace

TokenId ShadowModel::Sample(uint64_t prefix_hash, uint64_t seed) const {
  const uint64_t draw = MixBits(prefix_hash + MixBits(seed) + SaltOf(numerics));
  if (draw % 100 < static_cast<uint64_t>(stop_percent)) return kStopToken;
  return 1 + static_cast<TokenId>((draw >> 32) % (vocab_size - 1));
}

// Tokens are visited from a random one on with a stride that reaches each once. The stop token comes last unless it is
// drawn for an earlier rank; then the token of that rank comes last.
std::vector<TokenLogprob> ShadowModel::Candidates(uint64_t prefix_hash, int count) const {
  const uint64_t draw = MixBits(prefix_hash + SaltOf(numerics));
  const int last_rank = vocab_size - 1;
  const int drawn_rank = static_cast<int>(draw % 100) < stop_percent ? static_cast<int>(draw / 100 % 4) : last_rank;
  const int stop_rank = std::min(drawn_rank, last_rank);
  std::vector<TokenLogprob> candidates;
  candidates.reserve(count);
  float logprob = 0;
  for (int rank = 0; rank < std::min(count, vocab_size); ++rank) {
    logprob -= static_cast<float>(1 + MixBits(draw + rank) % 64) / 64;
    const int visited = rank == last_rank ? stop_rank : rank;
    const TokenId token = 1 + static_cast<TokenId>((draw + visited) % (vocab_size - 1));
    candidates.push_back({rank == stop_rank ? kStopToken : token, logprob});
  }
  return candidates;
}

ScoredToken ScoreToken(uint64_t prefix_hash, TokenId token) {
  ScoredToken scored;
  scored.token = token;
  scored.logprob = -static_cast<float>(ExtendPrefix(prefix_hash, token) % 1024) / 64;
  scored.rank = 1;
  return scored;
}

const ShadowModel& ModelAt(const ShadowModel& first, absl::Span<const ModelChange> changes, int num_generated) {
  const ShadowModel* model = &first;
  for (const ModelChange& change : changes) {
    if (change.num_generated <= num_generated) model = &change.model;
  }
  return *model;
}

std::vector<float> ShadowEmbedding::Values() const {
  std::vector<float> values;
  for (int shift = 0; shift < 64; shift += 16) values.push_back(static_cast<float>(digest_ >> shift & 0xffff));
  return values;
}

bool IsPooled(Pooling pooling, int position, bool is_last) {
  switch (pooling) {
    case Pooling::kNone:
      return false;
    case Pooling::kLastToken:
      return is_last;
    case Pooling::kMean:
      return true;
    case Pooling::kFirstToken:
      return position == 0;
  }
  return false;
}

SoloOutput SoloRun(const ShadowModel& model, const Request& request, absl::Span<const ModelChange> changes) {
  SoloOutput output;
  uint64_t prefix = ExtendPrefix(kEmptyPrefix, request.prompt[0]);
  for (size_t i = 1; i < request.prompt.size(); ++i) {
    if (request.sampling.num_prompt_logprobs >= 0) {
      output.prompt_logprobs.push_back(ScoreToken(prefix, request.prompt[i]));
    }
    prefix = ExtendPrefix(prefix, request.prompt[i]);
  }
  if (request.sampling.pooling != Pooling::kNone) {
    output.embedding = EmbeddingOf(request);
    output.samples.push_back({.tokens = {0}});
    return output;
  }
  if (request.beam.has_value()) {
    output.samples =
        ReferenceBeamSearch(model, changes, *request.beam, request.max_tokens, request.stop_token_ids, prefix);
    return output;
  }
  for (int i = 0; i < request.num_samples; ++i) {
    output.samples.push_back(DrawSample(model, changes, request, prefix, request.sampling.seed + i));
  }
  return output;
}

SoloSample SoloRunOfSample(const ShadowModel& model, const Request& request, int sample_index,
                           absl::Span<const ModelChange> changes) {
  if (request.sampling.pooling != Pooling::kNone) return {.tokens = {0}};
  return DrawSample(model, changes, request, PrefixOf(request), request.sampling.seed + sample_index);
}

std::vector<TokenId> SoloTokens(const ShadowModel& model, const Request& request) {
  return SoloRun(model, request).samples.front().tokens;
}

}  // namespace quire
