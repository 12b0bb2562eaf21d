// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_ATTENTION_ATTENTION_AMX_KV_H_
#define QUIRE_KERNELS_CPU_ATTENTION_ATTENTION_AMX_KV_H_

#include <immintrin.h>

#include "kernels/cpu/attention/attention_amx_rows.h"
#include "kernels/cpu/attention/attention_pairs.h"
#include "kernels/cpu/attention/attention_task.h"
#include "kernels/cpu/isa/amx_tile.h"

// K and V of an AmxAttention (attention_amx.h). The units of the pool are loaded directly as B tiles: 32 dimensions of
// K are a tile of 16 pairs by 16 tokens, and 16 dimensions of V are a tile of 8 pairs of tokens by 16 dimensions.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// The V of a tile of 64 tokens, [8][padded_dim][2] for each unit.
struct TileValues {
  const BFloat16* units[kUnitsPerTile];
  int begin, end;  // The units that some row sees.
  bool is_sick;    // Whether each row must be multiplied by the V that it sees.
};

// A tile of 64 tokens is named by its first unit.
class AmxKeysAndValues {
 public:
  explicit AmxKeysAndValues(const AttentionTask& task)
      : task_(task), dim_(task.padded_dim), depth_((task.padded_dim + kKeyDepth - 1) / kKeyDepth) {}
  AmxKeysAndValues(const AmxKeysAndValues&) = delete;
  AmxKeysAndValues& operator=(const AmxKeysAndValues&) = delete;

  void OpenKeys(int unit);
  // Returns unit u of the tile whose keys are open: [padded_dim / 2, rounded up to a multiple of 16][16][2].
  const BFloat16* keys(int u) const { return k_[u]; }

  // Takes the V of a tile for rows that see `visible`. What values() returned before stays usable until the next call,
  // unless not all rows see all tokens of the tile.
  void OpenValues(int unit, const VisibleTokens& visible);
  const TileValues& values() const { return v_[v_index_]; }

  // Lists V of a tile for rows. Units with tokens that not all of them see are copied, with zeros for the tokens that
  // none of them sees. Returns whether the copies are finite.
  bool ListValues(int unit, const VisibleTokens& visible, TileValues* v);

 private:
  void PackKeys(int unit);
  int TokenOf(int unit) const { return task_.first_token + unit * kUnitTokens; }

  const AttentionTask& task_;
  const int dim_;      // padded_dim
  const int depth_;    // Tiles of kKeyDepth dimensions.
  int key_unit_ = -1;  // The tile of k_.
  const BFloat16* k_[kUnitsPerTile];
  int v_index_ = 0;
  TileValues v_[2];
  alignas(64) BFloat16 copied_v_[kUnitsPerTile][kUnitTokens * kMaxHeadDim];  // Not all rows see these tokens.
  // It is used where heads do not fill B tiles.
  alignas(64) BFloat16 packed_k_[kUnitsPerTile * kUnitTokens * kMaxHeadDim];
};

// Copies K of a tile, with zeros up to whole B tiles.
inline void AmxKeysAndValues::PackKeys(int unit) {
  for (int u = 0; u < kUnitsPerTile; ++u) {
    const BFloat16* from = static_cast<const BFloat16*>(task_.units[Min(unit + u, task_.num_units - 1)]);
    BFloat16* to = packed_k_ + u * depth_ * kKeyTileElements;
    for (int pair = 0; pair < depth_ * kTileRows; ++pair) {
      const bool has_pair = 2 * pair < dim_;
      _mm512_store_si512(to + pair * kKeyDepth,
                         has_pair ? _mm512_loadu_si512(from + pair * kKeyDepth) : _mm512_setzero_si512());
    }
    k_[u] = to;
  }
}

// Where the tile has fewer units, others take their places.
inline void AmxKeysAndValues::OpenKeys(int unit) {
  if (unit == key_unit_) return;
  key_unit_ = unit;
  if (dim_ % kKeyDepth != 0) return PackKeys(unit);
  for (int u = 0; u < kUnitsPerTile; ++u) {
    k_[u] = static_cast<const BFloat16*>(task_.units[Min(unit + u, task_.num_units - 1)]);
  }
}

inline bool AmxKeysAndValues::ListValues(int unit, const VisibleTokens& visible, TileValues* v) {
  const int first_token = TokenOf(unit);
  const int num_tokens = Min(kUnitsPerTile, task_.num_units - unit) * kUnitTokens;
  const int begin = Max(0, visible.begin - first_token), end = Min(num_tokens, visible.end - first_token);
  v->begin = begin / kUnitTokens;
  v->end = (end + kUnitTokens - 1) / kUnitTokens;
  bool is_finite = true;
  for (int u = v->begin; u < v->end; ++u) {
    const int first = u * kUnitTokens;
    v->units[u] = static_cast<const BFloat16*>(task_.units[unit + u]) + kUnitTokens * dim_;
    if (visible.AllSee(first_token + first, first_token + first + kUnitTokens)) continue;
    is_finite = CopyVisible(v->units[u], begin - first, end - first, dim_, copied_v_[u]) && is_finite;
    v->units[u] = copied_v_[u];
  }
  return is_finite;
}

// A row must not use the V of a token that it does not see if V is infinite or NaN there, because weight 0 would not
// suppress it. If rows see different tokens and some of V is not finite, each row is multiplied separately.
inline void AmxKeysAndValues::OpenValues(int unit, const VisibleTokens& visible) {
  const int first = TokenOf(unit), last = first + kAttentionTileTokens;
  v_index_ ^= 1;
  TileValues* v = &v_[v_index_];
  v->is_sick = !ListValues(unit, visible, v) && !visible.AllAlike(first, last);
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_ATTENTION_ATTENTION_AMX_KV_H_
