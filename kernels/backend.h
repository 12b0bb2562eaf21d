#ifndef QUIRE_KERNELS_BACKEND_H_
#define QUIRE_KERNELS_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/kv_layout.h"
#include "kernels/sampling.h"
#include "kernels/types.h"

namespace quire {

// A weight matrix in the form the backend multiplies fastest, made once at load. Opaque.
class PackedMatrix {
 public:
  virtual ~PackedMatrix() = default;
};

// A source matrix for packing, row-major [rows, cols] in the precision of its file. Borrowed for the call.
struct MatrixView {
  const void* data;
  int rows;
  int cols;
  DataType type;
};

// The tokens of one step in flat arrays, sequence after sequence. All arrays are in backend memory.
struct BatchView {
  int num_tokens;
  int num_sequences;
  const int32_t* token_ids;      // [num_tokens]
  const int32_t* positions;      // [num_tokens]
  const int64_t* slots;          // [num_tokens], slot = block * block_size + offset
  const int32_t* query_starts;   // [num_sequences + 1], first row of each sequence in the token arrays
  const int32_t* context_lens;   // [num_sequences], tokens in the cache after this step's are stored
  const int32_t* table_starts;   // [num_sequences + 1], first entry of each block table in block_tables
  const uint32_t* block_tables;  // [table_starts[num_sequences]]
};

// y[num_tokens, rows] = x[num_tokens, cols] * w^T (+ bias) (+ residual); residual may be y itself.
struct LinearArgs {
  const void* x;
  const PackedMatrix* w;
  const float* bias;     // [rows] or null.
  const void* residual;  // [num_tokens, rows] or null.
  void* y;
  int num_tokens;
};

// y = x / sqrt(mean(x^2) + epsilon) * weight over rows of `dim`; y may be x.
struct RmsNormArgs {
  const void* x;        // [num_rows, dim]
  const float* weight;  // [dim]
  void* y;              // [num_rows, dim]
  int num_rows;
  int dim;
  float epsilon;
};

// Per head of Q and K: optional RMS norm over head_dim (Qwen3), then rotation by position (half-split, "rotate_half");
// K and V then go to their slots of the pool. qkv is [num_tokens, (num_heads + 2 * num_kv_heads) * head_dim], Q rotated
// in place.
struct RopeAppendArgs {
  const BatchView* batch;
  void* qkv;
  int num_heads;
  const float* q_norm;  // [head_dim] or null.
  const float* k_norm;  // [head_dim] or null.
  float norm_epsilon;
  const float* inv_freq;    // [rotary_dim / 2], scaling already applied.
  int rotary_dim;           // Leading dimensions of each head that rotate; head_dim as a rule.
  float attention_scaling;  // Factor on cos and sin; 1 except for some scaled rotaries.
  const KvLayout* layout;
  void* kv_pool;  // This layer's pool.
};

// Causal attention of each sequence's queries over its blocks: decode and (chunked) prefill are the same call.
// out[t, h] = softmax(q k^T * scale) v over cached positions in (p - window, p], p the query's position.
struct AttentionArgs {
  const BatchView* batch;
  const void* q;  // [num_tokens, q_stride], the first num_heads * head_dim of a row.
  int q_stride;   // Elements from one token's queries to the next.
  void* out;      // [num_tokens, num_heads * head_dim]
  int num_heads;
  float scale;  // 1 / sqrt(head_dim) as a rule.
  int window;   // Sliding window in tokens; 0: none.
  const KvLayout* layout;
  const void* kv_pool;  // This layer's pool.
};

struct BlockCopyArgs {
  const uint32_t* sources;       // [num_copies], host memory.
  const uint32_t* destinations;  // [num_copies], host memory. No block is both source and destination.
  int num_copies;
  const KvLayout* layout;
  void* const* kv_pools;  // [num_layers]
};

// A device: its memory and the operations that a dense decoder needs, in the order of one stream. One implementation
// for CPUs, one for GPUs. Activations are float32 on the CPU. Owned by the executor thread. Results do not depend on
// the batch: every output element is accumulated in a fixed order.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string Description() const = 0;          // For example "cpu avx512_bf16, 8 threads".
  virtual std::string NumericsFingerprint() const = 0;  // Equal fingerprints give equal bits.

  // Zeroed memory, aligned to 64 bytes; null when there is not enough.
  virtual void* Allocate(size_t bytes) = 0;
  virtual void Free(void* memory) = 0;
  virtual void CopyToDevice(void* destination, const void* source, size_t bytes) = 0;
  virtual void CopyToHost(void* destination, const void* source, size_t bytes) = 0;
  virtual size_t ActivationSize() const = 0;  // Bytes per activation element.

  // Several matrices with the same number of columns are stacked in row order (fused QKV, fused gate|up).
  virtual std::unique_ptr<PackedMatrix> Pack(const MatrixView* matrices, int num_matrices) = 0;

  // y[i, :] = table[token_ids[i], :]. `table` was packed from the embedding matrix.
  virtual void Embed(const PackedMatrix& table, const int32_t* token_ids, int num_tokens, void* y) = 0;
  virtual void Linear(const LinearArgs& args) = 0;
  virtual void RmsNorm(const RmsNormArgs& args) = 0;
  virtual void RopeAppend(const RopeAppendArgs& args) = 0;
  virtual void Attention(const AttentionArgs& args) = 0;
  // y[t, i] = silu(x[t, i]) * x[t, dim + i]; x is [num_tokens, 2 * dim].
  virtual void SiluMul(const void* x, void* y, int num_tokens, int dim) = 0;
  // y[i, :] = x[rows[i], :]; rows in backend memory.
  virtual void GatherRows(const void* x, const int32_t* rows, int num_rows, int dim, void* y) = 0;
  virtual void CopyBlocks(const BlockCopyArgs& args) = 0;
  // Reads logits [num_rows, vocab_size] float32 in backend memory; writes host memory. Waits for the result.
  virtual void Sample(const SamplingArgs& args) = 0;
};

// A backend that uses `num_threads` threads (0: one per core).
std::unique_ptr<Backend> MakeCpuBackend(int num_threads);

}  // namespace quire

#endif  // QUIRE_KERNELS_BACKEND_H_
