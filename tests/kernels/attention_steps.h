// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KERNELS_ATTENTION_STEPS_H_
#define QUIRE_TESTS_KERNELS_ATTENTION_STEPS_H_

#include <algorithm>
#include <string>
#include <vector>

#include "tests/kernels/paged_batch.h"

// Attention as a worker uses it: RopeAppend stores K and V, then the queries attend.
namespace quire {

struct Shape {
  int num_heads;
  int num_kv_heads;
  int head_dim;
  int block_size;
  DataType type;
  int window = 0;
  bool int8_kv = false;  // Whether K and V are rounded to int8; then a GPU has queries and outputs of `type`.
  float softcap = 0;
  const float* sinks = nullptr;  // [num_heads], or null.
};

inline KvType KvTypeOf(const Shape& shape) {
  return shape.int8_kv ? KvType::kInt8 : KvTypeOf(shape.type);
}

inline std::string ToString(const Shape& shape) {
  return std::to_string(shape.num_heads) + "/" + std::to_string(shape.num_kv_heads) + " heads of " +
         std::to_string(shape.head_dim) + ", blocks of " + std::to_string(shape.block_size) + " " +
         Name(KvTypeOf(shape)) + ", window " + std::to_string(shape.window) + ", softcap " +
         std::to_string(shape.softcap) + (shape.sinks == nullptr ? "" : ", sinks");
}

// Q, K and V of one sequence before paging: q [tokens, num_heads, head_dim], k and v [tokens, num_kv_heads, head_dim].
// The rotation is not under test, so everything is stored with rotation angle 0.
struct Sequence {
  std::vector<float> q, k, v;
  int num_tokens;
};

inline Sequence MakeSequence(const Shape& shape, int num_tokens, Random* random) {
  const size_t kv_size = size_t(num_tokens) * shape.num_kv_heads * shape.head_dim;
  return {.q = random->Normals(size_t(num_tokens) * shape.num_heads * shape.head_dim),
          .k = random->Normals(kv_size),
          .v = random->Normals(kv_size),
          .num_tokens = num_tokens};
}

inline KvLayout LayoutOf(const Shape& shape) {
  return {.num_layers = 1,
          .num_kv_heads = shape.num_kv_heads,
          .head_dim = shape.head_dim,
          .block_size = shape.block_size,
          .type = KvTypeOf(shape)};
}

// The part of a sequence that one step processes.
struct Slice {
  const Sequence* sequence;
  std::vector<uint32_t> table;
  int begin, end;
};

// Stores K and V of the slices and attends their queries in one step. Writes the output rows in order to `out`, which
// has room for as many elements of float32.
inline void RunStep(Backend* backend, const Shape& shape, PagedPool* pool, const std::vector<Slice>& slices,
                    DataType out_type, InputLayout out_layout, void* out) {
  PagedBatch batch;
  std::vector<float> qkv;
  const int q_size = shape.num_heads * shape.head_dim, kv_size = shape.num_kv_heads * shape.head_dim;
  for (const Slice& slice : slices) {
    batch.Add(slice.table, slice.begin, slice.end, shape.block_size);
    for (int t = slice.begin; t < slice.end; ++t) {
      const auto append = [&](const std::vector<float>& from, int size) {
        qkv.insert(qkv.end(), from.begin() + int64_t{t} * size, from.begin() + int64_t{t + 1} * size);
      };
      append(slice.sequence->q, q_size);
      append(slice.sequence->k, kv_size);
      append(slice.sequence->v, kv_size);
    }
  }
  const BatchView view = batch.View();
  const std::vector<float> no_rotation(shape.head_dim / 2, 0.0f);
  backend->RopeAppend({.batch = &view,
                       .qkv = qkv.data(),
                       .num_heads = shape.num_heads,
                       .q_norm = nullptr,
                       .k_norm = nullptr,
                       .norm_epsilon = 0,
                       .inv_freq = no_rotation.data(),
                       .rotary_dim = shape.head_dim,
                       .attention_scaling = 1,
                       .layout = &pool->layout(),
                       .kv_pool = pool->data()});
  backend->Attention({.batch = &view,
                      .q = qkv.data(),
                      .q_stride = q_size + 2 * kv_size,
                      .out = out,
                      .num_heads = shape.num_heads,
                      .scale = 1 / std::sqrt(float(shape.head_dim)),
                      .window = shape.window,
                      .layout = &pool->layout(),
                      .kv_pool = pool->data(),
                      .out_type = out_type,
                      .out_layout = out_layout,
                      .softcap = shape.softcap,
                      .sinks = shape.sinks});
}

inline int NumRows(const std::vector<Slice>& slices) {
  int num_rows = 0;
  for (const Slice& slice : slices) num_rows += slice.end - slice.begin;
  return num_rows;
}

// Does the same and returns the rows in the precision of `out_type`.
inline std::vector<float> RunStep(Backend* backend, const Shape& shape, PagedPool* pool,
                                  const std::vector<Slice>& slices, DataType out_type = DataType::kFloat32) {
  const size_t num_elements = size_t(NumRows(slices)) * shape.num_heads * shape.head_dim;
  std::vector<char> out(num_elements * SizeOf(out_type), char(0xff));
  RunStep(backend, shape, pool, slices, out_type, InputLayout::kRows, out.data());
  return Decoded(out, out_type);
}

// Runs the whole sequence, alone in its pool, in steps that end at the given tokens.
inline std::vector<float> RunChunks(Backend* backend, const Shape& shape, const Sequence& sequence,
                                    const std::vector<int>& chunk_ends, uint64_t seed) {
  Random random(seed);
  const int num_blocks = sequence.num_tokens / shape.block_size + 5;
  PagedPool pool(LayoutOf(shape), num_blocks, &random);
  const std::vector<uint32_t> table = pool.MakeTable(sequence.num_tokens);
  std::vector<float> out;
  int begin = 0;
  for (int end : chunk_ends) {
    const std::vector<float> rows = RunStep(backend, shape, &pool, {{&sequence, table, begin, end}});
    out.insert(out.end(), rows.begin(), rows.end());
    begin = end;
  }
  return out;
}

// Returns the ends of chunks of 1 to max_chunk tokens that make up num_tokens.
inline std::vector<int> RandomChunks(int num_tokens, int max_chunk, Random* random) {
  std::vector<int> ends;
  for (int end = 0; end < num_tokens; ends.push_back(end)) end = std::min(num_tokens, end + random->Int(1, max_chunk));
  return ends;
}

}  // namespace quire

#endif  // QUIRE_TESTS_KERNELS_ATTENTION_STEPS_H_
