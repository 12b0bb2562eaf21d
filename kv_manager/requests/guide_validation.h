// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_GUIDE_VALIDATION_H_
#define QUIRE_KV_MANAGER_REQUESTS_GUIDE_VALIDATION_H_

#include <cstddef>
#include <optional>

#include "absl/status/status.h"
#include "kv_manager/engine/served_model.h"
#include "kv_manager/requests/guide_cache.h"
#include "kv_manager/requests/request_validation.h"
#include "kv_manager/rpc/rpc_status.h"
#include "quire/v1/inference.pb.h"
#include "security/caller.h"

namespace quire {

// Returns how much work the guide is, in the unit of TextWork. It is much if the guide is to be compiled.
size_t GuideWork(const v1::GenerateRequest& in, const std::optional<Caller>& caller, const GuideCache& guides);
inline size_t GuideWork(const v1::ResumeRequest& /*in*/, const std::optional<Caller>& /*caller*/,
                        const GuideCache& /*guides*/) {
  return 0;
}

// Checks and converts guided: what the output must be. It compiles the guide as a worker does, so that no worker gets
// one that it cannot use, unless `guides` knows it already. `guides` may be null. A part of ValidateGenerate. Returns
// FAILED_PRECONDITION when the model has no tokenizer or no end token, and RESOURCE_EXHAUSTED as GuideCache::Check
// does. REQUIRES: the request has a guide; `continued` was read into `out`.
absl::Status ReadGuide(const v1::GenerateRequest& in, const ServedModel& model, const GuideUser& user,
                       GuideCache* guides, ValidRequest* out, FieldErrors* errors);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_GUIDE_VALIDATION_H_
