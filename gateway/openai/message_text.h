// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_MESSAGE_TEXT_H_
#define QUIRE_GATEWAY_OPENAI_MESSAGE_TEXT_H_

#include <string>

#include "quire/v1/inference.pb.h"

namespace quire {

// Adds a text to the content. One alone is a plain text for the chat template, and several are parts.
void AddText(std::string text, v1::ChatMessage* message);

// Returns whether the message has a content, which may be empty.
bool HasText(const v1::ChatMessage& message);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_MESSAGE_TEXT_H_
