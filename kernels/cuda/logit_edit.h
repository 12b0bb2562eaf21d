#ifndef QUIRE_KERNELS_CUDA_LOGIT_EDIT_H_
#define QUIRE_KERNELS_CUDA_LOGIT_EDIT_H_

#include <cstdint>

#include "kernels/cuda/sampling_args.h"
#include "kernels/cuda/score.h"

// Steps 1 to 3 of kernels/sampling.h: bias, penalties and masks.

namespace quire::cuda {

template <int kThreads>
class LogitEdit {
 public:
  // Writes the scores of `row`, after everything that the packed row requests, to edited[row.size].
  static QUIRE_DEVICE void Run(const SamplingKernelArgs& args, const PackedSamplingRow* packed, const ScoreRow& row,
                               float* edited) {
    const MaskKind mask_kind = simt::LoadGlobal(&packed->mask_kind);
    CopyScores(row, mask_kind == MaskKind::kAllowed, edited);
    simt::SyncBlock();
    Mask(args.masks + simt::LoadGlobal(&packed->first_mask), simt::LoadGlobal(&packed->num_masks),
         mask_kind == MaskKind::kAllowed, row, edited);
    simt::SyncBlock();
    AddBiases(args.biases + simt::LoadGlobal(&packed->first_bias), simt::LoadGlobal(&packed->num_biases), edited);
    simt::SyncBlock();
    Penalize(args.penalties + simt::LoadGlobal(&packed->first_penalty), simt::LoadGlobal(&packed->num_penalties),
             edited);
    simt::SyncBlock();
  }

 private:
  // Extreme parameters must not turn a finite score into an infinity.
  static QUIRE_DEVICE float Finite(float x) {
    return x < -kLargestFloat ? -kLargestFloat : x > kLargestFloat ? kLargestFloat : x;
  }

  // Copies all scores, or writes -inf for all. Writes whole groups of four, for which `edited` has room.
  static QUIRE_DEVICE void CopyScores(const ScoreRow& row, bool only_infinities, float* edited) {
    ForEachFour<kThreads>(row, [&](int32_t first, const Scores4& values) {
      if (first >= row.size) return;
      simt::U32x4 words;
      QUIRE_UNROLL for (int i = 0; i < 4; ++i) {
        words.word[i] = FloatBits(only_infinities ? MinusInfinity() : row.Score(values.x[i]));
      }
      simt::StoreGlobal(reinterpret_cast<simt::U32x4*>(edited + first), words);
    });
  }

  static QUIRE_DEVICE void Mask(const int32_t* tokens, int num_tokens, bool are_allowed, const ScoreRow& row,
                                float* edited) {
    for (int i = simt::ThreadIndex(); i < num_tokens; i += kThreads) {
      const int32_t token = simt::LoadGlobal(tokens + i);
      const float score = are_allowed ? row.Score(simt::LoadGlobal(row.x + token)) : MinusInfinity();
      simt::StoreGlobal(edited + token, score);
    }
  }

  // The thread that has the first bias of a token adds all biases of that token in order.
  static QUIRE_DEVICE void AddBiases(const TokenBias* biases, int num_biases, float* edited) {
    for (int i = simt::ThreadIndex(); i < num_biases; i += kThreads) {
      const int32_t token = simt::LoadGlobal(&biases[i].token);
      if (i > 0 && simt::LoadGlobal(&biases[i - 1].token) == token) continue;
      float score = simt::LoadGlobal(edited + token);
      if (score < -kLargestFloat) continue;
      for (int j = i; j < num_biases && simt::LoadGlobal(&biases[j].token) == token; ++j) {
        score = Finite(score + simt::LoadGlobal(&biases[j].bias));
      }
      simt::StoreGlobal(edited + token, score);
    }
  }

  static QUIRE_DEVICE void Penalize(const TokenPenalty* penalties, int num_penalties, float* edited) {
    for (int i = simt::ThreadIndex(); i < num_penalties; i += kThreads) {
      const int32_t token = simt::LoadGlobal(&penalties[i].token);
      const float score = simt::LoadGlobal(edited + token), factor = simt::LoadGlobal(&penalties[i].factor);
      if (score < -kLargestFloat) continue;
      const float scaled = score < 0 ? score * factor : score / factor;
      simt::StoreGlobal(edited + token, Finite(scaled - simt::LoadGlobal(&penalties[i].frequency) -
                                               simt::LoadGlobal(&penalties[i].presence)));
    }
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_LOGIT_EDIT_H_
