#ifndef QUIRE_KERNELS_BACKEND_H_
#define QUIRE_KERNELS_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "kernels/attention.h"
#include "kernels/batch.h"
#include "kernels/block_copy.h"
#include "kernels/kv_layout.h"
#include "kernels/linear.h"
#include "kernels/norm.h"
#include "kernels/rope.h"
#include "kernels/sampling.h"
#include "kernels/types.h"

namespace quire {

// A device: its memory and the operations that a dense decoder needs, in the order of one stream. One implementation
// for CPUs, one for GPUs. Owned by the executor thread. Results do not depend on the batch, every output element being
// accumulated in a fixed order, unless the fingerprint says "tuned".
class Backend {
 public:
  virtual ~Backend() = default;

  // The calling thread is the one that will call the operations: it and others that compute may be bound to cores.
  virtual void BindThreads() = 0;

  virtual std::string Description() const = 0;          // For example "cpu avx512_bf16, 8 threads".
  virtual std::string NumericsFingerprint() const = 0;  // Equal ones give equal bits, unless "tuned".

  // Whether operations may be under way when their calls return. The host may then queue a step while the one before it
  // runs. Otherwise they are done when the call returns.
  virtual bool IsAsynchronous() const = 0;
  // Names this point of the work; marks grow.
  virtual uint64_t Mark() = 0;
  // Whether everything before the mark is done, so that what it writes in memory of the host is there.
  virtual bool IsDone(uint64_t mark) = 0;
  virtual void Wait(uint64_t mark) = 0;  // Until it is.

  // Why the backend cannot work on K and V of that layout, with so many query heads; empty when it can.
  virtual std::string WhyNot(const KvLayout& layout, int num_heads) const = 0;
  // Takes the memory that steps of up to `max_tokens` in contexts of up to `max_context_tokens` may need, besides what
  // Allocate is asked for. Why there is not enough; empty when there is. REQUIRES: WhyNot is empty.
  virtual std::string Reserve(const KvLayout& layout, int num_heads, int max_tokens, int max_context_tokens) = 0;

  // Memory that is left for Allocate; none: as much as the host has.
  virtual std::optional<size_t> FreeBytes() const = 0;
  // Zeroed memory, aligned to 64 bytes; null when there is not enough.
  virtual void* Allocate(size_t bytes) = 0;
  virtual void Free(void* memory) = 0;
  // Zeroed memory of the host, aligned to 64 bytes, for SwapBlocks: what the device copies to and from fastest. Null
  // when there is not enough.
  virtual void* AllocateHost(size_t bytes) = 0;
  virtual void FreeHost(void* memory) = 0;
  virtual void CopyToDevice(void* destination, const void* source, size_t bytes) = 0;
  virtual void CopyToHost(void* destination, const void* source, size_t bytes) = 0;

  // Of activations, but for inputs of matrices (InputType).
  virtual DataType ActivationType() const = 0;

  // Several matrices with the same number of columns are stacked in row order (fused QKV). The packed form has the type
  // of the sources (float32 when they differ) on CPUs, the backend's on GPUs. Null when there is not enough memory.
  virtual std::unique_ptr<PackedMatrix> Pack(const MatrixView* matrices, int num_matrices) = 0;
  // The two matrices of a gated MLP, of the same shape, for GatedLinear. Null when there is not enough memory.
  virtual std::unique_ptr<PackedMatrix> PackGated(const MatrixView& gate, const MatrixView& up) = 0;
  // What the input of a multiplication by `w` has to be: its producers round to this type as they write it.
  virtual DataType InputType(const PackedMatrix& w) const = 0;

  // Makes places for drawn tokens; REQUIRES: IsAsynchronous(). Those there were are forgotten.
  virtual void KeepDrawnTokens(int num_places) = 0;

  // Makes the arrays of a step, in host memory, ready for the operations below: they take the answer, which is valid
  // until the next call. It may have more tokens, up to `max_tokens`, without meaning: their K and V go nowhere.
  virtual const BatchView& PrepareBatch(const BatchView& batch, int max_tokens) = 0;
  // Stand around the operations of a prepared batch from Embed to the last layer. True: they have been queued as they
  // were recorded for an earlier batch, and the caller leaves them out. `model` stands for the caller, whose operations
  // and addresses may differ by the number of tokens only.
  virtual bool BeginLayers(const void* model) = 0;
  virtual void EndLayers() = 0;

  // y[i, :] = table[token_ids[i], :], ids of the prepared batch. `table` was packed from the embedding matrix.
  virtual void Embed(const PackedMatrix& table, const int32_t* token_ids, int num_tokens, void* y) = 0;
  virtual void Linear(const LinearArgs& args) = 0;
  virtual void GatedLinear(const GatedLinearArgs& args) = 0;
  virtual void RmsNorm(const RmsNormArgs& args) = 0;
  virtual void RopeAppend(const RopeAppendArgs& args) = 0;
  virtual void Attention(const AttentionArgs& args) = 0;
  // y[i, :] = x[rows[i], :]; rows in host memory.
  virtual void GatherRows(const void* x, const int32_t* rows, int num_rows, int dim, void* y) = 0;
  virtual void CopyBlocks(const BlockCopyArgs& args) = 0;
  virtual void SwapBlocks(const BlockSwapArgs& args) = 0;
  // Reads logits [num_rows, vocab_size] float32 in backend memory; writes host memory, by a later mark.
  virtual void Sample(const SamplingArgs& args) = 0;
};

// A backend that uses `num_threads` threads (0: one per core).
std::unique_ptr<Backend> MakeCpuBackend(int num_threads);

}  // namespace quire

#endif  // QUIRE_KERNELS_BACKEND_H_
