// SPDX-License-Identifier: Apache-2.0

#include "worker/start_check.h"

#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/message_numbers.h"
#include "base/number_text.h"
#include "base/status.h"
#include "base/worker_protocol.h"
#include "kernels/sampling.h"

namespace quire {
namespace {

using Ids = google::protobuf::RepeatedField<uint32_t>;

constexpr float kMax = std::numeric_limits<float>::max();

// Checks the fields of a start. Errors name the field.
class Checker {
 public:
  Checker(absl::string_view path, const WorkerLimits& limits) : path_(path), limits_(limits) {}

  absl::Status Tokens(absl::string_view field, const Ids& ids) const {
    for (int i = 0; i < ids.size(); ++i) {
      if (ids[i] >= static_cast<uint32_t>(limits_.vocab_size)) {
        return Bad(field, "[", i, "] is ", ids[i], ", the vocabulary has ", limits_.vocab_size, " tokens");
      }
    }
    return absl::OkStatus();
  }

  // The condition is negated so that NaN is outside every range.
  absl::Status Range(absl::string_view field, float value, float low, float high) const {
    if (value >= low && value <= high) return absl::OkStatus();
    return Bad(field, " is ", NumberText(value), ", it must be ", LimitText(low), " to ", LimitText(high));
  }

  absl::Status AboveZero(absl::string_view field, float value, float high) const {
    if (value > 0 && value <= high) return absl::OkStatus();
    return Bad(field, " is ", NumberText(value), ", it must be above 0 and at most ", LimitText(high));
  }

  absl::Status AtMost(absl::string_view field, uint64_t value, uint64_t limit) const {
    if (value <= limit) return absl::OkStatus();
    return Bad(field, " is ", value, ", the limit is ", limit);
  }

  absl::Status NumBytes(absl::string_view field, absl::string_view bytes, size_t limit) const {
    if (bytes.size() <= limit) return absl::OkStatus();
    return Bad(field, " has ", bytes.size(), " bytes, the limit is ", limit);
  }

  template <typename... Parts>
  absl::Status Bad(const Parts&... parts) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ".", parts...));
  }

 private:
  const absl::string_view path_;
  const WorkerLimits& limits_;
};

absl::Status CheckTokens(const v1::SequenceStart& start, const WorkerLimits& limits, const Checker& check) {
  if (start.token_ids_size() < 1) return check.Bad("token_ids is empty, a sequence needs at least 1 token");
  if (start.token_ids_size() > limits.max_context_tokens) {
    return check.Bad("token_ids has ", start.token_ids_size(), " tokens, the model's context is ",
                     limits.max_context_tokens);
  }
  if (start.prompt_length() < 1 || start.prompt_length() > static_cast<uint32_t>(start.token_ids_size())) {
    return check.Bad("prompt_length is ", start.prompt_length(), ", it must be 1 to the number of tokens, ",
                     start.token_ids_size());
  }
  return check.Tokens("token_ids", start.token_ids());
}

absl::Status CheckScores(absl::string_view field, const v1::ScoreColumns& scores, uint32_t num_alternatives_plus_one,
                         int limit, const Checker& check) {
  const int count = scores.logprobs_size();
  const int max_count = num_alternatives_plus_one == 0 ? 0 : limit;
  if (count > max_count) return check.Bad(field, ".logprobs has ", count, " entries, the limit is ", max_count);
  uint64_t num_top = 0;
  for (const uint32_t length : scores.top_lengths()) num_top += length;
  if (scores.ranks_size() != count || scores.top_lengths_size() != count ||
      static_cast<uint64_t>(scores.top_token_ids_size()) != num_top ||
      static_cast<uint64_t>(scores.top_logprobs_size()) != num_top) {
    return check.Bad(field, " has columns that do not fit together");
  }
  if (num_top > uint64_t{num_alternatives_plus_one} * static_cast<uint64_t>(count)) {
    return check.Bad(field, ".top_lengths add up to ", num_top, ", which is more than the row reports");
  }
  return check.Tokens(absl::StrCat(field, ".top_token_ids"), scores.top_token_ids());
}

absl::Status CheckNumbers(const v1::RowSampling& sampling, const Checker& check) {
  for (const SamplingNumber& number : kSamplingNumbers) {
    const std::string field = absl::StrCat("sampling.", number.name);
    const auto value = static_cast<float>(NumberOf(sampling, number.name));
    QUIRE_RETURN_IF_ERROR(number.has_low ? check.Range(field, value, number.low, number.high)
                                         : check.AboveZero(field, value, number.high));
  }
  QUIRE_RETURN_IF_ERROR(
      check.AtMost("sampling.num_logprobs_plus_one", sampling.num_logprobs_plus_one(), kMaxTopLogprobs + 1));
  QUIRE_RETURN_IF_ERROR(check.AtMost("sampling.num_prompt_logprobs_plus_one", sampling.num_prompt_logprobs_plus_one(),
                                     kMaxTopLogprobs + 1));
  return check.AtMost("sampling.num_candidates", sampling.num_candidates(), uint32_t{kMaxCandidates});
}

absl::Status CheckBiases(const v1::RowSampling& sampling, const Checker& check) {
  if (sampling.biases_size() != sampling.bias_token_ids_size()) {
    return check.Bad("sampling.biases has ", sampling.biases_size(), " entries, bias_token_ids has ",
                     sampling.bias_token_ids_size());
  }
  for (float bias : sampling.biases()) QUIRE_RETURN_IF_ERROR(check.Range("sampling.biases", bias, -kMax, kMax));
  return check.Tokens("sampling.bias_token_ids", sampling.bias_token_ids());
}

absl::Status CheckBadWords(const v1::RowSampling& sampling, const Checker& check) {
  uint64_t sum = 0;
  for (uint32_t length : sampling.bad_word_lengths()) {
    if (length < 1) return check.Bad("sampling.bad_word_lengths contains 0, a bad word has at least 1 token");
    sum += length;
  }
  if (sum != static_cast<uint64_t>(sampling.bad_word_token_ids_size())) {
    return check.Bad("sampling.bad_word_lengths add up to ", sum, ", bad_word_token_ids has ",
                     sampling.bad_word_token_ids_size(), " entries");
  }
  return check.Tokens("sampling.bad_word_token_ids", sampling.bad_word_token_ids());
}

absl::Status CheckPooling(const v1::SequenceStart& start, const Checker& check) {
  const v1::RowSampling& sampling = start.sampling();
  if (!v1::PoolingKind_IsValid(sampling.pooling())) {
    return check.Bad("sampling.pooling is ", static_cast<int>(sampling.pooling()), ", the limit is ",
                     static_cast<int>(v1::PoolingKind_MAX));
  }
  if (sampling.pooling() == v1::POOLING_KIND_UNSPECIFIED) return absl::OkStatus();
  if (sampling.num_candidates() > 0 || sampling.num_logprobs_plus_one() > 0 ||
      sampling.num_prompt_logprobs_plus_one() > 0 || sampling.has_guided()) {
    return check.Bad("sampling.pooling is set, so candidates, logprobs and a guide must not be");
  }
  if (start.prompt_length() != static_cast<uint32_t>(start.token_ids_size())) {
    return check.Bad("sampling.pooling is set, so prompt_length must be the number of tokens, ", start.token_ids_size(),
                     ", and not ", start.prompt_length());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSequenceStart(const v1::SequenceStart& start, const WorkerLimits& limits, absl::string_view path) {
  const Checker check(path, limits);
  const v1::RowSampling& sampling = start.sampling();
  QUIRE_RETURN_IF_ERROR(CheckTokens(start, limits, check));
  QUIRE_RETURN_IF_ERROR(CheckNumbers(sampling, check));
  QUIRE_RETURN_IF_ERROR(CheckBiases(sampling, check));
  QUIRE_RETURN_IF_ERROR(CheckBadWords(sampling, check));
  QUIRE_RETURN_IF_ERROR(CheckPooling(start, check));
  QUIRE_RETURN_IF_ERROR(check.NumBytes("cache_root", start.cache_root(), kMaxCacheRootBytes));
  QUIRE_RETURN_IF_ERROR(check.NumBytes("sampling.guide_owner", sampling.guide_owner(), kMaxGuideOwnerBytes));
  QUIRE_RETURN_IF_ERROR(check.NumBytes("record", start.record(), kMaxRecordBytes));
  QUIRE_RETURN_IF_ERROR(CheckScores("scores", start.scores(), sampling.num_logprobs_plus_one(),
                                    start.token_ids_size() - static_cast<int>(start.prompt_length()), check));
  QUIRE_RETURN_IF_ERROR(CheckScores("prompt_scores", start.prompt_scores(), sampling.num_prompt_logprobs_plus_one(),
                                    static_cast<int>(start.prompt_length()) - 1, check));
  QUIRE_RETURN_IF_ERROR(check.Tokens("sampling.allowed_token_ids", sampling.allowed_token_ids()));
  return check.Tokens("sampling.min_tokens_masked_ids", sampling.min_tokens_masked_ids());
}

}  // namespace quire
