// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/samples_validation.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/message_numbers.h"
#include "base/number_text.h"
#include "base/sampling_fields.h"
#include "base/worker_protocol.h"
#include "scheduler/beam_search.h"

namespace quire {
namespace {

// The value, or the nearest one in the range, so that later checks have a sound value.
int CountInRange(uint32_t value, int low, int high, const std::string& field, FieldErrors* errors) {
  if (value < static_cast<uint32_t>(low) || value > static_cast<uint32_t>(high)) {
    errors->Add(field, absl::StrCat("is ", value, ", must be in [", low, ", ", high, "]"));
  }
  return static_cast<int>(std::clamp<uint32_t>(value, low, high));
}

void CheckDrawsDiffer(int num_samples, const std::string& field, const ValidRequest& out, FieldErrors* errors) {
  if (num_samples == 1 || out.request.sampling.temperature > 0) return;
  errors->Add(
      field,
      absl::StrCat(
          "is ", num_samples,
          ", must be 1 at temperature 0, where all samples would be equal; a temperature above 0 makes them differ"));
}

void ReadDrawnSamples(const v1::GenerateRequest& in, ValidRequest* out, FieldErrors* errors) {
  const int n = in.has_n() ? CountInRange(in.n(), 1, kMaxSamples, "n", errors) : 1;
  const int best_of = in.has_best_of() ? CountInRange(in.best_of(), n, kMaxSamples, "best_of", errors) : n;
  CheckDrawsDiffer(best_of, best_of > n ? "best_of" : "n", *out, errors);
  out->request.num_samples = best_of;
  out->num_returned = n;
  if (best_of == n) return;
  SamplingParams& sampling = out->request.sampling;
  sampling.num_logprobs = std::max(sampling.num_logprobs, 0);
  const int64_t num_logprobs = int64_t{out->request.max_tokens} * (1 + sampling.num_logprobs);
  if (out->shows_logprobs && num_logprobs > kMaxPromptLogprobs) {
    errors->Add("logprobs",
                absl::StrCat("is ", sampling.num_logprobs, ", with stopping.max_tokens ", out->request.max_tokens, " ",
                             num_logprobs, " logprobs, which best_of sends in one response; at most ",
                             kMaxPromptLogprobs, " are allowed"));
  }
}

// Values beyond the end of the range at which nothing changes do not count. At temperature 0 nothing is drawn.
bool ChangesDraws(const SamplingField& field, double value) {
  const float neutral = field.neutral();
  return neutral == field.high ? value < neutral : value > field.low && value != neutral;
}

std::string NeutralText(const SamplingField& field) {
  const float neutral = field.neutral();
  const bool is_within = neutral > field.low && neutral < field.high;
  return absl::StrCat(is_within ? NumberText(field.low) + ", " : "", NumberText(neutral));
}

// A beam search draws no tokens, so fields about drawing are mistakes.
void CheckNothingIsDrawn(const v1::GenerateRequest& in, FieldErrors* errors) {
  const v1::SamplingParams& sampling = in.sampling();
  const std::string search = absl::StrCat(" in a beam search (beam.width is ", in.beam().width(), ")");
  if (in.has_n()) {
    errors->Add("n", absl::StrCat("is ", in.n(), search, ", must be unset: beam.num_return_sequences tells how many ",
                                  "hypotheses return"));
  }
  if (in.has_best_of()) {
    errors->Add("best_of", absl::StrCat("is ", in.best_of(), search, ", which draws nothing: must be unset"));
  }
  for (const SamplingField& field : kSamplingFields) {
    if (!field.is_for_draws || !HasNumber(sampling, field.name)) continue;
    const double value = NumberOf(sampling, field.name);
    if (!ChangesDraws(field, value)) continue;
    const std::string text =
        field.counts_tokens() ? absl::StrCat(static_cast<uint32_t>(value)) : NumberText(static_cast<float>(value));
    errors->Add(absl::StrCat("sampling.", field.name),
                absl::StrCat("is ", text, search, ", which draws nothing: must be ", NeutralText(field), " or unset"));
  }
  if (in.logprobs() > 0) {
    errors->Add("logprobs", absl::StrCat("is ", in.logprobs(), search,
                                         ", must be 0: there are no alternatives to a hypothesis' tokens"));
  }
}

EarlyStopping ReadEarlyStopping(const v1::BeamParams& in, FieldErrors* errors) {
  switch (in.early_stopping()) {
    case v1::EARLY_STOPPING_UNSPECIFIED:
    case v1::EARLY_STOPPING_HEURISTIC:
      return EarlyStopping::kHeuristic;
    case v1::EARLY_STOPPING_WHEN_FULL:
      return EarlyStopping::kWhenFull;
    case v1::EARLY_STOPPING_NEVER:
      return EarlyStopping::kNever;
    default:
      errors->Add("beam.early_stopping", absl::StrCat("is ", static_cast<int>(in.early_stopping()),
                                                      ", which is not known to this server; known are 0 .. 3"));
      return EarlyStopping::kHeuristic;
  }
}

void ReadGroups(const v1::BeamParams& in, BeamParams* out, FieldErrors* errors) {
  if (in.has_num_groups()) out->num_groups = CountInRange(in.num_groups(), 1, out->width, "beam.num_groups", errors);
  if (out->width % out->num_groups != 0) {
    errors->Add("beam.num_groups",
                absl::StrCat("is ", out->num_groups, ", must divide beam.width, which is ", out->width));
  }
  out->diversity_penalty = in.diversity_penalty();
  if (out->num_groups == 1 && out->diversity_penalty != 0) {
    errors->Add("beam.diversity_penalty", absl::StrCat("is ", NumberText(out->diversity_penalty),
                                                       ", must be 0 or unset unless beam.num_groups is above 1"));
  } else if (out->num_groups > 1 && !(out->diversity_penalty > 0 && out->diversity_penalty <= kMaxDiversityPenalty)) {
    errors->Add("beam.diversity_penalty",
                absl::StrCat("is ", NumberText(out->diversity_penalty), ", must be in (0, ", kMaxDiversityPenalty,
                             "] with ", out->num_groups, " groups, which would find the same"));
  }
}

// Checks how many candidates per step the search needs. REQUIRES: the parameters are in their ranges.
void CheckCandidates(const BeamParams& beam, const ValidRequest& out, FieldErrors* errors) {
  struct : StopCondition {
    int num_tokens_needed() const override { return 1; }
    bool IsMet(absl::Span<const TokenId>, int) const override { return false; }
  } condition;
  const std::vector<TokenId>& stops = out.request.stop_token_ids;
  const BeamSearch search(beam, /*max_tokens=*/1, stops, out.output.stop.empty() ? nullptr : &condition);
  if (search.num_candidates() <= kMaxCandidates) return;
  errors->Add("beam.width", absl::StrCat("is ", beam.width, ", with ", stops.size(), " stop and end tokens ",
                                         out.output.stop.empty() ? "" : "and stop strings ", search.num_candidates(),
                                         " candidates in a step; at most ", kMaxCandidates, " are allowed"));
}

BeamParams ReadBeam(const v1::BeamParams& in, FieldErrors* errors) {
  BeamParams beam;
  beam.width = CountInRange(in.width(), 1, kMaxBeams, "beam.width", errors);
  if (in.has_length_penalty()) beam.length_penalty = in.length_penalty();
  if (!(beam.length_penalty >= -kMaxLengthPenalty && beam.length_penalty <= kMaxLengthPenalty)) {
    errors->Add("beam.length_penalty", absl::StrCat("is ", NumberText(beam.length_penalty), ", must be in [",
                                                    -kMaxLengthPenalty, ", ", kMaxLengthPenalty, "]"));
  }
  beam.early_stopping = ReadEarlyStopping(in, errors);
  if (in.has_num_return_sequences()) {
    beam.num_return = CountInRange(in.num_return_sequences(), 1, beam.width, "beam.num_return_sequences", errors);
  }
  ReadGroups(in, &beam, errors);
  return beam;
}

}  // namespace

void ReadSamples(const v1::GenerateRequest& in, ValidRequest* out, FieldErrors* errors) {
  if (!in.has_beam()) return ReadDrawnSamples(in, out, errors);
  if (out->request.is_prompt_only) {
    errors->Add("beam", "cannot be set when stopping.max_tokens is 0: there is nothing to search");
  }
  CheckNothingIsDrawn(in, errors);
  const BeamParams beam = ReadBeam(in.beam(), errors);
  if (errors->empty()) CheckCandidates(beam, *out, errors);
  out->request.beam = beam;
  out->num_returned = beam.num_return;
}

}  // namespace quire
