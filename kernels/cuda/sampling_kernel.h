// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_SAMPLING_KERNEL_H_
#define QUIRE_KERNELS_CUDA_SAMPLING_KERNEL_H_

#include <cstdint>

#include "kernels/cuda/block_select.h"
#include "kernels/cuda/logit_edit.h"
#include "kernels/cuda/sampling_args.h"
#include "kernels/cuda/score.h"

namespace quire::cuda {

// Draws and scores tokens, one row per thread block at a time. The result of a row depends only on its own inputs and
// not even on the number of threads, because sums are of integers. Passes over the vocabulary:
//   greedy                     1, for the largest logit
//   plain, min-p               2, for the noise of every token that can still win
//   top-k, top-p               2, if the kept tokens are among the few that the second pass lists
//   top-n-sigma                2 more, for the range and the standard deviation of the scores
//   XTC                        2 more when it drops tokens, unless the kept tokens are in the list
//   bias, penalties, masks     2 more, because the first pass sees only the raw logits
//   logprobs                   1 more, and another one for a list of the best
template <int kBlockThreads>
class SamplingKernel {
 public:
  using Args = SamplingKernelArgs;
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kSharedBytes = sizeof(SelectMemory);

  static QUIRE_DEVICE void Run(const SamplingKernelArgs& args) {
    simt::WaitForPriorGrid();
    for (int row = simt::BlockIndex(); row < args.num_rows; row += simt::GridSize()) {
      RunRow(args, row);
      simt::SyncBlock();  // Other threads may still read the scratch memory.
    }
    simt::TriggerNextGrid();
  }

 private:
  using Block = BlockSelect<kThreads>;

  // Rank, among the best tokens of all threads, of the bound for the quick search of top-p.
  static constexpr int kQuickMassRank = kThreads / 8;
  static constexpr uint64_t kNotFinite = ~uint64_t{0};

  // Rank keys of the best tokens of a row; 0 means none.
  struct Best {
    uint64_t of_thread;  // The best among the tokens of this thread.
    uint64_t of_row;     // kNotFinite when there is an infinity or a NaN.
  };
  struct TokenScore {
    double log_total;  // ln of the sum of exp(logit).
    int32_t rank;
  };

  static QUIRE_DEVICE void RunRow(const SamplingKernelArgs& args, int index) {
    const PackedSamplingRow* const packed = args.rows + index;
    const int64_t logit_row = simt::LoadGlobal(&packed->logit_row);
    const ScoreRow logits = ScoreRow::Raw(args.logits + logit_row * args.vocab_size, args.vocab_size);
    ScoredCandidate* const top = args.top + int64_t{index} * args.max_top;
    SamplingResult result = {-1, 0, 0};
    int num_listed = 0;

    const Best best = FindBest</*kIsRaw=*/true>(logits);
    if (best.of_row != kNotFinite) {
      const float max = ScoreOf(best.of_row);
      const int num_candidates = simt::LoadGlobal(&packed->num_candidates);
      if (num_candidates >= 0) {
        num_listed = num_candidates;
        result.token = ListCandidates(args, packed, logits, best, num_candidates, top);
      } else {
        const int given_token = simt::LoadGlobal(&packed->given_token), num_top = simt::LoadGlobal(&packed->num_top);
        num_listed = num_top > 0 ? num_top : 0;
        if (num_listed > 0) ListBest(logits, best.of_thread, num_listed, top);
        result.token = given_token >= 0 ? given_token : Draw(args, packed, logits, best);
        if (WantsScore(packed)) {
          const TokenScore score = ScoreToken(logits, max, result.token);
          result.logprob = Logprob(simt::LoadGlobal(logits.x + result.token), score.log_total);
          result.rank = score.rank;
          for (int i = simt::ThreadIndex(); i < num_listed; i += kThreads) {
            float* const logprob = &top[i].logprob;  // This thread has written it, as a logit.
            simt::StoreGlobal(logprob, Logprob(simt::LoadGlobal(logprob), score.log_total));
          }
        }
      }
    }
    for (int i = num_listed + simt::ThreadIndex(); i < args.max_top; i += kThreads) StoreCandidate(top + i, -1, 0);
    if (simt::ThreadIndex() == 0) {
      SamplingResult* const to = args.results + index;
      simt::StoreGlobal(&to->token, result.token);
      simt::StoreGlobal(&to->logprob, result.logprob);
      simt::StoreGlobal(&to->rank, result.rank);
      const int drawn_place = simt::LoadGlobal(&packed->drawn_place);
      if (drawn_place >= 0) simt::StoreGlobal(args.drawn_tokens + drawn_place, result.token < 0 ? 0 : result.token);
    }
  }

  static QUIRE_DEVICE bool WantsScore(const PackedSamplingRow* packed) {
    return simt::LoadGlobal(&packed->given_token) >= 0 || simt::LoadGlobal(&packed->num_top) >= 0;
  }

  static QUIRE_DEVICE void StoreCandidate(ScoredCandidate* to, int32_t token, float logprob) {
    simt::StoreGlobal(&to->token, token);
    simt::StoreGlobal(&to->logprob, logprob);
  }

  // Raw logits must be finite; edited scores may be -inf.
  template <bool kIsRaw>
  static QUIRE_DEVICE Best FindBest(const ScoreRow& row) {
    float best = MinusInfinity();
    int32_t best_token = -1;
    bool is_finite = true;
    constexpr int kLoads = 2;  // Two loads at once, because this pass waits for memory.
    ForEachFour<kThreads, kLoads>(row, [&](int32_t first, const Scores4& values) {
      QUIRE_UNROLL for (int i = 0; i < 4; ++i) {
        if (kIsRaw && first + i < row.size && !IsFinite(values.x[i])) is_finite = false;
        if (values.x[i] > best) best = values.x[i], best_token = first + i;
      }
    });
    const uint64_t of_thread = best_token < 0 ? 0 : RankKey(best, best_token);
    return {of_thread, Block::Max(is_finite ? of_thread : kNotFinite)};
  }

  // Returns the rank key of the same token with its score in `row`.
  static QUIRE_DEVICE uint64_t Rescored(uint64_t rank_key, const ScoreRow& row) {
    return rank_key == 0 ? 0 : RankKey(row.Score(ScoreOf(rank_key)), TokenOf(rank_key));
  }

  static QUIRE_DEVICE TokenScore ScoreToken(const ScoreRow& logits, float max, int32_t token) {
    const uint64_t key = RankKey(simt::LoadGlobal(logits.x + token), token);
    uint64_t mass = 0, num_better = 0;
    ForEachScore<kThreads>(logits, [&](int32_t other, float logit) {
      mass += Mass(logit - max);
      num_better += RankKey(logit, other) > key ? 1 : 0;
    });
    const double log_total = static_cast<double>(max) + LogOfMass(Block::Sum(mass));
    return {log_total, static_cast<int32_t>(Block::Sum(num_better)) + 1};
  }

  static QUIRE_DEVICE float Logprob(float logit, double log_total) {
    return static_cast<float>(static_cast<double>(logit) - log_total);
  }

  // Writes the `count` best tokens of the row, which has at least `count`, with their scores. Thread i % kThreads
  // writes entry i. Returns the best token. The list of the block handles one part at a time.
  static QUIRE_DEVICE int32_t ListBest(const ScoreRow& row, uint64_t thread_best, int count, ScoredCandidate* top) {
    static_assert(Block::kListCapacity % kThreads == 0, "");
    int32_t best = 0;
    uint64_t above = ~uint64_t{0};  // The largest key that is not listed yet.
    for (int done = 0; done < count;) {
      const int part = count - done < Block::kListCapacity ? count - done : Block::kListCapacity;
      const CountWeight weight = {static_cast<uint32_t>(done + part)};
      const Selection selection = Block::Select(row, thread_best, done + part, kLowestRankKey, weight);
      if (done > 0 || selection.list_size == 0) Block::List(row, selection.cut, above);
      if (done == 0) best = TokenOf(Block::Listed(0));
      for (int i = simt::ThreadIndex(); i < part; i += kThreads) {
        const uint64_t key = Block::Listed(i);
        StoreCandidate(top + done + i, TokenOf(key), ScoreOf(key));
      }
      above = selection.cut - 1;
      done += part;
    }
    return best;
  }

  static QUIRE_DEVICE bool ChangesLogits(const PackedSamplingRow* packed) {
    return simt::LoadGlobal(&packed->num_penalties) > 0 || simt::LoadGlobal(&packed->num_biases) > 0 ||
           simt::LoadGlobal(&packed->mask_kind) != MaskKind::kNone;
  }

  // Computes the scores of `row` with bias, penalties and masks in the scratch memory of this block.
  static QUIRE_DEVICE ScoreRow Edited(const SamplingKernelArgs& args, const PackedSamplingRow* packed,
                                      const ScoreRow& row) {
    float* const edited = args.scratch + int64_t{simt::BlockIndex()} * args.scratch_stride;
    LogitEdit<kThreads>::Run(args, packed, row, edited);
    return ScoreRow::Raw(edited, row.size);
  }

  // Returns the best candidate, or 0 when there is none.
  static QUIRE_DEVICE int32_t ListCandidates(const SamplingKernelArgs& args, const PackedSamplingRow* packed,
                                             const ScoreRow& logits, Best best, int count, ScoredCandidate* top) {
    if (count == 0) return 0;
    const double log_total = ScoreToken(logits, ScoreOf(best.of_row), TokenOf(best.of_row)).log_total;
    ScoreRow row = logits;
    row.high = static_cast<float>(log_total);
    row.low = static_cast<float>(log_total - row.high);
    if (ChangesLogits(packed)) {
      row = Edited(args, packed, row);
      best = FindBest</*kIsRaw=*/false>(row);
    }
    return ListBest(row, Rescored(best.of_thread, row), count, top);
  }

  // Returns the lowest rank key that top-n-sigma keeps. The best score is 0, and the masks leave `count` tokens.
  static QUIRE_DEVICE uint64_t LowestWithinSigmas(const ScoreRow& row, float top_n_sigma, int count) {
    const float lowest = -static_cast<float>(top_n_sigma * StandardDeviation(row, count)) / row.divisor;
    return lowest > -kLargestFloat ? uint64_t{OrderKey(lowest)} << 32 : kLowestRankKey;
  }

  // Returns the standard deviation of the values above -inf, of which there are `count` and row.high is the largest.
  // All sums are of integers: the distances to the largest value in units with which the largest distance has 31 bits.
  // Half distances cannot overflow. There is no division of doubles, because it needs too many registers.
  static QUIRE_DEVICE double StandardDeviation(const ScoreRow& row, int count) {
    const auto for_each_half = [&](const auto& visit) {
      ForEachFour<kThreads>(row, [&](int32_t, const Scores4& values) {
        QUIRE_UNROLL for (int i = 0; i < 4; ++i) {
          if (values.x[i] >= -kLargestFloat) visit(0.5f * row.high - 0.5f * values.x[i]);
        }
      });
    };
    uint64_t widest = 0;  // The bits of a float that is not negative have its order.
    for_each_half([&](float half) { widest = FloatBits(half) > widest ? FloatBits(half) : widest; });
    const int32_t exponent = static_cast<int32_t>(Block::Max(widest) >> 23) - 127;
    const int32_t shift = exponent < -96 ? 126 : 30 - exponent;
    uint64_t sum = 0, low = 0, high = 0;  // Squares are summed in two halves.
    for_each_half([&](float half) {
      const uint64_t distance = static_cast<uint32_t>(half * PowerOfTwo(shift)), square = distance * distance;
      sum += distance;
      low += square & 0xffffffffu;
      high += square >> 32;
    });
    const double squares = static_cast<double>(Block::Sum(high)) * 4294967296.0 + static_cast<double>(Block::Sum(low));
    const double n = count;
    double share = static_cast<double>(simt::Reciprocal(static_cast<float>(count)));  // 1 / n, by Newton's method.
    share *= 2 - n * share;
    share *= 2 - n * share;
    const double mean = static_cast<double>(Block::Sum(sum)) * share;
    return 2 * SquareRoot(squares * share - mean * mean) * static_cast<double>(PowerOfTwo(-shift));
  }

  // REQUIRES: -126 <= exponent <= 127.
  static QUIRE_DEVICE float PowerOfTwo(int32_t exponent) {
    return BitsToFloat(static_cast<uint32_t>(exponent + 127) << 23);
  }

  // A step of Newton's method brings the inverse root from the precision of a float to the precision of a double.
  static QUIRE_DEVICE double SquareRoot(double x) {
    if (x < 1e-30) return 0;
    const double inverse = static_cast<double>(simt::ReciprocalSqrt(static_cast<float>(x)));
    return x * inverse * (1.5 - 0.5 * x * inverse * inverse);
  }

  static QUIRE_DEVICE int32_t Draw(const SamplingKernelArgs& args, const PackedSamplingRow* packed,
                                   const ScoreRow& logits, Best best) {
    const int num_kept = simt::LoadGlobal(&packed->num_kept), top_k = simt::LoadGlobal(&packed->numbers.top_k);
    if (num_kept == 0) return 0;
    ScoreRow row = logits;
    if (ChangesLogits(packed)) {
      row = Edited(args, packed, logits);
      best = FindBest</*kIsRaw=*/false>(row);
    }
    const float temperature = simt::LoadGlobal(&packed->numbers.temperature);
    const float top_p = simt::LoadGlobal(&packed->numbers.top_p);
    const int32_t best_token = TokenOf(best.of_row);
    if (temperature == 0) return best_token;

    row.high = ScoreOf(best.of_row);
    row.divisor = temperature;
    const uint64_t thread_best = Rescored(best.of_thread, row);
    Selection kept = {kLowestRankKey, 0};
    if (top_k > 0 && top_k < num_kept) {
      kept = Block::Select(row, thread_best, top_k, kept.cut, CountWeight{static_cast<uint32_t>(top_k)});
    }
    const float top_n_sigma = simt::LoadGlobal(&packed->numbers.top_n_sigma);
    if (top_n_sigma > 0) {
      const uint64_t lowest = LowestWithinSigmas(row, top_n_sigma, num_kept);
      if (lowest > kept.cut) kept = {lowest, 0};
    }
    if (top_p < 1) {
      const MassWeight weight = {top_p};
      kept = kept.list_size > 0 ? Block::SelectListed(kept.list_size, weight)
                                : Block::Select(row, thread_best, kQuickMassRank, kept.cut, weight);
    }
    // The list may have tokens below this cut.
    const uint64_t lowest = uint64_t{OrderKey(simt::LoadGlobal(&packed->log_min_p))} << 32;
    if (lowest > kept.cut) kept.cut = lowest;
    uint64_t top = RankKey(0, best_token);
    if (simt::LoadGlobal(&packed->numbers.xtc_probability) > 0) {
      top = LastTopChoice(row, kept, simt::LoadGlobal(&packed->numbers.xtc_threshold), top);
    }
    return GumbelMax(packed, row, kept, top);
  }

  // Calls visit(rank key) for every token that is kept.
  template <typename Visit>
  static QUIRE_DEVICE void ForEachKept(const ScoreRow& row, const Selection& kept, const Visit& visit) {
    for (int i = simt::ThreadIndex(); i < kept.list_size; i += kThreads) {
      if (Block::Listed(i) >= kept.cut) visit(Block::Listed(i));
    }
    if (kept.list_size > 0) return;
    ForEachScore<kThreads>(row, [&](int32_t token, float score) {
      if (RankKey(score, token) >= kept.cut) visit(RankKey(score, token));
    });
  }

  // Returns the smallest of the rank keys that have at least this share of the mass of all kept tokens. `best` is the
  // largest key that is kept, which is returned if there is none.
  static QUIRE_DEVICE uint64_t LastTopChoice(const ScoreRow& row, const Selection& kept, float threshold,
                                             uint64_t best) {
    uint64_t mass = 0;
    ForEachKept(row, kept, [&](uint64_t key) { mass += Mass(ScoreOf(key)); });
    const uint64_t total = Block::Sum(mass);
    const uint64_t least = threshold > 0 ? MassWeight{threshold}.Limit(total) : 0;
    uint64_t inverse = ~best;
    ForEachKept(row, kept, [&](uint64_t key) {
      if (~key > inverse && Mass(ScoreOf(key)) >= least) inverse = ~key;
    });
    return ~Block::Max(inverse);
  }

  // --- Gumbel-max. A token wins only if its noise is above winner - score, and its noise is at most -ln u. Therefore
  // tokens with a too large u are skipped before any logarithm.

  // Returns the largest u with which a score may still win; the factor covers all rounding errors.
  static QUIRE_DEVICE float LargestWinning(float score, float winner) {
    return simt::Exp2((score - winner) * kLog2E) * 1.001f;
  }

  static QUIRE_DEVICE float Noise(uint64_t seed, uint32_t position, int32_t token) {
    const PhiloxBlock words = DrawWords(seed, position, token);
    const int i = token % 4;
    return GumbelNoise(
        Uniform(i < 2 ? (i == 0 ? words.word[0] : words.word[1]) : (i == 2 ? words.word[2] : words.word[3])));
  }

  // Draws from the kept tokens with rank keys up to `top`, the key of one of them.
  static QUIRE_DEVICE int32_t GumbelMax(const PackedSamplingRow* packed, const ScoreRow& row, const Selection& kept,
                                        uint64_t top) {
    const uint64_t seed = simt::LoadGlobal(&packed->seed);
    const uint32_t position = simt::LoadGlobal(&packed->position);
    uint64_t winner = RankKey(ScoreOf(top) + Noise(seed, position, TokenOf(top)), TokenOf(top));
    for (int i = simt::ThreadIndex(); i < kept.list_size; i += kThreads) {
      const uint64_t listed = Block::Listed(i);
      if (listed < kept.cut || listed > top) continue;
      const int32_t token = TokenOf(listed);
      const uint64_t key = RankKey(ScoreOf(listed) + Noise(seed, position, token), token);
      winner = key > winner ? key : winner;
    }
    if (kept.list_size > 0) return TokenOf(Block::Max(winner));

    ForEachFour<kThreads>(row, [&](int32_t first, const Scores4& values) {
      float scores[4], largest = MinusInfinity();
      QUIRE_UNROLL for (int i = 0; i < 4; ++i) {
        scores[i] = row.Score(values.x[i]);
        const uint64_t key = RankKey(scores[i], first + i);
        if (key < kept.cut || key > top) scores[i] = MinusInfinity();
        largest = scores[i] > largest ? scores[i] : largest;
      }
      const float limit = LargestWinning(largest, ScoreOf(winner));
      if (limit < 1.1641532e-10f) return;  // No u is below 2^-33.
      const PhiloxBlock words = DrawWords(seed, position, first);
      QUIRE_UNROLL for (int i = 0; i < 4; ++i) {
        const float u = Uniform(words.word[i]);
        if (u > limit || scores[i] < -kLargestFloat) continue;
        const uint64_t key = RankKey(scores[i] + GumbelNoise(u), first + i);
        winner = key > winner ? key : winner;
      }
    });
    return TokenOf(Block::Max(winner));
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_SAMPLING_KERNEL_H_
