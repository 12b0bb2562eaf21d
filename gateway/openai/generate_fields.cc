// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/generate_fields.h"

#include <algorithm>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/message_numbers.h"
#include "base/number_text.h"
#include "base/sampling_fields.h"
#include "gateway/openai/guide_fields.h"

namespace quire {
namespace {

void ReadLogitBias(FieldReader* fields, v1::SamplingParams* sampling) {
  const Json* const bias = fields->Object("logit_bias");
  if (bias == nullptr) return;
  for (const auto& [key, value] : bias->items()) {
    uint32_t id = 0;
    // Another spelling of the same number, such as "05", would be a second bias of its token.
    if (!absl::SimpleAtoi(key, &id) || absl::StrCat(id) != key) {
      return fields->Fail("logit_bias", absl::StrCat("has the key ", Describe(Json(key)).substr(3), kNoTokenId));
    }
    const std::optional<float> number = fields->FloatOf(value, absl::StrCat("logit_bias[", id, "]"));
    if (!number.has_value()) return;
    (*sampling->mutable_logit_bias())[id] = *number;
  }
}

void ReadNumber(const SamplingField& field, FieldReader* fields, v1::SamplingParams* sampling) {
  std::optional<double> value;
  if (field.counts_tokens()) {
    value = fields->Integer(field.name, field.is_off_at_minus_1 ? -1 : 0, std::numeric_limits<int32_t>::max());
  } else {
    value = fields->Float(field.name);
  }
  if (field.is_off_at_minus_1 && value == -1) value = field.neutral();
  if (value.has_value()) SetNumber(field.name, *value, sampling);
}

void ReadSampling(FieldReader* fields, v1::SamplingParams* sampling) {
  ReadSamplingNumbers(fields, sampling);
  ReadLogitBias(fields, sampling);
  for (const uint32_t id : fields->TokenIds("allowed_token_ids")) sampling->add_allowed_token_ids(id);
  if (fields->IsEmptyList("allowed_token_ids")) {
    fields->Fail("allowed_token_ids", "is empty, which allows no token; it must have at least one, or be left out");
  }
  for (const std::string& word : fields->Strings("bad_words")) sampling->add_bad_words(word);
}

void ReadStopping(FieldReader* fields, v1::StoppingParams* stopping) {
  const Json* const stop = fields->Find("stop");
  const bool has_stop = stop != nullptr && *stop != "";  // Clients send an empty text for none.
  for (const std::string& text : has_stop ? fields->Strings("stop") : std::vector<std::string>()) {
    stopping->add_stop(text);
  }
  for (const uint32_t id : fields->TokenIds("stop_token_ids")) stopping->add_stop_token_ids(id);
  if (const auto value = fields->Count("min_tokens")) stopping->set_min_tokens(*value);
  if (const auto value = fields->Bool("ignore_eos")) stopping->set_ignore_eos(*value);
  if (const auto value = fields->Bool("include_stop_str_in_output")) stopping->set_include_stop(*value);
}

// In vLLM's beam search, n is the number of beams and of hypotheses to return, and the temperature means nothing.
void ReadBeam(FieldReader* fields, uint32_t num_choices, v1::GenerateRequest* request) {
  const bool is_beam_search = fields->Bool("use_beam_search").value_or(false);
  const std::optional<float> length_penalty = fields->Float("length_penalty");
  if (!is_beam_search) {
    if (length_penalty.value_or(1) != 1) {
      fields->Fail("length_penalty", absl::StrCat("is ", NumberText(*length_penalty),
                                                  ", which is for beam searches, but use_beam_search is not true"));
    }
    return;
  }
  v1::BeamParams* const beam = request->mutable_beam();
  beam->set_width(std::max(num_choices, request->best_of()));
  beam->set_num_return_sequences(num_choices);
  if (length_penalty.has_value()) beam->set_length_penalty(*length_penalty);
  request->clear_n();
  request->clear_best_of();
  const float temperature = request->sampling().temperature();
  if (temperature == 0 || temperature == 1) request->mutable_sampling()->clear_temperature();
}

void ReadStream(FieldReader* fields, GenerateCall* call) {
  call->streams = fields->Bool("stream").value_or(false);
  const Json* const options = fields->Object("stream_options");
  if (options == nullptr) return;
  if (!call->streams) {
    const bool asks = std::any_of(options->begin(), options->end(),
                                  [](const Json& value) { return !value.is_null() && value != false; });
    if (asks) fields->Fail("stream_options", "is for streams, but stream is not true");
    return;
  }
  FieldReader reader(*options, "stream_options.", fields);
  call->includes_usage = reader.Bool("include_usage").value_or(false);
  call->is_resumable = reader.Bool("resumable").value_or(false);
  call->has_obfuscation = reader.Bool("include_obfuscation").value_or(false);
  call->includes_running_usage = reader.Bool("continuous_usage_stats").value_or(false);
  if (call->includes_running_usage && !call->includes_usage) {
    reader.Fail("continuous_usage_stats", "is true, but include_usage is not");
  }
  if (call->includes_running_usage && call->is_resumable) {
    // The id of an event does not have the length of the prompt.
    reader.Fail("continuous_usage_stats", "is true, which is not supported for a stream that can be resumed");
  }
  reader.RefuseOthers();
}

}  // namespace

void ReadSamplingNumbers(FieldReader* fields, v1::SamplingParams* sampling) {
  for (const SamplingField& field : kSamplingFields) ReadNumber(field, fields, sampling);
  if (const auto value = fields->Bits("seed")) sampling->set_seed(*value);
}

void ReadGenerateFields(FieldReader* fields, v1::GenerateRequest* request, GenerateCall* call) {
  call->model = fields->String("model").value_or("");
  ReadSampling(fields, request->mutable_sampling());
  ReadStopping(fields, request->mutable_stopping());
  if (const auto value = fields->Integer("n", 1, 256)) call->num_choices = static_cast<uint32_t>(*value);
  if (call->num_choices > 1) request->set_n(call->num_choices);
  if (const auto value = fields->Count("best_of")) request->set_best_of(*value);
  if (request->best_of() > call->num_choices) call->names.num_samples = "best_of";
  ReadBeam(fields, call->num_choices, request);
  if (const auto value = fields->Count("prompt_logprobs", 0, kMaxAlternatives)) {
    request->set_prompt_logprobs(*value);
    call->prompt_logprobs = *value;
    call->has_prompt_logprobs = true;
  }
  call->returns_token_ids = fields->Bool("return_token_ids").value_or(false);
  if (fields->Bool("return_tokens_as_token_ids").value_or(false)) call->token_name = TokenName::kId;
  if (const auto value = fields->Bool("skip_special_tokens")) request->set_skip_special_tokens(*value);
  if (const auto value =
          fields->Integer("priority", std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max())) {
    request->set_priority(static_cast<int32_t>(*value));
  }
  if (const auto value = fields->String("cache_salt")) request->set_cache_salt(*value);
  ReadStream(fields, call);
  if (call->is_resumable && call->returns_token_ids) {
    // The id of an event does not have the tokens of the prompt.
    fields->Fail("return_token_ids", "is true, which is not supported for a stream that can be resumed");
  }
  ReadGuideFields(fields, request, call);
}

}  // namespace quire
