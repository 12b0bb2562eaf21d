// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_PIN_VALIDATION_H_
#define QUIRE_KV_MANAGER_REQUESTS_PIN_VALIDATION_H_

#include <cstdint>

#include "kv_manager/engine/served_model.h"
#include "kv_manager/jinja/text.h"
#include "kv_manager/requests/inference_options.h"
#include "kv_manager/requests/request_validation.h"
#include "kv_manager/rpc/rpc_status.h"
#include "quire/v1/inference.pb.h"

namespace quire {

inline constexpr int kMaxRequestPins = 4;
inline constexpr uint32_t kDefaultRequestPinSeconds = 300;
inline constexpr uint32_t kMaxPinSeconds = 24 * 60 * 60;

// Checks the pins of a request and finds their tokens. `text` is the conversation of the request as the prompt. If it
// is empty, because another field is wrong, the pins are only checked.
void ReadPins(const v1::GenerateRequest& in, const ServedModel& model, const RequestLimits& limits,
              const jinja::Text& text, Request* request, FieldErrors* errors);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_PIN_VALIDATION_H_
