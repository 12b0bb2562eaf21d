// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_ATTENTION_ATTENTION_AMX_H_
#define QUIRE_KERNELS_CPU_ATTENTION_ATTENTION_AMX_H_

#include <immintrin.h>

#include "kernels/cpu/attention/attention_amx_kv.h"
#include "kernels/cpu/attention/attention_amx_rows.h"
#include "kernels/cpu/attention/attention_pairs.h"
#include "kernels/cpu/attention/attention_task.h"
#include "kernels/cpu/isa/amx_tile.h"
#include "kernels/cpu/isa/simd.h"

// Paged attention over bfloat16 K and V with AMX tiles. Queries and weights are rounded to bfloat16 as in
// attention_pairs.h. There is one difference: a row's maximum is replaced only by a score that exceeds it by more than
// kMaxGrowth. So the weights of a row are at most e^kMaxGrowth, and its sums are scaled rarely.
//
// The steps of the computation are pairs of a tile of 64 tokens and a block of 16 rows. While the vector units compute
// the softmax of a step, the tiles multiply the weights of the step before by V, and the queries of the step after by
// K. A row's numbers stay in their own matrix rows, tokens that a row does not see have weight 0 and a finite V, and
// tiles are added in ascending order. Therefore a row's result does not depend on the other rows.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// While an object exists, results that are not normal numbers are replaced by 0, as AMX always does. They would cost a
// hundred times more.
class DenormalsAreZero {
 public:
  DenormalsAreZero() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | kFlushToZero | kDenormalsAreZero); }
  ~DenormalsAreZero() { _mm_setcsr(saved_); }
  DenormalsAreZero(const DenormalsAreZero&) = delete;
  DenormalsAreZero& operator=(const DenormalsAreZero&) = delete;

 private:
  static constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x40;
  const unsigned saved_;
};

constexpr float kLog2E = 1.44269504f;

// Attends up to kMaxAttentionRows rows of a task.
class AmxAttention {
 public:
  AmxAttention(const AttentionTask& task, int first_row, int num_rows);
  ~AmxAttention() { ReleaseTiles(); }
  AmxAttention(const AmxAttention&) = delete;
  AmxAttention& operator=(const AmxAttention&) = delete;

  void Run();

 private:
  static constexpr int kScores = kRowsPerTile * kAttentionTileTokens;
  static constexpr int kVecsPerGroup = 4;  // Columns of V, in vectors, that are multiplied together.
  // Tile registers. The first four are sums.
  static constexpr int kWideA = 4, kTallB = 5, kNarrowA = 6, kShortB = 7;

  struct Step {
    int unit;  // First unit of the tile.
    int block;
  };
  // Products that are computed together with the softmax of another step. There is none if the last member is null.
  struct ValueWork {
    const BFloat16* weights = nullptr;  // [rows, 64]
    const TileValues* v = nullptr;
    float* values = nullptr;  // [rows, padded_dim]
  };
  struct ScoreWork {
    const BFloat16* queries = nullptr;
    float* scores = nullptr;  // [rows, 64]
  };

  static void Configure(int rows);

  Step NextStep(Step step) const;
  bool IsEnd(Step step) const { return step.unit >= task_.num_units; }
  int TokenOf(int unit) const { return task_.first_token + unit * kUnitTokens; }

  void OpenValues(int unit);
  void PlanScores(Step step, float* scores);
  void RunScores();
  template <bool kFetches>
  void RunValues();
  template <bool kFetches, int kVecs>
  void AddColumns(int column);

  template <bool kOverlaps>
  void RunSteps(Step step);
  template <bool kOverlaps>
  void Softmax(Step step, float* scores, BFloat16* weights);
  void CapAndHide(const RowBlock& block, int first_token, float* scores) const;
  void GrowMaxima(RowBlock* block, const float* scores);
  template <bool kFetches>
  void WeighRows(int begin, int end, const float* offsets, const float* scores, BFloat16* weights, Vec* sums);
  void AddValuesOfEachRow(Step step, const BFloat16* weights);

  const AttentionTask& task_;
  const DenormalsAreZero denormals_;
  const int dim_;    // padded_dim
  const int depth_;  // Tiles of 32 dimensions.
  AmxRows rows_;
  AmxKeysAndValues kv_;
  NextTile next_;
  ValueWork values_;
  ScoreWork scores_;
  int value_unit_ = -1;  // The tile whose V is open.
  alignas(64) float scores_buffer_[2][kScores];
  alignas(64) BFloat16 weights_buffer_[2][kScores];
};

inline AmxAttention::AmxAttention(const AttentionTask& task, int first_row, int num_rows)
    : task_(task),
      dim_(task.padded_dim),
      depth_((task.padded_dim + kKeyDepth - 1) / kKeyDepth),
      rows_(task, first_row, num_rows),
      kv_(task) {
  Configure(rows_.rows_of_tiles());
  if (!rows_.has_short_block()) return;
  for (BFloat16(&weights)[kScores] : weights_buffer_) {
    for (BFloat16& weight : weights) weight = BFloat16{0};
  }
}

// Sets the tile shapes for `rows` rows.
inline void AmxAttention::Configure(int rows) {
  TileShapes shapes;
  for (int sums = 0; sums < kUnitsPerTile; ++sums) shapes.Set(sums, rows, kTileRowBytes);
  shapes.Set(kWideA, rows, kTileRowBytes);
  shapes.Set(kTallB, kTileRows, kTileRowBytes);
  shapes.Set(kNarrowA, rows, kTileRowBytes / 2);
  shapes.Set(kShortB, kTileRows / 2, kTileRowBytes);
  ConfigureTiles(shapes);
}

// Returns the next step in which some row sees a token.
inline AmxAttention::Step AmxAttention::NextStep(Step step) const {
  for (;;) {
    if (++step.block == rows_.num_blocks()) step = {step.unit + kUnitsPerTile, 0};
    if (IsEnd(step)) return step;
    const int token = TokenOf(step.unit);
    if (rows_.block(step.block).visible.SomeSee(token, token + kAttentionTileTokens)) return step;
  }
}

// Opens V of a tile.
inline void AmxAttention::OpenValues(int unit) {
  const int first = TokenOf(unit);
  // The products that are waiting may use copies of V, which are about to be replaced.
  if (!rows_.visible().AllSee(first, first + kAttentionTileTokens)) RunValues<false>();
  kv_.OpenValues(unit, rows_.visible());
  value_unit_ = unit;
}

// --- Products ---

inline void AmxAttention::PlanScores(Step step, float* scores) {
  kv_.OpenKeys(step.unit);
  scores_ = {rows_.block(step.block).queries, scores};
}

// scores[row][token] = query * K.
inline void AmxAttention::RunScores() {
  if (scores_.scores == nullptr) return;
  Unroll<kUnitsPerTile>([]<int u>() __attribute__((always_inline)) { ZeroTile<u>(); });
  for (int i = 0; i < depth_; ++i) {
    LoadTile<kWideA>(scores_.queries + i * kKeyTileElements, kTileRowBytes);
    Unroll<kUnitsPerTile>([&]<int u>() __attribute__((always_inline)) {
      LoadTile<kTallB>(kv_.keys(u) + i * kKeyTileElements, kTileRowBytes);
      next_.FetchStep();
      MultiplyTiles<u, kWideA, kTallB>();
    });
  }
  Unroll<kUnitsPerTile>([&]<int u>() __attribute__((always_inline)) {
    StoreTile<u>(scores_.scores + u * kUnitTokens, kAttentionTileTokens * sizeof(float));
  });
  scores_.scores = nullptr;
}

// values[row] += weights[row] * V.
template <bool kFetches>
inline void AmxAttention::RunValues() {
  if (values_.values == nullptr) return;
  int column = 0;
  for (; column + kVecsPerGroup * kLanes <= dim_; column += kVecsPerGroup * kLanes) {
    AddColumns<kFetches, kVecsPerGroup>(column);
  }
  for (; column < dim_; column += kLanes) AddColumns<kFetches, 1>(column);
  values_.values = nullptr;
}

template <bool kFetches, int kVecs>
QUIRE_INLINE void AmxAttention::AddColumns(int column) {
  const int64_t stride = dim_ * int64_t{sizeof(float)};  // Values and the pairs of V have this stride.
  float* const values = values_.values + column;
  Unroll<kVecs>([&]<int i>() __attribute__((always_inline)) { LoadTile<i>(values + i * kLanes, stride); });
  for (int u = values_.v->begin; u < values_.v->end; ++u) {
    LoadTile<kNarrowA>(values_.weights + u * kUnitTokens, kAttentionTileTokens * sizeof(BFloat16));
    Unroll<kVecs>([&]<int i>() __attribute__((always_inline)) {
      LoadTile<kShortB>(values_.v->units[u] + (column + i * kLanes) * 2, stride);
      if constexpr (kFetches) next_.FetchStep();
      MultiplyTiles<i, kNarrowA, kShortB>();
    });
  }
  Unroll<kVecs>([&]<int i>() __attribute__((always_inline)) { StoreTile<i>(values + i * kLanes, stride); });
}

// Multiplies the weights of a step by V, each row by the V of the tokens that it sees.
inline void AmxAttention::AddValuesOfEachRow(Step step, const BFloat16* weights) {
  const RowBlock& block = rows_.block(step.block);
  Configure(1);
  for (int r = 0; r < block.count; ++r) {
    VisibleTokens visible;
    visible.Add(task_.visible_begin[block.first_row + r], task_.visible_end[block.first_row + r]);
    TileValues v;
    kv_.ListValues(step.unit, visible, &v);
    values_ = {weights + r * kAttentionTileTokens, &v, block.values + r * dim_};
    RunValues<false>();
  }
  Configure(rows_.rows_of_tiles());
}

// --- Softmax ---

// Caps the scores of a step and hides the tokens that rows do not see.
inline void AmxAttention::CapAndHide(const RowBlock& block, int first_token, float* scores) const {
  for (int r = 0; r < block.count; ++r) {
    const int row = block.first_row + r;
    const int begin = task_.visible_begin[row] - first_token, end = task_.visible_end[row] - first_token;
    Unroll<kUnitsPerTile>([&]<int u>() __attribute__((always_inline)) {
      float* at = scores + r * kAttentionTileTokens + u * kUnitTokens;
      Vec s = Load(at);
      if (task_.softcap > 0) s = Softcap(s, task_.softcap);
      Store(at, Select(VisibleLanes(u, begin, end), Set(kMinusInfinity), s));
    });
  }
}

QUIRE_INLINE Vec LargestOfRow(const float* scores) {
  Vec s[kUnitsPerTile];
  LoadScores(0, scores, s);
  return Max(Max(s[0], s[1]), Max(s[2], s[3]));
}

// Replaces the maxima that a tile exceeds by far, and scales the sums of these rows.
inline void AmxAttention::GrowMaxima(RowBlock* block, const float* scores) {
  Vec lanes[kRowsPerTile];
  for (int r = 0; r < kRowsPerTile; ++r) {
    lanes[r] = r < block->count ? LargestOfRow(scores + r * kAttentionTileTokens) : Set(kMinusInfinity);
  }
  const Vec largest = JoinLanes(
      lanes, [](Vec a, Vec b) __attribute__((always_inline)) { return Max(a, b); });
  const Vec old_max = Load(block->max);
  const uint32_t all_rows = (1u << block->count) - 1;
  const uint32_t grows = Greater(largest, Load(block->limit)) & all_rows;
  alignas(64) float factors[kRowsPerTile];
  const Vec factor = Exp(Sub(old_max, largest));
  Store(factors, factor);
  Store(block->max, Select(grows, old_max, largest));
  Store(block->limit, Select(grows, Load(block->limit), Add(largest, Set(kMaxGrowth))));
  Store(block->sums, Select(grows, Load(block->sums), Mul(Load(block->sums), factor)));
  for (int r = 0; r < block->count; ++r) {
    if ((grows >> r & 1) == 0) continue;
    float* values = block->values + r * dim_;
    for (int d = 0; d < dim_; d += kLanes) Store(values + d, Mul(Load(values + d), Set(factors[r])));
  }
}

// Computes e^score of a maximum, whose offset is -max * log2(e), with a relative error of at most 8e-5. That is little
// beside the rounding of the result to bfloat16, which is up to 4e-3.
QUIRE_INLINE Vec WeightOf(Vec score, Vec offset) {
  const Vec x = Fma(score, Set(kLog2E), offset);
  constexpr int kFractionAboveFloor = 9;
  const Vec r = {_mm512_reduce_ps(x.v, kFractionAboveFloor)};
  Vec p = Set(0.07802452147006989f);
  p = Fma(p, r, Set(0.22606715559959412f));
  p = Fma(p, r, Set(0.6958335638046265f));
  p = Fma(p, r, Set(0.9999251961708069f));
  return {_mm512_scalef_ps(p.v, x.v)};  // p * 2^floor(x)
}

// Turns the scores of some rows of a step into weights. Lanes of `sums` add up the weights of each row.
template <bool kFetches>
QUIRE_INLINE void AmxAttention::WeighRows(int begin, int end, const float* offsets, const float* scores,
                                          BFloat16* weights, Vec* sums) {
  for (int r = begin; r < end; ++r) {
    Vec s[kUnitsPerTile];
    LoadScores(r, scores, s);
    const Vec offset = Set(offsets[r]);
    Unroll<kUnitsPerTile>([&]<int u>() __attribute__((always_inline)) { s[u] = WeightOf(s[u], offset); });
    sums[r] = Add(Add(s[0], s[1]), Add(s[2], s[3]));
    Unroll<2>([&]<int i>() __attribute__((always_inline)) {
      _mm512_store_si512(weights + r * kAttentionTileTokens + i * 2 * kUnitTokens,
                         reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(s[2 * i + 1].v, s[2 * i].v)));
    });
    if constexpr (kFetches) next_.FetchStep();
  }
}

// Turns the scores of a step into weights. The products of other steps are issued in between, where the vector units
// have other work.
template <bool kOverlaps>
QUIRE_INLINE void AmxAttention::Softmax(Step step, float* scores, BFloat16* weights) {
  RowBlock* block = &rows_.block(step.block);
  const int first_token = TokenOf(step.unit);
  if (task_.softcap > 0 || !block->visible.AllSee(first_token, first_token + kAttentionTileTokens)) {
    CapAndHide(*block, first_token, scores);
  }
  uint32_t grows = 0;
  for (int r = 0; r < block->count; ++r) {
    grows |= Greater(LargestOfRow(scores + r * kAttentionTileTokens), Set(block->limit[r]));
    if constexpr (!kOverlaps) next_.FetchStep();
  }
  RunValues<false>();  // They may belong to the same rows.
  if (grows != 0) GrowMaxima(block, scores);

  alignas(64) float offsets[kRowsPerTile];
  const Vec max = Load(block->max);
  // A row that has seen no token has no maximum.
  Store(offsets, Select(Equal(max, Set(kMinusInfinity)), Mul(max, Set(-kLog2E)), Zero()));
  Vec sums[kRowsPerTile];
  for (Vec& sum : sums) sum = Zero();
  const int half = kOverlaps ? block->count / 2 : 0;
  WeighRows<!kOverlaps>(0, half, offsets, scores, weights, sums);
  RunScores();
  WeighRows<!kOverlaps>(half, block->count, offsets, scores, weights, sums);
  const Vec all = JoinLanes(
      sums, [](Vec a, Vec b) __attribute__((always_inline)) { return Add(a, b); });
  Store(block->sums, Add(Load(block->sums), all));
}

// --- Steps ---

template <bool kOverlaps>
inline void AmxAttention::RunSteps(Step step) {
  if constexpr (kOverlaps) {
    PlanScores(step, scores_buffer_[0]);
    RunScores();
  }
  for (int i = 0; !IsEnd(step); i ^= int{kOverlaps}) {
    if (step.unit != value_unit_) {
      next_.FetchRest();
      const bool has_next = step.unit + 2 * kUnitsPerTile <= task_.num_units + task_.num_following;
      next_ = has_next ? NextTile(task_.units + step.unit + kUnitsPerTile, dim_) : NextTile();
      OpenValues(step.unit);
    }
    const Step next = NextStep(step);
    if constexpr (!kOverlaps) {
      PlanScores(step, scores_buffer_[i]);
      RunScores();
    } else if (!IsEnd(next)) {
      PlanScores(next, scores_buffer_[i ^ 1]);
    }
    Softmax<kOverlaps>(step, scores_buffer_[i], weights_buffer_[i]);
    if (kv_.values().is_sick) {
      AddValuesOfEachRow(step, weights_buffer_[i]);
    } else {
      values_ = {weights_buffer_[i], &kv_.values(), rows_.block(step.block).values};
    }
    if constexpr (!kOverlaps) RunValues<true>();
    step = next;
  }
  RunValues<false>();
}

// A single block waits for memory most of the time. It computes one product after the other and prefetches meanwhile.
inline void AmxAttention::Run() {
  const Step first = NextStep({0, -1});
  if (IsEnd(first)) return;
  if (rows_.num_blocks() > 1) {
    RunSteps<true>(first);
  } else {
    RunSteps<false>(first);
  }
  next_.FetchRest();
  rows_.StoreAll();
}

inline void AttendAmx(const AttentionTask& task) {
  for (int first = 0; first < task.num_rows; first += kMaxAttentionRows) {
    AmxAttention(task, first, Min(kMaxAttentionRows, task.num_rows - first)).Run();
  }
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_ATTENTION_ATTENTION_AMX_H_
