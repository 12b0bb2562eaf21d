// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KV_MANAGER_REQUESTS_TOY_MODEL_H_
#define QUIRE_TESTS_KV_MANAGER_REQUESTS_TOY_MODEL_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kv_manager/engine/served_model.h"
#include "tests/kv_manager/requests/toy_tokenizer.h"

namespace quire {

// Writes "<s>user:hello</s>" for a message and "<s>assistant:" for an answer, and refuses the role "robot".
inline constexpr char kToyTemplate[] =
    "{%- for message in messages %}{% if message.role == 'robot' %}\n"
    "{{- raise_exception('no robots') }}{% endif %}"
    "{{- bos_token + message.role + ':' + message.content + eos_token }}{% endfor %}"
    "{%- if tools %}{{ tools | tojson }}{% endif %}"
    "{%- if add_generation_prompt %}{{ bos_token }}assistant:{% endif %}";

// A model of 128 tokens of context with the toy tokenizer, a chat template and embeddings of 4 values, which are not
// normalized.
inline std::shared_ptr<ServedModel> ToyModel(std::vector<std::string> more_pieces = {}) {
  auto model = std::make_shared<ServedModel>();
  model->name = "toy";
  model->architecture = "ToyForCausalLM";
  auto tokenizer = std::make_unique<ToyTokenizer>(std::move(more_pieces));
  model->vocab_size = static_cast<int>(tokenizer->vocab_size());
  model->max_context_tokens = 128;
  model->eos_token_ids = {ToyTokenizer::kEos};
  model->bos_token_id = ToyTokenizer::kBos;
  model->pooling = {.kind = Pooling::kLastToken, .normalizes = false, .embedding_size = 4, .refusal = ""};
  model->tokenizer = std::move(tokenizer);
  model->chat_template = ChatTemplate::Load(
      {.chat_template_jinja = kToyTemplate, .tokenizer_config_json = R"({"bos_token": "<s>", "eos_token": "</s>"})"});
  return model;
}

}  // namespace quire

#endif  // QUIRE_TESTS_KV_MANAGER_REQUESTS_TOY_MODEL_H_
