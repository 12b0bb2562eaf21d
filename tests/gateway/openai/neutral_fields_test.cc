// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/neutral_fields.h"

#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gateway/openai/read_call.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

enum class Of { kBoth, kCompletions, kChats };

struct Default {
  Of of;
  const char* name;
  const char* value;
};

// Every field of a request that OpenAI's client 3.57 and vLLM 0.12 to 0.19 know, except those that must be set, with
// its default. Where the default is null, another value that asks for nothing may stand here.
constexpr Default kDefaults[] = {
    {Of::kBoth, "allowed_token_ids", "null"},
    {Of::kBoth, "bad_words", "[]"},
    {Of::kBoth, "best_of", "1"},
    {Of::kBoth, "cache_salt", "null"},
    {Of::kBoth, "detokenize", "true"},
    {Of::kBoth, "early_stopping", "false"},
    {Of::kBoth, "ec_transfer_params", "{}"},
    {Of::kBoth, "frequency_penalty", "0.0"},
    {Of::kBoth, "guided_choice", "null"},
    {Of::kBoth, "guided_decoding_backend", "null"},
    {Of::kBoth, "guided_grammar", "null"},
    {Of::kBoth, "guided_json", "null"},
    {Of::kBoth, "guided_json_object", "false"},
    {Of::kBoth, "guided_regex", "null"},
    {Of::kBoth, "guided_whitespace_pattern", "null"},
    {Of::kBoth, "ignore_eos", "false"},
    {Of::kBoth, "include_stop_str_in_output", "false"},
    {Of::kBoth, "kv_transfer_params", "{}"},
    {Of::kBoth, "length_penalty", "1.0"},
    {Of::kBoth, "logit_bias", "{}"},
    {Of::kBoth, "logits_processors", "[]"},
    {Of::kBoth, "logprob_token_ids", "null"},
    {Of::kBoth, "max_tokens", "16"},
    {Of::kBoth, "metadata", "{}"},
    {Of::kBoth, "min_p", "0.0"},
    {Of::kBoth, "min_tokens", "0"},
    {Of::kBoth, "model", "null"},
    {Of::kBoth, "moderation", "null"},
    {Of::kBoth, "n", "1"},
    {Of::kBoth, "presence_penalty", "0.0"},
    {Of::kBoth, "priority", "0"},
    {Of::kBoth, "prompt_cache_key", "\"k\""},
    {Of::kBoth, "prompt_cache_options", "{}"},
    {Of::kBoth, "prompt_cache_retention", "\"in-memory\""},
    {Of::kBoth, "prompt_logprobs", "null"},
    {Of::kBoth, "repetition_detection", "null"},
    {Of::kBoth, "repetition_penalty", "1.0"},
    {Of::kBoth, "request_id", "null"},
    {Of::kBoth, "response_format", R"({"type": "text"})"},
    {Of::kBoth, "return_mm_kwargs", "true"},
    {Of::kBoth, "return_token_ids", "false"},
    {Of::kBoth, "return_token_offsets", "false"},
    {Of::kBoth, "return_tokens_as_token_ids", "false"},
    {Of::kBoth, "routed_experts_prompt_start", "0"},
    {Of::kBoth, "safety_identifier", "\"s\""},
    {Of::kBoth, "seed", "null"},
    {Of::kBoth, "service_tier", "\"auto\""},
    {Of::kBoth, "session_id", "\"s\""},
    {Of::kBoth, "skip_special_tokens", "true"},
    {Of::kBoth, "spaces_between_special_tokens", "true"},
    {Of::kBoth, "stop", "[]"},
    {Of::kBoth, "stop", "\"\""},
    {Of::kBoth, "stop_token_ids", "[]"},
    {Of::kBoth, "store", "false"},
    {Of::kBoth, "stream", "false"},
    {Of::kBoth, "stream_interval", "1"},
    {Of::kBoth, "stream_options", R"({"include_usage": false, "continuous_usage_stats": false})"},
    {Of::kBoth, "structured_outputs", "null"},
    {Of::kBoth, "temperature", "1.0"},
    {Of::kBoth, "thinking_token_budget", "-1"},
    {Of::kBoth, "top_k", "0"},
    {Of::kBoth, "top_k", "-1"},
    {Of::kBoth, "top_n_sigma", "-1.0"},
    {Of::kBoth, "top_p", "1.0"},
    {Of::kBoth, "truncate_prompt_tokens", "null"},
    {Of::kBoth, "truncation_side", "\"left\""},
    {Of::kBoth, "use_beam_search", "false"},
    {Of::kBoth, "user", "\"u\""},
    {Of::kBoth, "vllm_xargs", "{}"},
    {Of::kBoth, "watermarking", "false"},
    {Of::kCompletions, "add_special_tokens", "true"},
    {Of::kCompletions, "echo", "false"},
    {Of::kCompletions, "logprobs", "null"},
    {Of::kCompletions, "prompt_embeds", "null"},
    {Of::kCompletions, "suffix", "\"\""},
    {Of::kChats, "add_generation_prompt", "true"},
    {Of::kChats, "add_special_tokens", "false"},
    {Of::kChats, "audio", "null"},
    {Of::kChats, "chat_template", "null"},
    {Of::kChats, "chat_template_kwargs", "{}"},
    {Of::kChats, "continue_final_message", "false"},
    {Of::kChats, "documents", "[]"},
    {Of::kChats, "echo", "false"},
    {Of::kChats, "function_call", "\"none\""},
    {Of::kChats, "functions", "[]"},
    {Of::kChats, "include_reasoning", "true"},
    {Of::kChats, "logprobs", "false"},
    {Of::kChats, "max_completion_tokens", "null"},
    {Of::kChats, "media_io_kwargs", "{}"},
    {Of::kChats, "mm_processor_kwargs", "{}"},
    {Of::kChats, "modalities", R"(["text"])"},
    {Of::kChats, "parallel_tool_calls", "true"},
    {Of::kChats, "prediction", R"({"type": "content", "content": "x"})"},
    {Of::kChats, "reasoning_effort", "null"},
    {Of::kChats, "return_prompt_text", "false"},
    {Of::kChats, "tool_choice", "\"auto\""},
    {Of::kChats, "tool_choice", "\"none\""},
    {Of::kChats, "tools", "[]"},
    {Of::kChats, "top_logprobs", "0"},
    {Of::kChats, "verbosity", "\"medium\""},
    {Of::kChats, "web_search_options", "null"},
    // Further fields of llama.cpp and SGLang.
    {Of::kBoth, "cache_prompt", "true"},
    {Of::kBoth, "dry_allowed_length", "2"},
    {Of::kBoth, "dry_base", "1.75"},
    {Of::kBoth, "dry_multiplier", "0.0"},
    {Of::kBoth, "dry_penalty_last_n", "-1"},
    {Of::kBoth, "dry_sequence_breakers", R"(["\n", ":", "\"", "*"])"},
    {Of::kBoth, "dynatemp_exponent", "1.0"},
    {Of::kBoth, "dynatemp_range", "0.0"},
    {Of::kBoth, "grammar", "null"},
    {Of::kBoth, "id_slot", "-1"},
    {Of::kBoth, "json_schema", "null"},
    {Of::kBoth, "lora", "[]"},
    {Of::kBoth, "min_keep", "0"},
    {Of::kBoth, "mirostat", "0"},
    {Of::kBoth, "mirostat_eta", "0.1"},
    {Of::kBoth, "mirostat_tau", "5.0"},
    {Of::kBoth, "n_indent", "0"},
    {Of::kBoth, "n_keep", "0"},
    {Of::kBoth, "n_predict", "-1"},
    {Of::kBoth, "n_probs", "0"},
    {Of::kBoth, "no_stop_trim", "false"},
    {Of::kBoth, "post_sampling_probs", "false"},
    {Of::kBoth, "reasoning_budget", "-1"},
    {Of::kBoth, "reasoning_format", "\"auto\""},
    {Of::kBoth, "repeat_last_n", "64"},
    {Of::kBoth, "repeat_penalty", "1.0"},
    {Of::kBoth, "response_fields", "[]"},
    {Of::kBoth, "return_hidden_states", "false"},
    {Of::kBoth, "return_progress", "false"},
    {Of::kBoth, "return_tokens", "false"},
    {Of::kBoth, "samplers",
     R"(["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"])"},
    {Of::kBoth, "separate_reasoning", "true"},
    {Of::kBoth, "stream_reasoning", "true"},
    {Of::kBoth, "t_max_predict_ms", "0"},
    {Of::kBoth, "timings_per_token", "false"},
    {Of::kBoth, "typical_p", "1.0"},
    {Of::kBoth, "xtc_probability", "0.0"},
    {Of::kBoth, "xtc_threshold", "0.1"},
};

TEST(NeutralFieldsTest, EveryFieldOfOpenAiAndVllmIsAcceptedAtItsDefault) {
  for (const Default& field : kDefaults) {
    const std::string member = absl::StrCat("\"", field.name, "\": ", field.value);
    SCOPED_TRACE(member);
    if (field.of != Of::kChats) Completion(absl::StrCat(R"({"prompt": "x", )", member, "}"));
    if (field.of != Of::kCompletions) Chat(absl::StrCat(R"({"messages": [], )", member, "}"));
  }
}

TEST(NeutralFieldsTest, WhatAsksForSomethingUnsupportedIsRefusedWithItsValueAndTheReason) {
  const auto expect = [](const ApiError& error, const std::string& param, const std::string& text) {
    EXPECT_EQ(error.param, param);
    EXPECT_EQ(error.message, absl::StrCat(param, " ", text));
    EXPECT_EQ(error.code, "unsupported_parameter");
  };
  expect(CompletionError(R"("suffix": "y")"), "suffix",
         "is \"y\", which is not supported: the model continues prompts and fills no gaps");
  expect(ChatError(R"("modalities": ["text", "audio"])"), "modalities",
         "is a list, which is not supported: the model reads and writes text only");
  for (const char* const member :
       {R"("truncate_prompt_tokens": 5)", R"("thinking_token_budget": 0)", R"("logprob_token_ids": [1])",
        R"("vllm_xargs": {"a": 1})", R"("request_id": "r")", R"("watermarking": true)"}) {
    EXPECT_THAT(CompletionError(member).message, HasSubstr("which is not supported")) << member;
    EXPECT_THAT(ChatError(member).message, HasSubstr("which is not supported")) << member;
  }
  for (const char* const member :
       {R"("functions": [{}])", R"("function_call": {"name": "f"})", R"("audio": {})", R"("web_search_options": {})",
        R"("documents": [{}])", R"("echo": true)", R"("include_reasoning": false)", R"("add_special_tokens": true)"}) {
    EXPECT_THAT(ChatError(member).message, HasSubstr("which is not supported")) << member;
  }
}

TEST(NeutralFieldsTest, MembersOfFieldsAreAcceptedAtTheirDefaultsAsWell) {
  Chat(R"({"messages": [{"role": "assistant", "content": "x", "audio": null, "function_call": null, "refusal": null,
      "annotations": [], "tool_calls": [], "reasoning": null, "parsed": {"a": 1}},
      {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}",
                                                                    "parsed_arguments": {}}}]}],
      "tools": [{"type": "function", "defer_loading": null, "function": {"name": "f", "strict": false,
                 "defer_loading": false}}]})");
  Completion(R"({"prompt": "x", "structured_outputs": {"regex": "a", "json": null, "json_object": null,
      "disable_fallback": false, "disable_any_whitespace": false, "disable_additional_properties": false,
      "whitespace_pattern": null, "structural_tag": null}})");
  EXPECT_EQ(CompletionError(R"("structured_outputs": {"regex": "a", "whitespace_pattern": "x"})").param,
            "structured_outputs.whitespace_pattern");
}

}  // namespace
}  // namespace quire
