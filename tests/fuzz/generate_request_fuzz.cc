// SPDX-License-Identifier: Apache-2.0

#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "kv_manager/requests/request_validation.h"
#include "quire/v1/inference.pb.h"
#include "tests/fuzz/message_input.h"
#include "tests/kv_manager/requests/toy_tokenizer.h"

namespace quire {
namespace {

constexpr int kVocabSize = 260;
constexpr int kContext = 64;

const ServedModel& Toy() {
  static const ServedModel* const model = [] {
    auto* const toy = new ServedModel;
    toy->name = "toy";
    toy->vocab_size = kVocabSize;
    toy->max_context_tokens = kContext;
    toy->eos_token_ids = {ToyTokenizer::kEos};
    toy->tokenizer = std::make_unique<ToyTokenizer>(std::vector<std::string>{"the", " the"});
    return toy;
  }();
  return *model;
}

// A request is refused with a message in UTF-8, or it keeps the limits on which the scheduler relies.
void Validate(const v1::GenerateRequest& request) {
  const auto valid = ValidateGenerate(request, Toy(), RequestLimits{.max_prompt_bytes = 4096}, /*drawn_seed=*/42);
  if (!valid.ok()) {
    const std::string message(valid.status().message());
    QUIRE_CHECK(!message.empty() && CheckUtf8(message, "message").ok()) << message;
    return;
  }
  const Request& checked = valid->request;
  QUIRE_CHECK(!checked.prompt.empty() && checked.max_tokens > 0);
  QUIRE_CHECK(!checked.is_prompt_only || (checked.max_tokens == 1 && !checked.beam.has_value()));
  QUIRE_CHECK(checked.prompt.size() + (checked.is_prompt_only ? 0 : 1) <= kContext) << checked.prompt.size();
  for (const TokenId token : checked.prompt) QUIRE_CHECK(token >= 0 && token < kVocabSize) << token;
  QUIRE_CHECK(checked.sampling.temperature >= 0);
  QUIRE_CHECK(checked.sampling.top_p > 0 && checked.sampling.top_p <= 1);
  QUIRE_CHECK(valid->num_returned >= 1);
}

}  // namespace
}  // namespace quire

QUIRE_FUZZ_MESSAGES(quire::v1::GenerateRequest, quire::Validate);
