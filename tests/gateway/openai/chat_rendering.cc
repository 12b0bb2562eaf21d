// SPDX-License-Identifier: Apache-2.0

#include "tests/gateway/openai/chat_rendering.h"

#include "gateway/openai/chat_fields.h"

namespace quire {

absl::StatusOr<std::string> RenderBody(const Json& body, const ServedModel& model) {
  FieldReader fields(body);
  v1::Chat chat;
  ReadChatFields(&fields, &chat);
  fields.RefuseOthers();
  if (fields.error().has_value()) return absl::InvalidArgumentError(fields.error()->message);
  return RenderedChat(chat, model);
}

}  // namespace quire
