// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MEMORY_EXPLANATION_H_
#define QUIRE_WORKER_MEMORY_EXPLANATION_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/kv_layout.h"
#include "worker/model/config.h"
#include "worker/model/quantize.h"
#include "worker/pool_size.h"
#include "worker/worker_limits.h"

namespace quire {

// How weights are stored in memory: all in float32, all in a type of 16 bits, or the layers in int8, int4 (in groups of
// 128, or as in a checkpoint of 4 bits) or FP8 (with a scale per row, or with blocks as in a checkpoint of FP8) and the
// others in a type of 16 bits.
enum class WeightWidth { k32, k16, kInt8, kInt4, kFp8 };

// Numbers of some matrices.
struct MatrixNumbers {
  int64_t weights = 0;  // Elements.
  int64_t rows = 0;     // Each has a scale in int8.
  int64_t groups = 0;   // Groups of MemoryNeeds::int4_group columns of these rows. Each has a scale in int4.
  int64_t blocks = 0;   // Groups of these rows that have a scale in FP8.
};

// The memory of a model, or of a rank's part of it (ShardOf), on a CPU, without the padding of matrices to whole
// panels, which is small.
struct MemoryNeeds {
  int64_t num_weights;  // All parameters.
  int64_t
      num_active_weights;    // Those that a token uses, of a whole model: without the experts that it does not choose.
  int64_t router_weights;    // Of routers to experts, which are float32 in memory.
  int int4_group;            // At most kMaxInt4Group.
  MatrixNumbers layers;      // All matrices of the layers.
  MatrixNumbers plain;       // The ones that a quantized checkpoint does not store quantized.
  WeightWidth stored_width;  // Width of the other matrices of the layers in the checkpoint; k16 if it is not quantized.
  int64_t kv_numbers;        // Numbers of K and V of one token in all layers.
  int64_t kv_heads;          // K and V heads of one token in all layers, each with a scale in int8.
};

MemoryNeeds MemoryNeedsOf(const ModelConfig& config);
// Returns the width of matrices that are multiplied in this way. Unquantized ones have the width `plain`.
WeightWidth WidthOf(Quantization layers, WeightWidth plain);
// In the width in which the checkpoint stores them, matrices that it does not quantize have 16 bits.
int64_t WeightBytes(const MemoryNeeds& needs, WeightWidth width);
// The same on a GPU, where no weight has 32 bits and a zero point has one byte.
int64_t GpuWeightBytes(const MemoryNeeds& needs, WeightWidth width);
int64_t KvBytesPerToken(const MemoryNeeds& needs, KvType type);

// Returns the bytes that rounding the output matrix to 8 bits adds to weights whose numbers have `plain_bytes`. They
// may be negative.
int64_t AddedByRoundedOutput(const ModelConfig& config, int plain_bytes);
// Returns the bytes of all weights on a CPU, without padding. `held` says how they are in memory.
int64_t WeightBytesOnCpu(const ModelConfig& config, const WeightRounding& held);
// Returns how the matrices of the layers are in memory, in words: "int8", "fp8 with a scale for each row", or
// "bfloat16, converted from FP8, which this device does not multiply". Unquantized ones have the type
// `plain`.
std::string HeldWeights(const CheckpointQuantization& stored, Quantization held, DataType plain);

// Returns what is said before HeldWeights, "blocks of Q4_K, Q6_K as in the file, others in ", if some weights are so in
// memory, and otherwise "".
std::string HeldBlocks(const CheckpointQuantization& stored, const WeightRounding& held);

// Returns the number of weights, and of a model with experts also how many of them a token uses: "30.532 billion
// weights, 3.353 billion for a token (8 of 128 experts)".
std::string WeightNumbers(const ModelConfig& config, const MemoryNeeds& needs);

// Returns a line about the shape of the model.
std::string ModelLine(const ModelConfig& config, const MemoryNeeds& needs);

// Returns some lines for a person: the bytes of the weights for each width, the bytes of K and V of a token, a block
// and a sequence of 4096 tokens (or of the context, if that is shorter) for each type, and how many such sequences fit
// into `available_bytes` beside the weights. For a part of a model, it explains one of `ranks_of_host` ranks, of which
// each has `available_bytes`. The last line says what is different on a GPU (gpu_memory.h tells more).
std::string ExplainMemory(const ModelConfig& config, int block_size, int64_t available_bytes, int ranks_of_host = 1);

// Describes what a worker with some command line holds of a model: its weights, and the pool beside them.
struct MemoryChoice {
  std::string weights;  // HeldWeights describes them like this.
  int64_t weight_bytes;
  KvLayout layout;
  PoolRequest pool;
  WorkerLimits limits;  // The number of blocks is not read.
  int64_t left_bytes;   // Beside the weights.
};

// Returns some lines about what a worker with this command line would use. When it would not get a pool, it fails like
// PlanPool. REQUIRES: left_bytes is not negative.
absl::StatusOr<std::string> ExplainChoice(const MemoryChoice& choice);

}  // namespace quire

#endif  // QUIRE_WORKER_MEMORY_EXPLANATION_H_
