// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_LOGPROBS_JSON_H_
#define QUIRE_GATEWAY_OPENAI_LOGPROBS_JSON_H_

#include <cstdint>

#include "gateway/openai/field_reader.h"
#include "google/protobuf/repeated_field.h"
#include "quire/v1/common.pb.h"

namespace quire {

using LogprobList = google::protobuf::RepeatedPtrField<v1::PositionLogprobs>;

// Logprobs as a completion has them: tokens, token_logprobs, top_logprobs and text_offset, which are lists with an
// entry for each position. The logprobs of the first token of a prompt are null.
class CompletionLogprobs {
 public:
  // `num_top` is the number of alternatives that the client asked for.
  void Add(const LogprobList& positions, uint32_t num_top);

  // Returns what was added since the last call; null when there is nothing.
  Json Take();

 private:
  Json tokens_ = Json::array();
  Json token_logprobs_ = Json::array();
  Json top_logprobs_ = Json::array();
  Json text_offsets_ = Json::array();
};

// Logprobs as a chat has them: a list with an object for each position.
Json ChatLogprobs(const LogprobList& positions);

// prompt_logprobs as vLLM has them: a list with an object for each position, whose keys are token ids.
Json PromptLogprobs(const LogprobList& positions);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_LOGPROBS_JSON_H_
