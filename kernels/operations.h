// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_OPERATIONS_H_
#define QUIRE_KERNELS_OPERATIONS_H_

#include <cstdint>
#include <memory>

#include "kernels/activate.h"
#include "kernels/attention.h"
#include "kernels/backend_status.h"
#include "kernels/batch.h"
#include "kernels/block_copy.h"
#include "kernels/blocks.h"
#include "kernels/experts.h"
#include "kernels/linear.h"
#include "kernels/norm.h"
#include "kernels/optional_part.h"
#include "kernels/rank_sums.h"
#include "kernels/rope.h"
#include "kernels/sampling.h"
#include "kernels/types.h"

namespace quire {

// Which numbers of a checkpoint of kFp8 share a scale: the numbers of a row at least, of a block of 128 rows (or a
// multiple) and 128 columns, or of another block.
enum class Fp8ScaleShape : uint8_t { kRows, kBlocks128, kOtherBlocks };

// The operations that a decoder needs. They take effect in the order of the calls. On an asynchronous backend an
// operation may still be running when its call returns (see Backend::Mark). Pointers are to memory of the device unless
// a comment says otherwise. Used by one thread.
class Operations {
 public:
  virtual ~Operations() = default;

  // The type of all activations except the inputs of matrices, for which see InputType.
  virtual DataType ActivationType() const = 0;
  // Returns whether the operations have a part that only some models need.
  virtual bool Has(OptionalPart part) const = 0;

  // Copies matrices into the layout that Linear reads, or returns null when there is not enough memory. The matrices
  // have the same number of columns and are stacked in row order, as for a fused QKV projection. On a CPU the packed
  // form has the type of the sources, or float32 when they differ; on a GPU it has the type of the backend.
  virtual std::unique_ptr<PackedMatrix> Pack(const MatrixView* matrices, int num_matrices) = 0;
  // Does the same for GatedLinear with the two matrices of a gated MLP, which have the same shape.
  virtual std::unique_ptr<PackedMatrix> PackGated(const MatrixView& gate, const MatrixView& up) = 0;
  // Returns whether the next two functions work.
  virtual bool MultipliesQuantized() const { return false; }
  // They do the same for quantized matrices, which have the same format and groups. QuantizedFormat says whether a
  // product rounds its input; the sums of products of whole numbers are exact. REQUIRES: MultipliesQuantized().
  virtual std::unique_ptr<PackedMatrix> PackQuantized(const QuantizedMatrixView* /*matrices*/, int /*num_matrices*/) {
    return nullptr;
  }
  virtual std::unique_ptr<PackedMatrix> PackGatedQuantized(const QuantizedMatrixView& /*gate*/,
                                                           const QuantizedMatrixView& /*up*/) {
    return nullptr;
  }
  // Returns whether products by matrices of this format round their input as QuantizedFormat says. Otherwise the input
  // of each of them is the same as in products by matrices that are not quantized, and so it is in products by stacks
  // of kBlocks128 in which blocks are not whole. `scales` has a meaning for kFp8.
  virtual bool RoundsQuantizedInputs(QuantizedFormat /*format*/, Fp8ScaleShape /*scales*/) const { return true; }
  // Compares products by `w`, which was packed from these matrices, with their formula. A backend may do that for the
  // first matrix of each format alone. The error says what is wrong. REQUIRES: MultipliesQuantized().
  virtual BackendStatus CheckQuantized(const PackedMatrix& /*w*/, const QuantizedMatrixView* /*matrices*/,
                                       int /*num_matrices*/) {
    return BackendStatus::Ok();
  }
  // Returns whether products by matrices of kFp8 are worth their memory. Otherwise the caller converts such matrices to
  // bfloat16 and calls Pack. REQUIRES: MultipliesQuantized(), if it is true.
  virtual bool MultipliesFp8() const { return false; }
  // Returns whether products by matrices in blocks work and are worth their memory. Otherwise the caller converts such
  // matrices and calls Pack.
  virtual bool MultipliesBlocks() const { return false; }
  // They do the same as Pack and PackGated for matrices in blocks. A stack may have blocks of several types, a gated
  // matrix has one. REQUIRES: MultipliesBlocks().
  virtual std::unique_ptr<PackedMatrix> PackBlocks(const BlockMatrixView* /*matrices*/, int /*num_matrices*/) {
    return nullptr;
  }
  virtual std::unique_ptr<PackedMatrix> PackGatedBlocks(const BlockMatrixView& /*gate*/,
                                                        const BlockMatrixView& /*up*/) {
    return nullptr;
  }
  // The type that the input of a multiplication by `w` must have. Operations that produce it round to this type.
  virtual DataType InputType(const PackedMatrix& w) const = 0;
  // The layout in which a multiplication of `num_tokens` rows by `w` reads its input fastest. Operations that produce
  // it write this layout when they are told to. Every multiplication takes rows, too.
  virtual InputLayout InputLayoutOf(const PackedMatrix& /*w*/, int /*num_tokens*/) const { return InputLayout::kRows; }

  // Copies the arrays of a step from host memory to where the operations below read them. Returns as many views to pass
  // to them, which are valid until the next call. A returned view may have more tokens than its original, up to
  // `max_tokens`. The additional tokens have no meaning, and their K and V are stored nowhere.
  virtual const BatchView* PrepareBatch(const BatchView* views, int num_views, int max_tokens) = 0;

  // y[i, :] = table[token_ids[i], :] * scale. The ids come from the prepared batch. `table` was packed from the
  // embedding matrix. REQUIRES: Has(OptionalPart::kScaledEmbeddings), unless the scale is 1.
  virtual void Embed(const PackedMatrix& table, const int32_t* token_ids, int num_tokens, float scale, void* y) = 0;
  // Rounds activations to the type that the input of a matrix has. REQUIRES: Has(OptionalPart::kNormedOutputs), and
  // `y_type` is not ActivationType().
  virtual void Round(const void* x, int num_rows, int dim, DataType y_type, void* y) = 0;
  virtual void Linear(const LinearArgs& args) = 0;
  virtual void GatedLinear(const GatedLinearArgs& args) = 0;
  // Both need OptionalPart::kExperts.
  virtual void Route(const RouteArgs& args) = 0;
  virtual void ExpertMlp(const ExpertMlpArgs& args) = 0;
  // REQUIRES: Has(OptionalPart::kPlainMlp).
  virtual void Activate(const ActivateArgs& args) = 0;
  // These need OptionalPart::kRanks, and wait for the other ranks. When the group has ended, what they were to write is
  // undefined, and Collective::Status says why. On an asynchronous backend, the group is that of Backend::SetGroup, or
  // a LoopbackCollective. ExchangeRows is for other backends.
  virtual void AddParts(const AddPartsArgs& args) = 0;
  virtual void GatherColumns(const GatherColumnsArgs& args) = 0;
  virtual void ExchangeRows(const ExchangeRowsArgs& args) = 0;
  virtual void RmsNorm(const RmsNormArgs& args) = 0;
  virtual void RopeAppend(const RopeAppendArgs& args) = 0;
  virtual void Attention(const AttentionArgs& args) = 0;
  // y[i, :] = x[rows[i], :]. `rows` is in host memory.
  virtual void GatherRows(const void* x, const int32_t* rows, int num_rows, int dim, void* y) = 0;
  // values[i, :] = x[i, :] as float32, for rows of activations. `values` is in host memory, and is there when a mark
  // behind the call is done. It may wait for the operations before it.
  virtual void ReadRows(const void* x, int num_rows, int dim, float* values) = 0;
  virtual void CopyBlocks(const BlockCopyArgs& args) = 0;
  virtual void SwapBlocks(const BlockSwapArgs& args) = 0;

  // Makes `num_places` places on the device for drawn tokens (SamplingArgs), and forgets all tokens in earlier places.
  // REQUIRES: the backend is asynchronous.
  virtual void KeepDrawnTokens(int num_places) = 0;
  // Reads logits [num_rows, vocab_size] float32 and writes the results to host memory.
  virtual void Sample(const SamplingArgs& args) = 0;
};

}  // namespace quire

#endif  // QUIRE_KERNELS_OPERATIONS_H_
