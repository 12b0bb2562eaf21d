// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_CHAT_PROMPT_H_
#define QUIRE_KV_MANAGER_REQUESTS_CHAT_PROMPT_H_

#include <google/protobuf/repeated_field.h>

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv_manager/engine/served_model.h"
#include "kv_manager/jinja/text.h"
#include "kv_manager/rpc/rpc_status.h"
#include "quire/v1/inference.pb.h"

namespace quire {

inline constexpr int kMaxMessages = 4096;
inline constexpr int kMaxToolCalls = 4096;  // In a message. A long answer of a model may have many.
inline constexpr size_t kMaxRoleBytes = 64;

// Returns how much work it is to write a conversation as text and to tokenize it, as a number of bytes of ordinary
// text. It grows with the square of the number of messages and tool calls.
size_t TextWork(const v1::Chat& chat);

// Checks the conversation at `field` of a request and renders it with the chat template of the model. The text and what
// it becomes have at most `max_bytes`. Wrong fields are added to `errors`; then the text is empty. FAILED_PRECONDITION
// when the model has no chat template that can be used.
absl::StatusOr<jinja::Text> RenderChat(const v1::Chat& chat, const ServedModel& model, size_t max_bytes,
                                       const std::string& field, FieldErrors* errors);

// Returns for each of the pins how many bytes of `text`, which RenderChat has made of the conversation, its beginning
// has. REQUIRES: the pins name messages, parts and tool calls that are there.
std::vector<size_t> PrefixEnds(const v1::Chat& chat, const google::protobuf::RepeatedPtrField<v1::PrefixPin>& pins,
                               const ServedModel& model, const jinja::Text& text, size_t max_bytes);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_CHAT_PROMPT_H_
