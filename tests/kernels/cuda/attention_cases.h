#ifndef QUIRE_TESTS_KERNELS_CUDA_ATTENTION_CASES_H_
#define QUIRE_TESTS_KERNELS_CUDA_ATTENTION_CASES_H_

#include <utility>
#include <vector>

#include "tests/kernels/attention_steps.h"

// What the attention kernels of the GPU are tested with, in the emulator and on a device.

namespace quire::cuda {

struct AttentionCase {
  Shape shape;
  std::vector<std::pair<int, int>> sequences;  // Tokens, and how many of the last are queries.
};

// All kinds of heads, blocks and lengths.
std::vector<AttentionCase> AttentionCases();

// Stores K and V of the slices' tokens [begin, end) in the pool, as RopeAppend would; rope is not under test.
void StoreTokens(const Shape& shape, const std::vector<Slice>& slices, PagedPool* pool);

// Random sequences, stored in the pool, each with its last tokens as queries.
std::vector<Slice> MakeSlices(const Shape& shape, const std::vector<std::pair<int, int>>& tokens_and_queries,
                              std::vector<Sequence>* sequences, PagedPool* pool, Random* random);

// Beams that share 34 blocks of 16: two splits of 256, and a tail that each reads for itself.
struct Beams {
  static constexpr int kSharedBlocks = 34;

  Beams(const Shape& shape, int count);

  Random random;
  PagedPool pool;
  std::vector<Sequence> sequences;
  std::vector<Slice> slices;
};

// Softmax attention of the slices in double, with q, k and v rounded to the type.
std::vector<double> ReferenceAttention(const Shape& shape, const std::vector<Slice>& slices);

}  // namespace quire::cuda

#endif  // QUIRE_TESTS_KERNELS_CUDA_ATTENTION_CASES_H_
