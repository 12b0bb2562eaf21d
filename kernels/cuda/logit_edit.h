// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_LOGIT_EDIT_H_
#define QUIRE_KERNELS_CUDA_LOGIT_EDIT_H_

#include <cstdint>

#include "kernels/cuda/block_select.h"
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
    Penalize(args, packed, edited);
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

  static QUIRE_DEVICE void Penalize(const SamplingKernelArgs& args, const PackedSamplingRow* packed, float* edited) {
    const TokenPenalty* const penalties = args.penalties + simt::LoadGlobal(&packed->first_penalty);
    const int num_penalties = simt::LoadGlobal(&packed->num_penalties);
    const int32_t place = simt::LoadGlobal(&packed->pending_place);
    const int32_t pending = place < 0 ? -1 : simt::LoadGlobal(args.drawn_tokens + place);
    uint64_t is_listed = 0;  // Whether the thread has found the pending token.
    for (int i = simt::ThreadIndex(); i < num_penalties; i += kThreads) {
      const int32_t token = simt::LoadGlobal(&penalties[i].token);
      if (token == pending) {
        is_listed = 1;
        PenalizePending(packed, token, simt::LoadGlobal(&penalties[i].frequency_with_pending), edited);
      } else {
        PenalizeToken(token, simt::LoadGlobal(&penalties[i].factor), simt::LoadGlobal(&penalties[i].frequency),
                      simt::LoadGlobal(&penalties[i].presence), edited);
      }
    }
    if (pending < 0) return;
    const bool is_new = BlockSelect<kThreads>::Sum(is_listed) == 0;
    if (is_new && simt::ThreadIndex() == 0) {
      PenalizePending(packed, pending, simt::LoadGlobal(&packed->pending_frequency), edited);
    }
  }

  static QUIRE_DEVICE void PenalizePending(const PackedSamplingRow* packed, int32_t token, float frequency,
                                           float* edited) {
    PenalizeToken(token, simt::LoadGlobal(&packed->pending_factor), frequency,
                  simt::LoadGlobal(&packed->pending_presence), edited);
  }

  static QUIRE_DEVICE void PenalizeToken(int32_t token, float factor, float frequency, float presence, float* edited) {
    const float score = simt::LoadGlobal(edited + token);
    if (score < -kLargestFloat) return;
    const float scaled = score < 0 ? score * factor : score / factor;
    simt::StoreGlobal(edited + token, Finite(scaled - frequency - presence));
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_LOGIT_EDIT_H_
