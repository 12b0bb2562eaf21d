// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_MOE_READER_H_
#define QUIRE_WORKER_MODEL_MOE_READER_H_

#include "absl/status/status.h"
#include "worker/model/config.h"
#include "worker/model/decoder_family.h"
#include "worker/model/json_reader.h"

namespace quire {

// Returns an error if a config.json of an architecture without experts has a number of experts above 1.
absl::Status CheckNoExperts(const JsonFields& fields, absl::string_view architecture);

// Reads from config.json the experts of a family that has some: `moe` of the config, and is_moe of its layers.
// REQUIRES: family.moe is not null, and a family with multipliers has no shared expert; intermediate_size and the
// layers of the config are set. Fails like ParseModelConfig.
absl::Status ReadMoe(const JsonFields& fields, const DecoderFamily& family, ModelConfig* config);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_MOE_READER_H_
