#ifndef QUIRE_WORKER_MODEL_QUANTIZATION_CONFIG_H_
#define QUIRE_WORKER_MODEL_QUANTIZATION_CONFIG_H_

#include "absl/status/statusor.h"
#include "worker/model/json_reader.h"
#include "worker/model/quantize.h"

namespace quire {

// Reads the field quantization_config of config.json, which says how the checkpoint stores the matrices of the layers.
// `root` reads the whole file. Without the field, the result is kNone. The one supported kind is that of
// compressed-tensors with whole numbers of 8 bits, a scale per row, and inputs that are rounded per token while the
// model runs. The error for every other kind names the field, its value and what is supported.
//
// The lists of layers in the file (`targets`, `ignore`) are not read, because the type of each tensor tells whether the
// layer is quantized.
absl::StatusOr<Quantization> ReadQuantizationConfig(const JsonFields& root);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_QUANTIZATION_CONFIG_H_
