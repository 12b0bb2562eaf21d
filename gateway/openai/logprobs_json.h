// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_LOGPROBS_JSON_H_
#define QUIRE_GATEWAY_OPENAI_LOGPROBS_JSON_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "google/protobuf/repeated_field.h"
#include "quire/v1/common.pb.h"

// Logprobs as the text of JSON. An answer may have a million of them, so no tree of JSON is made.

namespace quire {

using LogprobList = google::protobuf::RepeatedPtrField<v1::PositionLogprobs>;

// Returns the number of logprobs in the list, of tokens and of their alternatives.
size_t CountLogprobs(const LogprobList& positions);

// How logprobs name a token: by its text, or by its id, as in "token_id:17".
enum class TokenName { kText, kId };

// Logprobs as a completion has them: tokens, token_logprobs, top_logprobs and text_offset, which are lists with an
// entry for each position. The logprobs of the first token of a prompt are null.
class CompletionLogprobs {
 public:
  // `num_top` is the number of alternatives that the client asked for. The first token of a prompt has its text always.
  void Add(const LogprobList& positions, uint32_t num_top, TokenName name);
  // Adds what the other one has.
  void Add(const CompletionLogprobs& other);

  // Returns the object with what was added since the last call; "null" when there is nothing.
  std::string Take();

  size_t num_bytes() const {
    return tokens_.size() + token_logprobs_.size() + top_logprobs_.size() + text_offsets_.size();
  }

 private:
  // The entries of the lists, with commas between them.
  std::string tokens_;
  std::string token_logprobs_;
  std::string top_logprobs_;
  std::string text_offsets_;
};

// Appends logprobs as a chat has them to the entries of a list: an object for each position.
void AppendChatLogprob(const v1::PositionLogprobs& position, TokenName name, std::string* entries);
void AppendChatLogprobs(const LogprobList& positions, TokenName name, std::string* entries);

// Returns prompt_logprobs as vLLM has them: a list with an object for each position, whose keys are token ids.
std::string PromptLogprobs(const LogprobList& positions);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_LOGPROBS_JSON_H_
