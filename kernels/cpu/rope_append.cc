// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/rope_append.h"

#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/kv_unit.h"
#include "kernels/half_float.h"

namespace quire::cpu {
namespace {

constexpr int kUnitTokens = KvLayout::kUnitTokens;

void RotateHead(const RopeAppendArgs& args, const KernelTable& kernels, const float* cos_sin, const float* norm,
                float* head) {
  const auto normalize = [&] {
    kernels.rms_norm[int(DataType::kFloat32)](head, norm, /*residual=*/nullptr, head, args.layout->head_dim,
                                              args.norm_epsilon);
  };
  if (norm != nullptr && !args.norms_after_rotation) normalize();
  const int half = args.rotary_dim / 2;
  kernels.rotate_half(head, cos_sin, cos_sin + half, half);
  if (norm != nullptr && args.norms_after_rotation) normalize();
}

void GrowQueries(const RopeAppendArgs& args, int position, float* q) {
  const double spans = position / args.query_span;
  const float factor = float(1 + double(args.query_growth) * std::log1p(spans));
  if (factor == 1) return;
  for (int i = 0; i < args.num_heads * args.layout->head_dim; ++i) q[i] *= factor;
}

void RotateRow(const RopeAppendArgs& args, const KernelTable& kernels, const RotaryTable& rotary, int row, float* q) {
  const int head_dim = args.layout->head_dim;
  const float* cos_sin = rotary.At(args.batch->positions[row]);
  float* k = q + int64_t{args.num_heads} * head_dim;
  for (int h = 0; h < args.num_heads; ++h) RotateHead(args, kernels, cos_sin, args.q_norm, q + h * head_dim);
  for (int h = 0; h < args.layout->num_kv_heads; ++h) {
    RotateHead(args, kernels, cos_sin, args.k_norm, k + h * head_dim);
  }
  if (args.query_growth > 0) GrowQueries(args, args.batch->positions[row], q);
}

// One head of several tokens, rounded to the type of the cache.
template <typename T>
struct RoundedRows {
  T rows[kUnitTokens][kMaxHeadDim];
  float scales[kUnitTokens];  // Only for int8.
};

// `from` points to the head in the first row.
template <typename T>
void RoundRows(const RopeAppendArgs& args, const KernelTable& kernels, const float* from, int num_rows,
               int64_t row_size, RoundedRows<T>* rounded) {
  const KvLayout& layout = *args.layout;
  for (int i = 0; i < num_rows; ++i) {
    if constexpr (std::is_same_v<T, int8_t>) {
      kernels.quantize_head(from + i * row_size, layout.head_dim, rounded->rows[i], &rounded->scales[i]);
    } else {
      kernels.convert[int(layout.type)](from + i * row_size, rounded->rows[i], layout.head_dim);
    }
  }
}

template <typename T>
void StoreRows(const RoundedRows<T>& rounded, int num_rows, int dim, T* to) {
  for (int i = 0; i < num_rows; ++i) memcpy(to + int64_t{i} * dim, rounded.rows[i], dim * sizeof(T));
}

// Stores words of one or two elements as [words of a row][16]. The inner loop runs over tokens, which are neighbours in
// memory.
template <typename Word, typename T>
void StoreColumns(const RoundedRows<T>& rounded, int num_rows, int dim, T* to) {
  const int num_words = dim * int(sizeof(T)) / int(sizeof(Word));
  for (int d = 0; d < num_words; ++d) {
    for (int i = 0; i < num_rows; ++i) {
      memcpy(reinterpret_cast<char*>(to) + (d * kUnitTokens + i) * sizeof(Word),
             reinterpret_cast<const char*>(rounded.rows[i]) + d * sizeof(Word), sizeof(Word));
    }
  }
}

template <typename T>
void StoreKeys(const KvLayout& layout, const RoundedRows<T>& rounded, int num_rows, int token, T* unit) {
  const int dim = layout.head_dim;
  T* to = unit + KeyStrides(layout, token).start;
  if (!IsVectorised(layout)) return StoreRows(rounded, num_rows, dim, to);
  // In units of bfloat16 and int8, K consists of pairs of dimensions.
  using Word = std::conditional_t<sizeof(T) == 1 || std::is_same_v<T, Float16>, uint16_t, uint32_t>;
  StoreColumns<Word>(rounded, num_rows, dim, to);
}

// In units of bfloat16 and int8, V consists of pairs of tokens. Whole pairs are written at once.
template <typename T>
void StorePairs(const RoundedRows<T>& rounded, int num_rows, int dim, int token, T* v) {
  const auto pair_row = [&](int t) { return v + t / 2 * 2 * dim; };
  const auto store_half = [&](int row) {
    for (int d = 0; d < dim; ++d) pair_row(token + row)[2 * d + (token + row) % 2] = rounded.rows[row][d];
  };
  int row = 0;
  if (token % 2 == 1) store_half(row++);
  for (; row + 1 < num_rows; row += 2) {
    const T *even = rounded.rows[row], *odd = rounded.rows[row + 1];
    T* to = pair_row(token + row);
    for (int d = 0; d < dim; ++d) {
      to[2 * d] = even[d];
      to[2 * d + 1] = odd[d];
    }
  }
  if (row < num_rows) store_half(row);
}

template <typename T>
void StoreValues(const KvLayout& layout, const RoundedRows<T>& rounded, int num_rows, int token, T* unit) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, int8_t>) {
    if (IsVectorised(layout)) {
      return StorePairs(rounded, num_rows, layout.head_dim, token, unit + layout.value_start());
    }
  }
  StoreRows(rounded, num_rows, layout.head_dim, unit + ValueStrides(layout, token).start);
}

// `k` points to the first K head of the first row, `v` to its first V head.
template <typename T>
void Append(const RopeAppendArgs& args, const KernelTable& kernels, const AppendRun& run, const float* k,
            const float* v, int64_t row_size) {
  const KvLayout& layout = *args.layout;
  const int64_t slot = args.batch->slots[run.first_row];
  const uint32_t block = uint32_t(slot / layout.block_size);
  const int offset = int(slot % layout.block_size), token = offset % layout.unit_tokens();
  RoundedRows<T> rounded;
  // `first` is the scale of the unit's first token.
  const auto store_scales = [&](void* first) {
    memcpy(static_cast<float*>(first) + token, rounded.scales, run.num_rows * sizeof(float));
  };
  for (int h = 0; h < layout.num_kv_heads; ++h) {
    T* unit = static_cast<T*>(args.kv_pool) + layout.unit_start(block, h, offset);
    const int64_t head = int64_t{h} * layout.head_dim;
    RoundRows(args, kernels, k + head, run.num_rows, row_size, &rounded);
    StoreKeys(layout, rounded, run.num_rows, token, unit);
    if (layout.has_scales()) store_scales(unit + layout.key_scales_start());
    RoundRows(args, kernels, v + head, run.num_rows, row_size, &rounded);
    StoreValues(layout, rounded, run.num_rows, token, unit);
    if (layout.has_scales()) store_scales(unit + layout.value_scales_start());
  }
}

}  // namespace

void ListAppendRuns(const BatchView& batch, const KvLayout& layout, std::vector<AppendRun>* runs) {
  runs->clear();
  for (int row = 0; row < batch.num_tokens; ++row) {
    const bool goes_on = row > 0 && batch.slots[row] == batch.slots[row - 1] + 1 &&
                         batch.slots[row] % layout.block_size % layout.unit_tokens() != 0;
    if (goes_on) {
      ++runs->back().num_rows;
    } else {
      runs->push_back({row, 1});
    }
  }
}

void RopeAppend(const RopeAppendArgs& args, const KernelTable& kernels, const RotaryTable& rotary,
                const AppendRun& run) {
  const KvLayout& layout = *args.layout;
  const int64_t row_size = int64_t{args.num_heads + 2 * layout.num_kv_heads} * layout.head_dim;
  float* q = static_cast<float*>(args.qkv) + run.first_row * row_size;
  for (int i = 0; i < run.num_rows; ++i) RotateRow(args, kernels, rotary, run.first_row + i, q + i * row_size);
  const float* k = q + int64_t{args.num_heads} * layout.head_dim;
  const float* v = k + int64_t{layout.num_kv_heads} * layout.head_dim;
  switch (layout.type) {
    case KvType::kFloat32:
      return Append<float>(args, kernels, run, k, v, row_size);
    case KvType::kBFloat16:
      return Append<BFloat16>(args, kernels, run, k, v, row_size);
    case KvType::kFloat16:
      return Append<Float16>(args, kernels, run, k, v, row_size);
    case KvType::kInt8:
      return Append<int8_t>(args, kernels, run, k, v, row_size);
  }
}

}  // namespace quire::cpu
