// SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include "kernels/cpu/linear/tile_order.h"
#include "kernels/reference/dense.h"
#include "tests/kernels/attention_steps.h"

namespace quire {
namespace {

// Returns all positions of one head as a matrix [tokens, head_dim], rounded to the stored type.
std::vector<double> HeadOf(const std::vector<float>& all, int num_heads, int head, int head_dim, DataType type) {
  std::vector<double> result;
  for (size_t start = size_t(head) * head_dim; start < all.size(); start += size_t(num_heads) * head_dim) {
    for (int d = 0; d < head_dim; ++d) result.push_back(Rounded(all[start + d], type));
  }
  return result;
}

// Whether the kernels multiply the type as pairs of bfloat16. Then the scaled query and the weights are rounded to it.
bool MultipliesPairs(cpu::Isa isa, DataType type) {
  return type == DataType::kBFloat16 && (isa == cpu::Isa::kAvx512Bf16 || isa == cpu::Isa::kAmx);
}

struct Expectation {
  std::vector<double> out;
  std::vector<double> absolute;  // The same weights applied to |v|. It limits how much a relative error of the weights
                                 // can change `out`.
};

Expectation Expected(const Shape& shape, const Sequence& sequence, bool rounds_query) {
  const int dim = shape.head_dim;
  std::vector<std::vector<double>> k, v, absolute_v;
  for (int head = 0; head < shape.num_kv_heads; ++head) {
    k.push_back(HeadOf(sequence.k, shape.num_kv_heads, head, dim, shape.type));
    v.push_back(HeadOf(sequence.v, shape.num_kv_heads, head, dim, shape.type));
    absolute_v.push_back(v.back());
    for (double& value : absolute_v.back()) value = std::abs(value);
  }
  Expectation expected;
  const float scale = 1 / std::sqrt(float(dim));
  for (int t = 0; t < sequence.num_tokens; ++t) {
    const int begin = shape.window == 0 ? 0 : std::max(0, t + 1 - shape.window);
    for (int h = 0; h < shape.num_heads; ++h) {
      const int kv_head = h * shape.num_kv_heads / shape.num_heads;
      const auto first = sequence.q.begin() + (int64_t{t} * shape.num_heads + h) * dim;
      std::vector<double> q(first, first + dim);
      if (rounds_query) {
        for (double& value : q) value = Rounded(float(value) * scale, DataType::kBFloat16);
      }
      const auto append = [&](const std::vector<double>& values, std::vector<double>* to) {
        const std::vector<double> row =
            reference::Attend(q, k[kv_head], values, begin, t + 1, rounds_query ? 1 : 1 / std::sqrt(double(dim)),
                              shape.softcap, shape.sinks == nullptr ? -INFINITY : shape.sinks[h]);
        to->insert(to->end(), row.begin(), row.end());
      };
      append(v[kv_head], &expected.out);
      append(absolute_v[kv_head], &expected.absolute);
    }
  }
  return expected;
}

// All arithmetic is float32 with one exception. Kernels that multiply pairs round every weight to bfloat16, which has 8
// bits. This changes a weight by at most 2^-8 of its value. The divisor is the sum of the weights before rounding.
// Therefore an output may differ by 2^-8 of the sum of |weight * v|.
void CheckOutput(cpu::Isa isa, const Shape& shape, const Sequence& sequence, const std::vector<float>& out) {
  if (!MultipliesPairs(isa, shape.type)) {
    EXPECT_LT(RelativeError(out, Expected(shape, sequence, false).out), 2e-6);
    return;
  }
  const Expectation expected = Expected(shape, sequence, true);
  ASSERT_EQ(out.size(), expected.out.size());
  double excess = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const double bound = (0x1p-8 + 1e-5) * expected.absolute[i];
    const double error = std::abs(out[i] - expected.out[i]);
    excess = std::isnan(error) ? INFINITY : std::max(excess, error / bound);
  }
  EXPECT_LE(excess, 1);
}

using AttentionTest = CpuBackendTest;

TEST_P(AttentionTest, AgreesWithTheReferenceForEveryShapeAndType) {
  const auto backend = MakeBackend();
  Random random(1);
  const int head_dims[] = {2, 8, 16, 24, 64, 80, 128, 256};
  const int block_sizes[] = {1, 2, 4, 8, 16, 32, 64};
  for (int i = 0; i < 48; ++i) {
    const int num_kv_heads = random.Int(1, 3);
    Shape shape = {.num_heads = num_kv_heads * random.Int(1, i % 8 == 0 ? 12 : 4),
                   .num_kv_heads = num_kv_heads,
                   .head_dim = head_dims[i % 8],
                   .block_size = block_sizes[random.Int(0, 6)],
                   .type = kAllTypes[i % 3],
                   .window = i % 4 == 3 ? random.Int(1, 70) : 0,
                   .softcap = i % 5 == 2 ? 0.7f : 0};
    const std::vector<float> sinks = random.Normals(shape.num_heads, 3);
    if (i % 7 < 3) shape.sinks = sinks.data();
    const Sequence sequence = MakeSequence(shape, random.Int(1, 150), &random);
    const std::vector<int> chunks = RandomChunks(sequence.num_tokens, i % 2 == 0 ? 1 : 90, &random);
    const std::vector<float> out = RunChunks(backend.get(), shape, sequence, chunks, i);
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << ToString(shape));
    CheckOutput(GetParam(), shape, sequence, out);
  }
}

// A sink far above all scores leaves nothing to the tokens, and one far below them changes no bit.
TEST_P(AttentionTest, SinksMayBeFarFromTheScores) {
  const auto backend = MakeBackend();
  Random random(9);
  Shape shape = {.num_heads = 2, .num_kv_heads = 1, .head_dim = 16, .block_size = 16, .type = DataType::kBFloat16};
  const Sequence sequence = MakeSequence(shape, 40, &random);
  const std::vector<float> without = RunChunks(backend.get(), shape, sequence, {40}, 1);
  const std::vector<float> below(2, -1000), above(2, 1000);
  shape.sinks = below.data();
  EXPECT_EQ(RunChunks(backend.get(), shape, sequence, {40}, 1), without);
  shape.sinks = above.data();
  for (const float out : RunChunks(backend.get(), shape, sequence, {40}, 1)) ASSERT_LT(std::abs(out), 1e-30f);
}

TEST_P(AttentionTest, JoinsTheSplitsOfLongContexts) {
  const auto backend = MakeBackend(4);
  Random random(2);
  for (const int window : {0, 700}) {
    const Shape shape = {.num_heads = 2,
                         .num_kv_heads = 1,
                         .head_dim = 32,
                         .block_size = 16,
                         .type = DataType::kBFloat16,
                         .window = window};
    const Sequence sequence = MakeSequence(shape, 1300, &random);
    const std::vector<float> out = RunChunks(backend.get(), shape, sequence, {1200, 1299, 1300}, 3);
    SCOPED_TRACE(ToString(shape));
    CheckOutput(GetParam(), shape, sequence, out);
  }
}

// The largest score of a row grows by far, several times within a split. So the sums of earlier tokens must be scaled.
TEST_P(AttentionTest, ScalesItsSumsWhenScoresGrow) {
  const auto backend = MakeBackend();
  Random random(6);
  const Shape shape = {
      .num_heads = 6, .num_kv_heads = 2, .head_dim = 64, .block_size = 16, .type = DataType::kBFloat16, .window = 0};
  Sequence sequence = MakeSequence(shape, 460, &random);
  const size_t kv_row = size_t(shape.num_kv_heads) * shape.head_dim;
  for (size_t i = 0; i < sequence.k.size(); ++i) sequence.k[i] *= 0.02f * float(i / kv_row + 1);
  const std::vector<float> out = RunChunks(backend.get(), shape, sequence, {300, 301, 302, 460}, 4);
  if (MultipliesPairs(GetParam(), shape.type)) {
    CheckOutput(GetParam(), shape, sequence, out);
  } else {
    EXPECT_LT(RelativeError(out, Expected(shape, sequence, false).out), 2e-5);  // Scores of 30 have errors of 1e-6.
  }
}

TEST_P(AttentionTest, RoundsItsOutputToTheTypeThatIsAskedFor) {
  const auto backend = MakeBackend();
  Random random(3);
  const Shape shape = {
      .num_heads = 3, .num_kv_heads = 1, .head_dim = 24, .block_size = 16, .type = DataType::kFloat32, .window = 0};
  const Sequence sequence = MakeSequence(shape, 20, &random);
  PagedPool pool(LayoutOf(shape), 5, &random);
  const std::vector<Slice> slices = {{&sequence, pool.MakeTable(20), 0, 20}};
  const std::vector<float> out = RunStep(backend.get(), shape, &pool, slices);
  for (const DataType type : kAllTypes) {
    EXPECT_EQ(RunStep(backend.get(), shape, &pool, slices, type), Rounded(out, type)) << Name(type);
  }
}

// The product by the matrix that selects every element shows what is in the tiles.
TEST_P(AttentionTest, TilesHoldTheSameNumbersAsRows) {
  Random random(31);
  for (const int head_dim : {24, 64}) {
    const Shape shape = {
        .num_heads = 12, .num_kv_heads = 4, .head_dim = head_dim, .block_size = 16, .type = DataType::kBFloat16};
    const int dim = shape.num_heads * head_dim;
    std::vector<float> selection(size_t(dim) * dim);
    for (int i = 0; i < dim; ++i) selection[size_t(i) * dim + i] = 1;
    const std::vector<char> bytes = Encoded(selection, DataType::kBFloat16);
    // Four slices have other blocks than one.
    const bool has_slices = head_dim == 64;
    const MatrixView view = {
        .data = bytes.data(), .rows = dim, .cols = dim, .type = DataType::kBFloat16, .num_slices = has_slices ? 4 : 1};
    const auto backend = MakeBackend(2);
    const auto w = backend->Pack(&view, 1);
    const InputLayout tiles = cpu::TilesOf(has_slices ? 4 : 1);
    for (const int num_tokens : {128, 129, 200}) {
      const Sequence sequence = MakeSequence(shape, num_tokens, &random);
      PagedPool pool(LayoutOf(shape), 20, &random);
      const std::vector<Slice> slices = {{&sequence, pool.MakeTable(num_tokens), 0, num_tokens}};
      const InputLayout layout = backend->InputLayoutOf(*w, num_tokens);
      EXPECT_EQ(layout, GetParam() == cpu::Isa::kAmx && num_tokens > 128 ? tiles : InputLayout::kRows);
      std::vector<float> out(size_t(num_tokens) * dim, NAN), selected(out.size());
      RunStep(backend.get(), shape, &pool, slices, backend->InputType(*w), layout, out.data());
      backend->Linear({.x = out.data(),
                       .w = w.get(),
                       .bias = nullptr,
                       .residual = nullptr,
                       .y = selected.data(),
                       .num_tokens = num_tokens,
                       .x_layout = layout});
      EXPECT_EQ(selected, RunStep(backend.get(), shape, &pool, slices, backend->InputType(*w))) << num_tokens;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, AttentionTest, testing::ValuesIn(TestedIsas()), IsaName);

}  // namespace
}  // namespace quire
