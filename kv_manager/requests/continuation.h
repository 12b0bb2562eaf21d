// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_CONTINUATION_H_
#define QUIRE_KV_MANAGER_REQUESTS_CONTINUATION_H_

#include "kv_manager/engine/served_model.h"
#include "kv_manager/requests/request_validation.h"
#include "kv_manager/rpc/rpc_status.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// Checks and converts continue_from: which tokens the samples have already, and which samples they have ended. A part
// of ValidateGenerate. REQUIRES: all other fields were read into `out`; `errors` has what is wrong with them.
void ReadContinuation(const v1::GenerateRequest& in, const ServedModel& model, ValidRequest* out, FieldErrors* errors);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_CONTINUATION_H_
