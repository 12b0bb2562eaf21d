#ifndef QUIRE_KV_MANAGER_REQUESTS_SAMPLES_VALIDATION_H_
#define QUIRE_KV_MANAGER_REQUESTS_SAMPLES_VALIDATION_H_

#include "kv_manager/requests/request_validation.h"
#include "kv_manager/rpc/rpc_status.h"
#include "quire/v1/inference.pb.h"

namespace quire {

inline constexpr int kMaxSamples = 256;  // n and best_of.
inline constexpr int kMaxBeams = 256;
inline constexpr float kMaxLengthPenalty = 5;  // Either way: length^penalty stays far from the ends of float.
inline constexpr float kMaxDiversityPenalty = 100;

// How many sequences a request wants and how they are picked: checks n, best_of and beam, and converts them. A part of
// ValidateGenerate. REQUIRES: all other fields were read into `out`.
void ReadSamples(const v1::GenerateRequest& in, ValidRequest* out, FieldErrors* errors);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_SAMPLES_VALIDATION_H_
