// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_GUIDE_VALIDATION_H_
#define QUIRE_KV_MANAGER_REQUESTS_GUIDE_VALIDATION_H_

#include "absl/status/status.h"
#include "kv_manager/engine/served_model.h"
#include "kv_manager/requests/request_validation.h"
#include "kv_manager/rpc/rpc_status.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// Checks and converts guided: what the output must be. It compiles the guide as a worker does, so that no worker gets
// one that it cannot use. A part of ValidateGenerate. Returns FAILED_PRECONDITION when the model has no tokenizer or no
// end token. REQUIRES: the request has a guide; `continued` was read into `out`.
absl::Status ReadGuide(const v1::GenerateRequest& in, const ServedModel& model, ValidRequest* out, FieldErrors* errors);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_GUIDE_VALIDATION_H_
