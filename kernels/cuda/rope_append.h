// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_ROPE_APPEND_H_
#define QUIRE_KERNELS_CUDA_ROPE_APPEND_H_

#include <cmath>
#include <cstdint>

#include "kernels/cuda/int8_rounding.h"
#include "kernels/cuda/kv_unit.h"
#include "kernels/cuda/vector8.h"

namespace quire::cuda {

// The operation of rope.h on a GPU: for each head of Q and K an optional RMS norm and the rotation, in either order,
// then K and V go to their slots.
struct RopeAppendKernelArgs {
  uint16_t* qkv;             // [num_tokens, (num_heads + 2 * num_kv_heads) * head_dim], Q rotated in place.
  const int32_t* positions;  // [num_tokens]
  const int64_t* slots;      // [num_tokens]; for negative slots K and V are not stored.
  // The next three are aligned to 16 bytes.
  const float* rotary_table;  // [positions][2][rotary_dim / 2]: cosines, then sines, scaled.
  const float* q_norm;        // [head_dim] or null.
  const float* k_norm;        // [head_dim] or null.
  float norm_epsilon;
  char* kv_pool;  // The pool of this layer.
  int32_t num_tokens;
  int32_t num_heads;
  int32_t num_kv_heads;
  int32_t block_size;
  int32_t rotary_dim;  // Leading dimensions of a head that rotate; a multiple of 16.
  bool norms_after_rotation;
  // Above 0: Q of position p is multiplied by 1 + query_growth * ln(1 + floor(p / query_span)) in the end.
  float query_growth;
  int32_t query_span;  // Number of positions.
};

// A warp handles one head of a token at a time. Lane c < rotary_dim / 16 holds chunk c of the first half of what
// rotates and chunk c of the second half, which are rotated together. The next lanes hold two chunks each of the rest.
template <typename Element, UnitSize kSize, int kHeadDim>
class RopeAppendKernel {
 public:
  using Args = RopeAppendKernelArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 0;

  static QUIRE_DEVICE void Run(const RopeAppendKernelArgs& args) {
    constexpr int kWarps = kThreads / simt::kWarpSize;
    simt::WaitForPriorGrid();
    const int heads = args.num_heads + 2 * args.num_kv_heads;
    const int64_t num_items = int64_t{args.num_tokens} * heads;
    // All lanes take part in every round, because they add their squares together.
    for (int64_t i = int64_t{simt::BlockIndex()} * kWarps + simt::WarpIndex(); i < num_items;
         i += int64_t{simt::GridSize()} * kWarps) {
      RunHead(args, int(i / heads), int(i % heads));
    }
    simt::TriggerNextGrid();
  }

 private:
  static_assert(kHeadDim % 16 == 0);
  static constexpr int kHalf = kHeadDim / 2;
  static constexpr int kHalfChunks = kHalf / 8;

  static QUIRE_DEVICE void RunHead(const RopeAppendKernelArgs& args, int token, int head) {
    const int heads = args.num_heads + 2 * args.num_kv_heads;
    const Chunks chunks(args.rotary_dim);
    uint16_t* const row = args.qkv + (int64_t{token} * heads + head) * kHeadDim;
    const bool is_query = head < args.num_heads, is_value = head >= args.num_heads + args.num_kv_heads;
    const float* const norm = is_query ? args.q_norm : args.k_norm;
    const bool has_chunks = simt::LaneIndex() < kHalfChunks;
    Vector8<Element> low = {}, high = {};
    if (has_chunks) {
      low = Vector8<Element>::Load(row + 8 * chunks.low());
      high = Vector8<Element>::Load(row + 8 * chunks.high());
    }
    if (!is_value) {
      const int position = simt::LoadReadOnly(args.positions + token);
      if (norm != nullptr && !args.norms_after_rotation) Normalize(norm, args.norm_epsilon, chunks, &low, &high);
      if (chunks.rotate()) Rotate(args, position, &low, &high);
      if (norm != nullptr && args.norms_after_rotation) Normalize(norm, args.norm_epsilon, chunks, &low, &high);
      if (is_query && args.query_growth > 0) Grow(args, position, &low, &high);
    }
    if constexpr (Element::kKvBytes == 1) {
      if (!is_query) return AppendInt8(args, token, (head - args.num_heads) % args.num_kv_heads, is_value, low, high);
    }
    if (!has_chunks) return;
    if (is_query) {
      low.Store(row + 8 * chunks.low());
      high.Store(row + 8 * chunks.high());
      return;
    }
    const int64_t slot = simt::LoadReadOnly(args.slots + token);
    if (slot < 0) return;
    const int kv_head = (head - args.num_heads) % args.num_kv_heads;
    Append(args, slot, kv_head, is_value, chunks.low(), low);
    Append(args, slot, kv_head, is_value, chunks.high(), high);
  }

  // The division of the chunks of a head among the lanes.
  class Chunks {
   public:
    explicit QUIRE_DEVICE Chunks(int rotary_dim) : num_rotating_(rotary_dim / 16) {}

    // Whether the chunks of this lane are rotated together.
    QUIRE_DEVICE bool rotate() const { return simt::LaneIndex() < num_rotating_; }
    // The two chunks of this lane. REQUIRES: the lane is below kHalfChunks.
    QUIRE_DEVICE int low() const { return rotate() ? simt::LaneIndex() : num_rotating_ + simt::LaneIndex(); }
    QUIRE_DEVICE int high() const {
      return rotate() ? num_rotating_ + simt::LaneIndex() : kHalfChunks + simt::LaneIndex();
    }
    // Whether a chunk is the `low` one of its lane, and that lane.
    QUIRE_DEVICE bool IsLow(int chunk) const {
      return chunk < num_rotating_ || (chunk >= 2 * num_rotating_ && chunk < num_rotating_ + kHalfChunks);
    }
    QUIRE_DEVICE int LaneOf(int chunk) const {
      return chunk < num_rotating_ ? chunk
                                   : chunk - (chunk < num_rotating_ + kHalfChunks ? num_rotating_ : kHalfChunks);
    }

   private:
    const int num_rotating_;  // Of each of the two halves of what rotates.
  };

  static QUIRE_DEVICE void Normalize(const float* weight, float epsilon, const Chunks& chunks, Vector8<Element>* low,
                                     Vector8<Element>* high) {
    float squares = 0;
    QUIRE_UNROLL for (int i = 0; i < 8; ++i) squares += low->x[i] * low->x[i] + high->x[i] * high->x[i];
    const float factor = simt::ReciprocalSqrt(WarpSum(squares) / kHeadDim + epsilon);
    if (simt::LaneIndex() >= kHalfChunks) return;
    QUIRE_UNROLL for (int i = 0; i < 8; i += 4) {
      const Floats4 low_weights = Floats4::LoadReadOnly(weight + 8 * chunks.low() + i);
      const Floats4 high_weights = Floats4::LoadReadOnly(weight + 8 * chunks.high() + i);
      QUIRE_UNROLL for (int j = 0; j < 4; ++j) {
        low->x[i + j] *= factor * low_weights.x[j];
        high->x[i + j] *= factor * high_weights.x[j];
      }
    }
  }

  static QUIRE_DEVICE void Rotate(const RopeAppendKernelArgs& args, int position, Vector8<Element>* low,
                                  Vector8<Element>* high) {
    const float* const cosines = args.rotary_table + int64_t{position} * args.rotary_dim + 8 * simt::LaneIndex();
    const float* const sines = cosines + args.rotary_dim / 2;
    QUIRE_UNROLL for (int i = 0; i < 8; i += 4) {
      const Floats4 cosine = Floats4::LoadReadOnly(cosines + i), sine = Floats4::LoadReadOnly(sines + i);
      QUIRE_UNROLL for (int j = 0; j < 4; ++j) {
        const float a = low->x[i + j], b = high->x[i + j];
        low->x[i + j] = a * cosine.x[j] - b * sine.x[j];
        high->x[i + j] = b * cosine.x[j] + a * sine.x[j];
      }
    }
  }

  static QUIRE_DEVICE void Grow(const RopeAppendKernelArgs& args, int position, Vector8<Element>* low,
                                Vector8<Element>* high) {
    constexpr float kLn2 = 0.693147181f;
    const float factor = 1 + args.query_growth * kLn2 * simt::Log2(float(1 + position / args.query_span));
    QUIRE_UNROLL for (int i = 0; i < 8; ++i) {
      low->x[i] *= factor;
      high->x[i] *= factor;
    }
  }

  static QUIRE_DEVICE void Append(const RopeAppendKernelArgs& args, int64_t slot, int kv_head, bool is_value, int chunk,
                                  const Vector8<Element>& values) {
    const KvUnit<kHeadDim> unit = {UnitTokens<kSize>(args.block_size)};
    const int64_t block = slot / args.block_size;
    const int offset = int(slot % args.block_size);
    const int64_t index =
        (block * args.num_kv_heads + kv_head) * UnitsPerBlock<kSize>(args.block_size) + offset / unit.num_tokens;
    const int place = (is_value ? unit.matrix_chunks() : 0) + unit.Place(offset % unit.num_tokens, chunk);
    values.Store(reinterpret_cast<uint16_t*>(args.kv_pool + index * unit.bytes() + place * unit.kChunkBytes));
  }

  // Rounds the K or V of a token and KV head by the formula of kv_layout.h, and stores it. All lanes take part; those
  // without chunks have zeros.
  static QUIRE_DEVICE void AppendInt8(const RopeAppendKernelArgs& args, int token, int kv_head, bool is_value,
                                      const Vector8<Element>& low, const Vector8<Element>& high) {
    const int64_t slot = simt::LoadReadOnly(args.slots + token);
    if (slot < 0) return;
    float largest = 0, mark = 0;
    QUIRE_UNROLL for (int i = 0; i < 8; ++i) {
      largest = fmaxf(largest, fmaxf(fabsf(low.x[i]), fabsf(high.x[i])));
      mark += low.x[i] * 0 + high.x[i] * 0;  // Becomes NaN with an infinity or a NaN, and stays 0 otherwise.
    }
    largest = WarpMax(largest) + WarpSum(mark);
    const Int8Rounding rounding = Int8Rounding::Of(largest);
    uint32_t low_words[2], high_words[2];
    QUIRE_UNROLL for (int i = 0; i < 2; ++i) {
      low_words[i] = rounding.RoundFour(low.x + 4 * i);
      high_words[i] = rounding.RoundFour(high.x + 4 * i);
    }
    // Chunk c of the unit, which lane c stores, has the elements of the chunks 2c and 2c + 1 of the head in turns.
    const Chunks chunks(args.rotary_dim);
    const int chunk = simt::LaneIndex();
    simt::U32x4 words;
    QUIRE_UNROLL for (int i = 0; i < 2; ++i) {
      const uint32_t even = FromChunk(chunks, 2 * chunk, low_words[i], high_words[i]);
      const uint32_t odd = FromChunk(chunks, 2 * chunk + 1, low_words[i], high_words[i]);
      words.word[2 * i] = InTurns(even) | InTurns(odd) << 8;
      words.word[2 * i + 1] = InTurns(even >> 16) | InTurns(odd >> 16) << 8;
    }
    constexpr KvUnit<kHeadDim, 1> unit = {KvLayout::kUnitTokens};
    const int in_unit = int(slot % unit.num_tokens);
    const int64_t in_block = slot % args.block_size, head_start = int64_t{kv_head} * args.block_size;
    const int64_t index = ((slot - in_block) * args.num_kv_heads + head_start + in_block) / unit.num_tokens;
    char* const to = args.kv_pool + index * unit.bytes();
    if (chunk < unit.kRowChunks) {
      const int place = (is_value ? unit.matrix_chunks() : 0) + unit.Place(in_unit, chunk);
      simt::StoreGlobal(reinterpret_cast<simt::U32x4*>(to + place * unit.kChunkBytes), words);
    }
    if (chunk == 0) {
      char* const scales = to + 2 * unit.matrix_bytes() + (is_value ? unit.scale_bytes() : 0);
      simt::StoreGlobal(reinterpret_cast<float*>(scales) + in_unit, rounding.scale);
    }
  }

  // Returns the word of a chunk of the head from the lane that has the chunk.
  static QUIRE_DEVICE uint32_t FromChunk(const Chunks& chunks, int chunk, uint32_t low_word, uint32_t high_word) {
    const int lane = chunks.LaneOf(chunk) % simt::kWarpSize;
    const uint32_t from_low = simt::Shuffle(low_word, lane), from_high = simt::Shuffle(high_word, lane);
    return chunks.IsLow(chunk) ? from_low : from_high;
  }

  // Moves the bytes 0 and 1 to the bytes 0 and 2.
  static QUIRE_DEVICE uint32_t InTurns(uint32_t bytes) { return (bytes & 0xff) | (bytes & 0xff00) << 8; }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ROPE_APPEND_H_
