#ifndef QUIRE_TESTS_KV_MANAGER_REQUESTS_TOY_MODEL_H_
#define QUIRE_TESTS_KV_MANAGER_REQUESTS_TOY_MODEL_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kv_manager/engine/served_model.h"
#include "tests/kv_manager/requests/toy_tokenizer.h"

namespace quire {

// A model of 128 tokens of context with the toy tokenizer.
inline std::shared_ptr<ServedModel> ToyModel(std::vector<std::string> more_pieces = {}) {
  auto model = std::make_shared<ServedModel>();
  model->name = "toy";
  model->architecture = "ToyForCausalLM";
  auto tokenizer = std::make_unique<ToyTokenizer>(std::move(more_pieces));
  model->vocab_size = static_cast<int>(tokenizer->vocab_size());
  model->max_context_tokens = 128;
  model->eos_token_ids = {ToyTokenizer::kEos};
  model->bos_token_id = ToyTokenizer::kBos;
  model->tokenizer = std::move(tokenizer);
  return model;
}

}  // namespace quire

#endif  // QUIRE_TESTS_KV_MANAGER_REQUESTS_TOY_MODEL_H_
