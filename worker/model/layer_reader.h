// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_LAYER_READER_H_
#define QUIRE_WORKER_MODEL_LAYER_READER_H_

#include "absl/status/status.h"
#include "worker/model/config.h"
#include "worker/model/decoder_family.h"
#include "worker/model/json_reader.h"

namespace quire {

// Reads from config.json which layers have a sliding window and how each layer rotates Q and
// K. It sets `layers`, `rope` and `window_rope` of the config. REQUIRES: num_layers, head_dim and
// max_position_embeddings of the config are set. With longrope and without `is_long`, max_position_embeddings becomes
// the original context. Fails like ParseModelConfig.
absl::Status ReadLayers(const JsonFields& fields, const DecoderFamily& family, bool is_long, ModelConfig* config);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_LAYER_READER_H_
