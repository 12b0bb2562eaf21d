// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/continuation.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kv_manager/text/output_text.h"
#include "scheduler/stop.h"

namespace quire {
namespace {

// Reads the tokens of one sample, and finds out whether they end it. Returns false on an error.
bool ReadTokens(const v1::ContinuedSample& in, const ServedModel& model, const ValidRequest& request,
                const std::string& path, ValidRequest::Continued* out, bool* is_ended, FieldErrors* errors) {
  const std::string field = path + "token_ids";
  const int max_tokens = request.request.is_prompt_only ? 0 : request.request.max_tokens;
  if (in.token_ids_size() > max_tokens) {
    errors->Add(field, absl::StrCat("has ", in.token_ids_size(), " tokens, stopping.max_tokens is ", max_tokens));
    return false;
  }
  OutputText text(model.tokenizer.get(), request.request.prompt, request.output, /*prompt_text=*/nullptr);
  *is_ended = false;
  for (int i = 0; i < in.token_ids_size(); ++i) {
    const uint32_t id = in.token_ids(i);
    if (*is_ended) {
      errors->Add(absl::StrCat(field, "[", i, "]"), "follows a token that ends the sample");
      return false;
    }
    if (id >= static_cast<uint32_t>(model.vocab_size)) {
      errors->Add(absl::StrCat(field, "[", i, "]"),
                  absl::StrCat("is ", id, ", the vocabulary has ", model.vocab_size, " tokens"));
      return false;
    }
    const TokenId token = static_cast<TokenId>(id);
    out->tokens.push_back(token);
    out->end = StopReason(request.request, i + 1, token);
    std::string delta;
    *is_ended = text.Append(token, &delta).has_value() || out->end.has_value();
  }
  if (in.has_finish() && !*is_ended) {
    errors->Add(path + "has_finish",
                absl::StrCat("is true, the ", in.token_ids_size(), " tokens do not end the sample"));
    return false;
  }
  out->has_finish = in.has_finish();
  return true;
}

// Reports what a request that is continued may not ask for. Returns false when there is something.
bool CheckOtherFields(const v1::GenerateRequest& in, const ValidRequest& request, FieldErrors* errors) {
  const int num_entries = in.continue_from_size();
  if (in.has_beam()) {
    errors->Add("continue_from",
                absl::StrCat("has ", num_entries,
                             " entries, must have none in a beam search: the tokens of the hypotheses are not "
                             "all that a beam search needs"));
    return false;
  }
  if (request.num_returned < request.request.num_samples) {
    errors->Add("continue_from", absl::StrCat("has ", num_entries, " entries, must have none with best_of (",
                                              request.request.num_samples, ") above n (", request.num_returned,
                                              "): nothing is sent before all samples have ended"));
    return false;
  }
  return true;
}

}  // namespace

void ReadContinuation(const v1::GenerateRequest& in, const ServedModel& model, ValidRequest* out, FieldErrors* errors) {
  if (!errors->empty() || !CheckOtherFields(in, *out, errors)) return;
  const int num_samples = out->request.num_samples;
  std::vector<ValidRequest::Continued> samples(num_samples);
  std::vector<bool> is_named(num_samples), is_ended(num_samples);
  bool has_tokens = false;
  for (int i = 0; i < in.continue_from_size(); ++i) {
    const v1::ContinuedSample& sample = in.continue_from(i);
    const std::string path = absl::StrCat("continue_from[", i, "].");
    const uint32_t index = sample.index();
    if (index >= static_cast<uint32_t>(num_samples)) {
      return errors->Add(path + "index", absl::StrCat("is ", index, ", the request returns ", num_samples));
    }
    if (is_named[index]) return errors->Add(path + "index", absl::StrCat("is ", index, ", as in another entry"));
    is_named[index] = true;
    bool ends = false;
    if (!ReadTokens(sample, model, *out, path, &samples[index], &ends, errors)) return;
    is_ended[index] = ends;
    has_tokens |= sample.token_ids_size() > 0;
  }
  if (!has_tokens) return;
  SamplingParams& sampling = out->request.sampling;
  if (sampling.temperature > 0 && !in.sampling().has_seed()) {
    return errors->Add("sampling.seed",
                       absl::StrCat("is not set, continue_from needs the seed of the earlier request at temperature ",
                                    sampling.temperature));
  }
  if (sampling.num_prompt_logprobs >= 0 && samples[0].tokens.empty()) {
    return errors->Add("prompt_logprobs", absl::StrCat("is ", in.prompt_logprobs(),
                                                       ", must be unset unless continue_from has tokens with index 0"));
  }
  sampling.num_prompt_logprobs = -1;
  for (int i = 0; i < num_samples; ++i) {
    if (!is_ended[i]) out->request.continued.push_back({.sample_index = i, .tokens = samples[i].tokens});
  }
  out->continued = std::move(samples);
}

}  // namespace quire
