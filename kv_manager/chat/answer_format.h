// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_CHAT_ANSWER_FORMAT_H_
#define QUIRE_KV_MANAGER_CHAT_ANSWER_FORMAT_H_

#include <string>
#include <string_view>

namespace quire {

// How a model writes what is not the plain text of its answer. The names are the same as in GetModelResponse.
struct AnswerFormat {
  std::string tool_calls;  // Such as "hermes" (docs/openai.md). Empty: the format is not known, or there is none.
  std::string reasoning;   // Such as "think". Empty: the format is not known, or there is none.
};

// Guesses the format from the source of a chat template, which writes the calls and the thoughts of earlier answers in
// the format that the model was trained with.
AnswerFormat GuessAnswerFormat(std::string_view chat_template);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_CHAT_ANSWER_FORMAT_H_
