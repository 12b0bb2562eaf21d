// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_SAMPLES_VALIDATION_H_
#define QUIRE_KV_MANAGER_REQUESTS_SAMPLES_VALIDATION_H_

#include "kv_manager/requests/request_validation.h"
#include "kv_manager/rpc/rpc_status.h"
#include "quire/v1/inference.pb.h"

namespace quire {

inline constexpr int kMaxSamples = 256;  // The largest n and best_of.
inline constexpr int kMaxBeams = 256;
inline constexpr float kMaxLengthPenalty =
    5;  // Positive or negative. Keeps length^penalty far from the limits of float.
inline constexpr float kMaxDiversityPenalty = 100;

// Checks and converts n, best_of and beam: how many sequences a request generates, and which of them it returns. A part
// of ValidateGenerate. REQUIRES: all other fields were read into `out`.
void ReadSamples(const v1::GenerateRequest& in, ValidRequest* out, FieldErrors* errors);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_SAMPLES_VALIDATION_H_
