// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/message_text.h"

#include <utility>

namespace quire {

void AddText(std::string text, v1::ChatMessage* message) {
  if (!HasText(*message)) return message->set_content(std::move(text));
  if (message->has_content()) {
    message->add_content_parts(message->content());
    message->clear_content();
  }
  message->add_content_parts(std::move(text));
}

bool HasText(const v1::ChatMessage& message) {
  return message.has_content() || !message.content_parts().empty();
}

}  // namespace quire
