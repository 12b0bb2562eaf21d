// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/neutral_fields.h"

namespace quire {
namespace {

struct NeutralField {
  const char* name;
  const char* neutral;  // A JSON list of the values that ask for nothing, besides null.
  const char* reason;   // Why other values are refused.
};

constexpr char kTextOnly[] = "the model reads and writes text only";

constexpr NeutralField kOfBoth[] = {
    {"moderation", "[]", "this server does not moderate"},
    // Extras of vLLM.
    {"detokenize", "[true]", "return_token_ids gives the ids beside the text"},
    {"early_stopping", "[false]", "a beam search ends as that of vLLM"},
    {"ec_transfer_params", "[{}]", "this server does not divide requests among servers"},
    {"guided_decoding_backend", R"(["auto"])", "this server has one of its own"},
    {"guided_json_object", "[false]", "use response_format"},
    {"guided_whitespace_pattern", "[]", "this server decides where JSON may have white space"},
    {"kv_transfer_params", "[{}]", "this server does not divide requests among servers"},
    {"logits_processors", "[[]]", "this server runs no code of its clients"},
    {"logprob_token_ids", "[]", "logprobs are of the most likely tokens"},
    {"repetition_detection", "[]", "use repetition_penalty"},
    {"request_id", "[]", "this server gives requests their names"},
    {"return_token_offsets", "[false]", "return_token_ids gives the tokens"},
    {"routed_experts_prompt_start", "[0]", "answers do not have the routes of tokens to experts"},
    {"stream_interval", "[1]", "a stream has an event for each token"},
    {"thinking_token_budget", "[-1]", "only max_tokens limits an answer"},
    {"truncate_prompt_tokens", "[]", "a prompt is never cut"},
    {"vllm_xargs", "[{}]", "they are for code of vLLM"},
    {"watermarking", "[false]", "answers have no watermark"},
    // Extras of llama.cpp.
    {"cache_prompt", "[true]", "cache_salt keeps a request apart from others"},
    {"dry_multiplier", "[0]", "use repetition_penalty"},
    {"dynatemp_range", "[0]", "the temperature is the same for all tokens"},
    {"id_slot", "[-1]", "this server decides where a request runs"},
    {"lora", "[[]]", "this server has no adapters"},
    {"min_keep", "[0]", "top_k, top_p and min_p keep at least one token"},
    {"mirostat", "[0]", "use top_p or min_p"},
    {"n_indent", "[0]", "a regular expression can ask for this"},
    {"n_keep", "[0]", "a prompt is never cut"},
    {"n_predict", "[-1]", "use max_tokens"},
    {"n_probs", "[0]", "use logprobs"},
    {"post_sampling_probs", "[false]", "logprobs are those before sampling"},
    {"reasoning_budget", "[-1]", "only max_tokens limits an answer"},
    {"reasoning_format", R"(["auto", "deepseek"])", "thoughts are sent as reasoning and reasoning_content"},
    {"repeat_last_n", "[64]", "repetition_penalty counts all tokens"},
    {"repeat_penalty", "[1]", "use repetition_penalty"},
    {"response_fields", "[[]]", "answers have the fields of OpenAI"},
    {"return_progress", "[false]", "a stream begins with the first token"},
    {"return_tokens", "[false]", "return_token_ids gives the tokens"},
    {"samplers", R"([["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]])",
     "samplers have one order"},
    {"t_max_predict_ms", "[0]", "use the header X-Request-Timeout"},
    {"timings_per_token", "[false]", "answers have no times"},
    {"typical_p", "[1]", "use top_p or min_p"},
    // Extras of SGLang.
    {"no_stop_trim", "[false]", "use include_stop_str_in_output"},
    {"return_hidden_states", "[false]", "answers have tokens only"},
    {"separate_reasoning", "[true]", "thoughts are always sent, as reasoning and reasoning_content"},
    {"stream_reasoning", "[true]", "thoughts are sent as they come"},
};

constexpr NeutralField kOfCompletions[] = {
    {"prompt_embeds", "[[]]", "a prompt is a text or tokens"},
    {"suffix", R"([""])", "the model continues prompts and fills no gaps"},
};

constexpr NeutralField kOfChats[] = {
    {"add_special_tokens", "[false]", "the chat template writes these tokens"},
    {"audio", "[]", kTextOnly},
    {"documents", "[[]]", "a template that knows them gets them from chat_template_kwargs"},
    {"echo", "[false]", "continue_final_message continues a message"},
    {"function_call", R"(["none", "auto"])", "OpenAI has replaced it by tool_choice"},
    {"functions", "[[]]", "OpenAI has replaced it by tools"},
    {"include_reasoning", "[true]", "thoughts are always sent, as reasoning and reasoning_content"},
    {"media_io_kwargs", "[{}]", kTextOnly},
    {"mm_processor_kwargs", "[{}]", kTextOnly},
    {"modalities", R"([["text"]])", kTextOnly},
    {"return_prompt_text", "[false]", "/tokenize shows the prompt of a conversation"},
    {"web_search_options", "[]", "this server does not search the web"},
};

}  // namespace

void ReadNeutralFields(bool is_chat, FieldReader* fields) {
  for (const NeutralField& field : kOfBoth) fields->AcceptOnly(field.name, field.neutral, field.reason);
  if (is_chat) {
    for (const NeutralField& field : kOfChats) fields->AcceptOnly(field.name, field.neutral, field.reason);
  } else {
    for (const NeutralField& field : kOfCompletions) fields->AcceptOnly(field.name, field.neutral, field.reason);
  }
  // They tell the provider something about the caller, are about services or caches that this server has not, are hints
  // that change no token, or have a meaning only beside a field that was refused.
  fields->Ignore({"user",
                  "metadata",
                  "safety_identifier",
                  "service_tier",
                  "store",
                  "prompt_cache_key",
                  "prompt_cache_options",
                  "prompt_cache_retention",
                  "prediction",
                  "session_id",
                  "truncation_side",
                  "spaces_between_special_tokens",
                  "return_mm_kwargs",
                  "dry_allowed_length",
                  "dry_base",
                  "dry_penalty_last_n",
                  "dry_sequence_breakers",
                  "dynatemp_exponent",
                  "mirostat_eta",
                  "mirostat_tau"});
}

}  // namespace quire
