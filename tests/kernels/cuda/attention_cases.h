// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KERNELS_CUDA_ATTENTION_CASES_H_
#define QUIRE_TESTS_KERNELS_CUDA_ATTENTION_CASES_H_

#include <utility>
#include <vector>

#include "tests/kernels/attention_steps.h"

// Cases for the attention kernels of the GPU, in the emulator and on a device.

namespace quire::cuda {

struct AttentionCase {
  Shape shape;
  std::vector<std::pair<int, int>> sequences;  // Number of tokens, and how many of the last are queries.
};

// Cases with all kinds of heads, blocks and lengths.
std::vector<AttentionCase> AttentionCases();
// The same with K and V of int8.
std::vector<AttentionCase> Int8KvCases();

// Stores K and V of the slices' tokens [begin, end) in the pool, like RopeAppend. The rotation is not under test.
void StoreTokens(const Shape& shape, const std::vector<Slice>& slices, PagedPool* pool);

// Makes random sequences, stores them in the pool, and returns slices whose queries are each sequence's last tokens.
std::vector<Slice> MakeSlices(const Shape& shape, const std::vector<std::pair<int, int>>& tokens_and_queries,
                              std::vector<Sequence>* sequences, PagedPool* pool, Random* random);

// Beams that share their first 34 blocks. With blocks of 16 tokens, these are two whole splits of 256 tokens, which can
// be read once for all beams, and a rest that each beam reads by itself.
struct Beams {
  static constexpr int kSharedBlocks = 34;

  Beams(const Shape& shape, int count);

  Random random;
  PagedPool pool;
  std::vector<Sequence> sequences;
  std::vector<Slice> slices;
};

// Returns the softmax attention of the slices in double, with q rounded to the type, and k and v as they are stored.
std::vector<double> ReferenceAttention(const Shape& shape, const std::vector<Slice>& slices);

}  // namespace quire::cuda

#endif  // QUIRE_TESTS_KERNELS_CUDA_ATTENTION_CASES_H_
