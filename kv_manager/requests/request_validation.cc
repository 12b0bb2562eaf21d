// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/request_validation.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/message_numbers.h"
#include "base/number_text.h"
#include "base/sampling_fields.h"
#include "base/status.h"
#include "base/status_reason.h"
#include "base/utf8.h"
#include "kv_manager/requests/chat_prompt.h"
#include "kv_manager/requests/continuation.h"
#include "kv_manager/requests/guide_validation.h"
#include "kv_manager/requests/pin_validation.h"
#include "kv_manager/requests/samples_validation.h"
#include "kv_manager/requests/unknown_fields.h"
#include "kv_manager/rpc/rpc_status.h"
#include "security/caller.h"

namespace quire {
namespace {

// Below this temperature, dividing a logit could overflow. The draw is the likeliest token anyway.
constexpr float kLeastTemperature = 1e-5f;

absl::Status NoTokenizer(absl::string_view field) {
  return WithReason(absl::FailedPreconditionError(absl::StrCat(
                        field,
                        ": needs a tokenizer, and the model's checkpoint came without one: send token ids, or "
                        "put tokenizer.json or tokenizer.model beside the weights; a GGUF file has its tokenizer in "
                        "tokenizer.ggml.*")),
                    "NO_TOKENIZER");
}

// Appends the ids as TokenId and reports the first one that the vocabulary does not have.
template <typename Ids>
void ReadTokenIds(const Ids& ids, const std::string& field, int vocab_size, std::vector<TokenId>* out,
                  FieldErrors* errors) {
  out->reserve(ids.size());
  for (int i = 0; i < ids.size(); ++i) {
    if (ids[i] >= static_cast<uint32_t>(vocab_size)) {
      errors->Add(absl::StrCat(field, "[", i, "]"),
                  absl::StrCat("is ", ids[i], ", the vocabulary has ", vocab_size, " tokens"));
      return;
    }
    out->push_back(static_cast<TokenId>(ids[i]));
  }
}

void SortUnique(std::vector<TokenId>* ids) {
  std::sort(ids->begin(), ids->end());
  ids->erase(std::unique(ids->begin(), ids->end()), ids->end());
}

// Reports a text that is not UTF-8 or longer than `max_bytes`.
bool CheckText(const std::string& text, const std::string& field, size_t max_bytes, FieldErrors* errors) {
  if (text.size() > max_bytes) {
    errors->Add(field, absl::StrCat("has ", text.size(), " bytes, at most ", max_bytes, " are allowed"));
    return false;
  }
  if (!IsValidUtf8(text)) {
    errors->Add(field, "is not valid UTF-8");
    return false;
  }
  return true;
}

// Walks over one GenerateRequest. Each Read function checks and converts some of its fields.
class GenerateValidator {
 public:
  GenerateValidator(const v1::GenerateRequest& in, const ServedModel& model, const RequestLimits& limits,
                    const GuideUser& user, GuideCache* guides, const std::string& prompt_path)
      : in_(in),
        prompt_path_(prompt_path),
        model_(model),
        limits_(limits),
        user_(user),
        guides_(guides),
        defaults_(limits.uses_model_defaults ? model.defaults : SamplingDefaults()) {}

  absl::StatusOr<ValidRequest> Run(uint64_t drawn_seed) {
    CheckUnknownFields(in_, "", &errors_);
    CheckName(in_.request_id(), "request_id", kMaxRequestIdBytes);
    ReadPrompt();
    ReadLimits();
    ReadStops();
    ReadSampling(drawn_seed);
    ReadTokenMasks();
    ReadLogprobs();
    ReadEcho();
    ReadSharing();
    if (in_.pins_size() > 0) ReadPins(in_, model_, limits_, chat_text_, &out_.request, &errors_);
    ReadSamples(in_, &out_, &errors_);
    CheckOnDisconnect();
    if (in_.continue_from_size() > 0) ReadContinuation(in_, model_, &out_, &errors_);
    if (!in_.continue_numerics().empty()) CheckNumerics();
    if (in_.has_guided()) CheckGuide();
    if (!errors_.empty()) return errors_.ToStatus();
    if (!precondition_.ok()) return precondition_;
    return std::move(out_);
  }

 private:
  void CheckOnDisconnect() {
    if (v1::OnDisconnect_IsValid(in_.on_disconnect())) return;
    errors_.Add("on_disconnect", absl::StrCat("is ", static_cast<int>(in_.on_disconnect()),
                                              ", must be ON_DISCONNECT_ABORT or ON_DISCONNECT_DETACH"));
  }

  void CheckGuide() {
    const absl::Status status = ReadGuide(in_, model_, user_, guides_, &out_, &errors_);
    if (precondition_.ok()) precondition_ = status;
  }

  void CheckNumerics() {
    if (in_.continue_from_size() == 0) errors_.Add("continue_numerics", "cannot be set without continue_from");
    if (in_.continue_numerics() == model_.numerics_fingerprint || !precondition_.ok()) return;
    precondition_ = WithReason(
        absl::FailedPreconditionError(absl::StrCat("continue_numerics: is ", Quoted(in_.continue_numerics()),
                                                   ", the model that is served now has the numerics ",
                                                   Quoted(model_.numerics_fingerprint),
                                                   ", and would give other tokens")),
        "NUMERICS_DIFFER", {{"numerics", in_.continue_numerics()}, {"other_numerics", model_.numerics_fingerprint}});
  }

  void ReadPrompt() {
    std::vector<TokenId>& prompt = out_.request.prompt;
    std::string field;
    if (in_.has_text()) {
      field = prompt_path_ + "text";
      if (model_.tokenizer == nullptr) return Need(field);
      if (!CheckText(in_.text(), field, limits_.max_prompt_bytes, &errors_)) return;
      if (!Encode(in_.text(), EncodeOptionsOf(in_), field, &prompt)) return;
    } else if (in_.has_token_ids()) {
      field = prompt_path_ + "token_ids.ids";
      ReadTokenIds(in_.token_ids().ids(), field, model_.vocab_size, &prompt, &errors_);
      if (prompt.size() != static_cast<size_t>(in_.token_ids().ids_size())) return;
    } else if (in_.has_chat()) {
      field = "chat";
      if (!ReadChat(&prompt)) return;
    } else {
      errors_.Add("prompt", "is not set: give text, token_ids or chat");
      return;
    }
    if (prompt.empty()) {
      errors_.Add(field, "has no token, a prompt needs at least one");
    } else if (prompt.size() + (is_prompt_only() ? 0 : 1) > static_cast<size_t>(model_.max_context_tokens)) {
      errors_.Add(field,
                  absl::StrCat("has ", prompt.size(), " tokens, the model's context is ", model_.max_context_tokens,
                               is_prompt_only() ? "" : " and must have room for one more"));
    }
  }

  // Returns false when there is an error.
  bool ReadChat(std::vector<TokenId>* prompt) {
    if (in_.has_add_special_tokens()) errors_.Add("add_special_tokens", "cannot be set with chat");
    if (in_.has_parse_special_tokens()) errors_.Add("parse_special_tokens", "cannot be set with chat");
    if (model_.tokenizer == nullptr) {
      Need("chat");
      return false;
    }
    absl::StatusOr<jinja::Text> text = RenderChat(in_.chat(), model_, limits_.max_prompt_bytes, "chat", &errors_);
    if (!text.ok()) {
      if (precondition_.ok()) precondition_ = text.status();
      return false;
    }
    if (!errors_.empty()) return false;
    chat_text_ = *std::move(text);
    return Encode(chat_text_.bytes, {.add_special_tokens = false, .user_ranges = chat_text_.user}, "chat", prompt);
  }

  // Nothing is to be generated.
  bool is_prompt_only() const { return in_.stopping().has_max_tokens() && in_.stopping().max_tokens() == 0; }

  // The error of a number of tokens for which the context has no room behind the prompt.
  std::string OverContext(int64_t num_tokens) const {
    const auto prompt_tokens = static_cast<int64_t>(out_.request.prompt.size());
    return absl::StrCat("is ", num_tokens, ", with the prompt's ", prompt_tokens, " tokens ",
                        prompt_tokens + num_tokens, "; the model's context is ", model_.max_context_tokens);
  }

  void ReadLimits() {
    const v1::StoppingParams& stopping = in_.stopping();
    const int64_t prompt_tokens = static_cast<int64_t>(out_.request.prompt.size());
    const int64_t room = std::max<int64_t>(model_.max_context_tokens - prompt_tokens, 1);
    int64_t max_tokens = std::min<int64_t>(defaults_.max_tokens.value_or(kDefaultMaxTokens), room);
    if (stopping.has_max_tokens()) {
      max_tokens = stopping.max_tokens();
      if (max_tokens > room) errors_.Add("stopping.max_tokens", OverContext(max_tokens));
    }
    const int64_t min_tokens = stopping.min_tokens();
    if (min_tokens > room) {
      errors_.Add("stopping.min_tokens", OverContext(min_tokens));
    } else if (min_tokens > max_tokens) {
      const char* const origin = stopping.has_max_tokens()          ? ""
                                 : defaults_.max_tokens.has_value() ? ", the model's default"
                                                                    : ", the default";
      errors_.Add("stopping.min_tokens",
                  absl::StrCat("is ", min_tokens, ", stopping.max_tokens is ", max_tokens, origin));
    }
    out_.request.is_prompt_only = is_prompt_only();
    out_.request.max_tokens = static_cast<int>(std::clamp<int64_t>(max_tokens, 1, std::numeric_limits<int>::max()));
    out_.request.sampling.min_tokens = static_cast<int>(std::min<int64_t>(min_tokens, std::numeric_limits<int>::max()));
    out_.output.min_tokens = out_.request.sampling.min_tokens;
  }

  void ReadStops() {
    const v1::StoppingParams& stopping = in_.stopping();
    CheckCount(stopping.stop_size(), kMaxStopStrings, "stopping.stop");
    for (int i = 0; i < std::min(stopping.stop_size(), kMaxStopStrings); ++i) {
      const std::string field = absl::StrCat("stopping.stop[", i, "]");
      if (stopping.stop(i).empty()) errors_.Add(field, "is empty");
      CheckText(stopping.stop(i), field, kMaxStopStringBytes, &errors_);
    }
    if (stopping.stop_size() > 0 && model_.tokenizer == nullptr) Need("stopping.stop");
    out_.output.stop.assign(stopping.stop().begin(), stopping.stop().end());
    out_.output.include_stop = stopping.include_stop();
    out_.output.skip_special_tokens = in_.has_skip_special_tokens() ? in_.skip_special_tokens() : true;

    if (CheckCount(stopping.stop_token_ids_size(), kMaxStopTokenIds, "stopping.stop_token_ids")) {
      ReadTokenIds(stopping.stop_token_ids(), "stopping.stop_token_ids", model_.vocab_size, &out_.named_stop_tokens,
                   &errors_);
    }
    SortUnique(&out_.named_stop_tokens);
    std::vector<TokenId> end_tokens = out_.named_stop_tokens;
    if (!stopping.ignore_eos()) {
      end_tokens.insert(end_tokens.end(), model_.eos_token_ids.begin(), model_.eos_token_ids.end());
    }
    SortUnique(&end_tokens);
    out_.request.stop_token_ids = end_tokens;
    if (out_.request.sampling.min_tokens > 0) out_.request.sampling.min_tokens_masked_ids = end_tokens;
    out_.output.end_tokens = std::move(end_tokens);
  }

  void ReadSampling(uint64_t drawn_seed) {
    const v1::SamplingParams& in = in_.sampling();
    SamplingParams& out = out_.request.sampling;
    for (const SamplingField& field : kSamplingFields) {
      // A beam search draws nothing, so what a model recommends for draws has no meaning there.
      const auto recommended = defaults_.sampling.find(field.name);
      const bool has_default = recommended != defaults_.sampling.end() && !(in_.has_beam() && field.is_for_draws);
      if (HasNumber(in, field.name)) {
        field.Set(CheckedNumber(field), &out);
      } else if (has_default) {
        field.Set(recommended->second, &out);
      }
    }
    if (out.temperature < kLeastTemperature) out.temperature = 0;
    out.seed = in.has_seed() ? in.seed() : drawn_seed;
  }

  // Returns the number of the request. One that counts tokens is at most the size of the vocabulary then.
  double CheckedNumber(const SamplingField& field) {
    const double value = NumberOf(in_.sampling(), field.name);
    const std::string path = absl::StrCat("sampling.", field.name);
    if (field.counts_tokens()) {
      if (value > model_.vocab_size) {
        errors_.Add(path, absl::StrCat("is ", static_cast<uint32_t>(value), ", the vocabulary has ", model_.vocab_size,
                                       " tokens"));
      }
      return std::min<double>(value, model_.vocab_size);
    }
    if (!field.Allows(static_cast<float>(value))) {
      errors_.Add(path, absl::StrCat("is ", NumberText(static_cast<float>(value)), ", must be ", field.RangeText()));
    }
    return value;
  }

  void ReadTokenMasks() {
    const v1::SamplingParams& in = in_.sampling();
    SamplingParams& out = out_.request.sampling;
    if (CheckCount(static_cast<int>(in.logit_bias().size()), kMaxLogitBiases, "sampling.logit_bias")) ReadLogitBias();
    const int max_allowed = std::min(model_.vocab_size, kMaxAllowedTokenIds);
    if (CheckCount(in.allowed_token_ids_size(), max_allowed, "sampling.allowed_token_ids")) {
      ReadTokenIds(in.allowed_token_ids(), "sampling.allowed_token_ids", model_.vocab_size, &out.allowed_token_ids,
                   &errors_);
    }
    SortUnique(&out.allowed_token_ids);
    if (CheckCount(in.bad_words_size(), kMaxBadWords, "sampling.bad_words")) {
      for (int i = 0; i < in.bad_words_size(); ++i) ReadBadWord(i);
    }
    CheckSomeTokenCanBePicked();
  }

  // Sorted, because the order of a protobuf map is random.
  void ReadLogitBias() {
    SamplingParams& out = out_.request.sampling;
    for (const auto& [token, bias] : in_.sampling().logit_bias()) {
      const std::string field = absl::StrCat("sampling.logit_bias[", token, "]");
      if (token >= static_cast<uint32_t>(model_.vocab_size)) {
        errors_.Add(field, absl::StrCat("is for token ", token, ", the vocabulary has ", model_.vocab_size, " tokens"));
      }
      out.logit_bias.push_back({static_cast<TokenId>(token), InRange(bias, -100, 100, field)});
    }
    std::sort(out.logit_bias.begin(), out.logit_bias.end(),
              [](const LogitBias& a, const LogitBias& b) { return a.token < b.token; });
  }

  // A word has other tokens at the beginning of a text than after a space. Both forms are banned.
  void ReadBadWord(int index) {
    const std::string field = absl::StrCat("sampling.bad_words[", index, "]");
    const std::string& text = in_.sampling().bad_words(index);
    if (model_.tokenizer == nullptr) return Need("sampling.bad_words");
    if (!CheckText(text, field, kMaxBadWordBytes, &errors_)) return;
    const size_t first = std::min(text.find_first_not_of(' '), text.size());
    const std::string word = first < text.size() ? text.substr(first) : text;

    std::vector<TokenId> plain, after_space;
    const EncodeOptions options{.add_special_tokens = false};
    if (!Encode(word, options, field, &plain) || !Encode(" " + word, options, field, &after_space)) return;
    if (plain.empty()) {
      return errors_.Add(field,
                         absl::StrCat("is ", Quoted(text), ", which has no token; a bad word needs at least one"));
    }
    if (plain.size() > kMaxBadWordTokens) {
      return errors_.Add(field,
                         absl::StrCat("has ", plain.size(), " tokens, at most ", kMaxBadWordTokens, " are allowed"));
    }
    std::vector<std::vector<TokenId>>& bad_words = out_.request.sampling.bad_words;
    // The plain form also matches when the other form ends with it.
    const bool is_caught =
        after_space.size() >= plain.size() && std::equal(plain.rbegin(), plain.rend(), after_space.rbegin());
    const bool differs = !is_caught && after_space.size() <= kMaxBadWordTokens;
    bad_words.push_back(std::move(plain));
    if (differs) bad_words.push_back(std::move(after_space));
  }

  void CheckSomeTokenCanBePicked() {
    const SamplingParams& sampling = out_.request.sampling;
    std::set<TokenId> masked(sampling.min_tokens_masked_ids.begin(), sampling.min_tokens_masked_ids.end());
    for (const std::vector<TokenId>& word : sampling.bad_words) {
      if (word.size() == 1) masked.insert(word[0]);
    }
    size_t num_pickable = model_.vocab_size - masked.size();
    if (!sampling.allowed_token_ids.empty()) {
      num_pickable = std::count_if(sampling.allowed_token_ids.begin(), sampling.allowed_token_ids.end(),
                                   [&](TokenId token) { return masked.count(token) == 0; });
    }
    if (num_pickable > 0) return;
    errors_.Add(
        sampling.allowed_token_ids.empty() ? "sampling.bad_words" : "sampling.allowed_token_ids",
        "leaves no token to pick: sampling.bad_words and the end tokens before stopping.min_tokens mask the rest");
  }

  void ReadLogprobs() {
    SamplingParams& out = out_.request.sampling;
    out_.shows_logprobs = in_.has_logprobs();
    if (in_.has_logprobs()) out.num_logprobs = NumLogprobs(in_.logprobs(), "logprobs");
    if (!in_.has_prompt_logprobs()) return;
    out.num_prompt_logprobs = NumLogprobs(in_.prompt_logprobs(), "prompt_logprobs");
    const size_t total = out_.request.prompt.size() * (1 + out.num_prompt_logprobs);
    if (total > kMaxPromptLogprobs) {
      errors_.Add("prompt_logprobs",
                  absl::StrCat("is ", in_.prompt_logprobs(), ", with ", out_.request.prompt.size(), " prompt tokens ",
                               total, " logprobs; at most ", kMaxPromptLogprobs, " are allowed"));
    }
  }

  void ReadEcho() {
    if (!in_.echo()) return;
    if (model_.tokenizer == nullptr) return Need("echo");
    out_.echo = in_.has_token_ids() ? Echo::kTokens : Echo::kText;
    if (in_.has_text()) out_.prompt_text = in_.text();
    if (in_.has_chat()) out_.prompt_text = chat_text_.bytes;
  }

  // The fields about other requests: priority, tenant and sharing of prefixes.
  void ReadSharing() {
    CheckName(in_.tenant(), "tenant", kMaxTenantBytes);
    const std::string& salt = in_.cache_salt();
    if (salt.size() > kMaxCacheSaltBytes) {
      errors_.Add("cache_salt",
                  absl::StrCat("has ", salt.size(), " bytes, at most ", kMaxCacheSaltBytes, " are allowed"));
    }
    out_.request.priority = in_.priority();
    out_.request.tenant = in_.tenant();
    out_.request.cache_salt = salt;
    out_.request.bypass_prefix_cache = in_.bypass_prefix_cache();
  }

  // --- Checks that several fields use.

  void CheckName(const std::string& name, const std::string& field, size_t max_bytes) {
    if (name.size() > max_bytes) {
      errors_.Add(field, absl::StrCat("has ", name.size(), " bytes, at most ", max_bytes, " are allowed"));
    } else if (!std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~'; })) {
      errors_.Add(field, absl::StrCat("is ", Quoted(name), ", only visible ASCII characters are allowed"));
    }
  }

  bool Encode(const std::string& text, EncodeOptions options, const std::string& field, std::vector<TokenId>* out) {
    options.has_left = limits_.has_left;
    auto tokens = model_.tokenizer->Encode(text, options);
    if (absl::IsCancelled(tokens.status())) {
      precondition_ = tokens.status();
      return false;
    }
    if (!tokens.ok()) {
      errors_.Add(field, std::string(tokens.status().message()));
      return false;
    }
    const auto unknown =
        std::find_if(tokens->begin(), tokens->end(), [&](TokenId t) { return t >= model_.vocab_size; });
    if (unknown != tokens->end()) {
      errors_.Add(field, absl::StrCat("has token ", *unknown, " of the tokenizer, the model's vocabulary has ",
                                      model_.vocab_size, " tokens"));
      return false;
    }
    *out = *std::move(tokens);
    return true;
  }

  // NaN is in no range.
  float InRange(float value, float low, float high, const std::string& field) {
    if (!(value >= low && value <= high)) {
      errors_.Add(field, absl::StrCat("is ", NumberText(value), ", must be in [", NumberText(low), ", ",
                                      NumberText(high), "]"));
    }
    return value;
  }

  int NumLogprobs(uint32_t value, const std::string& field) {
    if (value > kMaxLogprobs)
      errors_.Add(field, absl::StrCat("is ", value, ", at most ", kMaxLogprobs, " are allowed"));
    return static_cast<int>(std::min<uint32_t>(value, std::min(kMaxLogprobs, model_.vocab_size)));
  }

  bool CheckCount(int count, int limit, const std::string& field) {
    if (count > limit) errors_.Add(field, absl::StrCat("has ", count, " entries, at most ", limit, " are allowed"));
    return count <= limit;
  }

  void Need(absl::string_view field) {
    if (precondition_.ok()) precondition_ = NoTokenizer(field);
  }

  const v1::GenerateRequest& in_;
  const std::string prompt_path_;
  const ServedModel& model_;
  const RequestLimits& limits_;
  const GuideUser& user_;
  GuideCache* const guides_;  // May be null.
  const SamplingDefaults defaults_;
  ValidRequest out_;
  jinja::Text chat_text_;  // A conversation becomes this text.
  FieldErrors errors_;
  absl::Status precondition_;
};

}  // namespace

size_t TextWork(const v1::GenerateRequest& request) {
  const size_t num_renderings = 1 + std::min(request.pins_size(), kMaxRequestPins);
  size_t num_bytes = request.text().size() + request.token_ids().ids_size() * sizeof(TokenId) +
                     num_renderings * TextWork(request.chat());
  for (const std::string& word : request.sampling().bad_words()) num_bytes += word.size();
  // These become text twice: to find their end, and in the responses.
  for (const v1::ContinuedSample& sample : request.continue_from()) {
    num_bytes += 2 * sample.token_ids_size() * sizeof(TokenId);
  }
  return num_bytes;
}

absl::StatusOr<ValidRequest> ValidateGenerate(const v1::GenerateRequest& request, const ServedModel& model,
                                              const RequestLimits& limits, uint64_t drawn_seed, const GuideUser& user,
                                              GuideCache* guides, const std::string& prompt_path) {
  return GenerateValidator(request, model, limits, user, guides, prompt_path).Run(drawn_seed);
}

absl::StatusOr<jinja::Text> ValidateRenderChat(const v1::RenderChatRequest& request, const ServedModel& model,
                                               const RequestLimits& limits) {
  FieldErrors errors;
  CheckUnknownFields(request, "", &errors);
  if (!request.has_chat()) errors.Add("chat", "is not set");
  if (!errors.empty()) return errors.ToStatus();
  if (model.tokenizer == nullptr) return NoTokenizer("chat");
  QUIRE_ASSIGN_OR_RETURN(jinja::Text text, RenderChat(request.chat(), model, limits.max_prompt_bytes, "chat", &errors));
  if (!errors.empty()) return errors.ToStatus();
  return text;
}

absl::Status ValidateTokenize(const v1::TokenizeRequest& request, const ServedModel& model,
                              const RequestLimits& limits) {
  FieldErrors errors;
  CheckUnknownFields(request, "", &errors);
  CheckText(request.text(), "text", limits.max_prompt_bytes, &errors);
  if (!errors.empty()) return errors.ToStatus();
  return model.tokenizer == nullptr ? NoTokenizer("text") : absl::OkStatus();
}

absl::Status ValidateDetokenize(const v1::DetokenizeRequest& request, const ServedModel& model) {
  FieldErrors errors;
  CheckUnknownFields(request, "", &errors);
  std::vector<TokenId> ids;
  ReadTokenIds(request.token_ids(), "token_ids", model.vocab_size, &ids, &errors);
  if (!errors.empty()) return errors.ToStatus();
  return model.tokenizer == nullptr ? NoTokenizer("token_ids") : absl::OkStatus();
}

}  // namespace quire
