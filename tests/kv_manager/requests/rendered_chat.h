// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KV_MANAGER_REQUESTS_RENDERED_CHAT_H_
#define QUIRE_TESTS_KV_MANAGER_REQUESTS_RENDERED_CHAT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kv_manager/engine/served_model.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// Makes a model with this chat template and the special tokens <s> and </s>. If `source` calls strftime_now(), it gets
// "04 Jul 2026".
std::unique_ptr<ServedModel> ModelWithTemplate(const std::string& source);

// Returns the prompt that the template writes, or the error that the client gets.
absl::StatusOr<std::string> RenderedChat(const v1::Chat& chat, const ServedModel& model);

}  // namespace quire

#endif  // QUIRE_TESTS_KV_MANAGER_REQUESTS_RENDERED_CHAT_H_
