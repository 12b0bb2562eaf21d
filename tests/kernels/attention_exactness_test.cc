// SPDX-License-Identifier: Apache-2.0

// Only the contents of the cache decide the result of a query. Every comparison here is bit for bit.

#include <algorithm>

#include "tests/kernels/attention_steps.h"

namespace quire {
namespace {

using AttentionExactnessTest = CpuBackendTest;

// A shape for sequences with three splits. The windows below are longer than one tile and shorter than the sequence.
Shape LongShape(DataType type) {
  return {.num_heads = 6,
          .num_kv_heads = 2,
          .head_dim = 32,
          .block_size = 16,
          .type = type,
          .window = 0,
          .softcap = type == DataType::kFloat16 ? 0 : 1.5f};
}
// The same for every type of K and V.
std::vector<Shape> LongShapes() {
  std::vector<Shape> shapes;
  for (const DataType type : kAllTypes) shapes.push_back(LongShape(type));
  shapes.push_back(LongShape(DataType::kFloat32));
  shapes.back().int8_kv = true;
  return shapes;
}
constexpr int kLongTokens = 1100;

TEST_P(AttentionExactnessTest, ChunksOfThePromptDoNotMatter) {
  const auto backend = MakeBackend(), one_thread = MakeBackend(1);
  Random random(1);
  for (Shape shape : LongShapes()) {
    shape.window = shape.type == DataType::kBFloat16 ? 100 : shape.type == DataType::kFloat16 ? 600 : 0;
    const Sequence sequence = MakeSequence(shape, kLongTokens, &random);
    const std::vector<float> whole = RunChunks(backend.get(), shape, sequence, {kLongTokens}, 1);
    std::vector<int> one_by_one;
    for (int end = 1; end <= kLongTokens; ++end) one_by_one.push_back(end);
    EXPECT_EQ(whole, RunChunks(one_thread.get(), shape, sequence, one_by_one, 2)) << ToString(shape);
    const std::vector<int> chunks = RandomChunks(kLongTokens, 300, &random);
    EXPECT_EQ(whole, RunChunks(backend.get(), shape, sequence, chunks, 3)) << ToString(shape);
  }
}

TEST_P(AttentionExactnessTest, BlockSizeAndPlacementDoNotMatter) {
  const auto backend = MakeBackend();
  Random random(2);
  for (Shape shape : LongShapes()) {
    const Sequence sequence = MakeSequence(shape, 200, &random);
    const std::vector<int> chunks = {130, 131, 200};
    const std::vector<float> expected = RunChunks(backend.get(), shape, sequence, chunks, 1);
    for (const int block_size : {1, 2, 4, 8, 16, 32, 64, 256}) {
      shape.block_size = block_size;
      EXPECT_EQ(expected, RunChunks(backend.get(), shape, sequence, chunks, 10 + block_size)) << ToString(shape);
    }
  }
}

TEST_P(AttentionExactnessTest, ThreadCountDoesNotMatter) {
  Random random(3);
  for (const Shape& shape : {LongShapes()[1], LongShapes()[3]}) {
    const Sequence sequence = MakeSequence(shape, kLongTokens, &random);
    const std::vector<int> chunks = {kLongTokens - 2, kLongTokens - 1, kLongTokens};
    const std::vector<float> expected = RunChunks(MakeBackend(1).get(), shape, sequence, chunks, 1);
    for (const int num_threads : {2, 3, 8}) {
      EXPECT_EQ(expected, RunChunks(MakeBackend(num_threads).get(), shape, sequence, chunks, 1)) << num_threads;
    }
  }
}

void ExpectOtherSequencesDoNotMatter(Backend* backend, const Shape& shape) {
  Random random(4);
  std::vector<Sequence> sequences;
  for (int i = 0; i < 12; ++i) sequences.push_back(MakeSequence(shape, i == 5 ? 900 : random.Int(1, 120), &random));
  PagedPool pool(LayoutOf(shape), 300, &random);
  std::vector<std::vector<uint32_t>> tables;
  for (const Sequence& sequence : sequences) tables.push_back(pool.MakeTable(sequence.num_tokens));

  // Each sequence stores all but its last token in its own chunks. Then all of them decode their last token together.
  std::vector<Slice> together;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const int last = sequences[i].num_tokens - 1;
    if (last > 0) RunStep(backend, shape, &pool, {{&sequences[i], tables[i], 0, last}});
    together.push_back({&sequences[i], tables[i], last, last + 1});
  }
  const std::vector<float> all = RunStep(backend, shape, &pool, together);
  const size_t row_size = size_t(shape.num_heads) * shape.head_dim;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const std::vector<float> alone = RunStep(backend, shape, &pool, {together[i]});
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + int64_t(i * row_size))) << "sequence " << i;
  }
}

TEST_P(AttentionExactnessTest, OtherSequencesOfTheBatchDoNotMatter) {
  const auto backend = MakeBackend();
  ExpectOtherSequencesDoNotMatter(backend.get(), LongShapes()[2]);
  ExpectOtherSequencesDoNotMatter(backend.get(), LongShapes()[3]);
}

// Makes a sequence that continues from the first `num_shared` tokens of another.
Sequence Fork(const Shape& shape, const Sequence& parent, int num_shared, int num_tokens, Random* random) {
  Sequence child = MakeSequence(shape, num_tokens, random);
  const auto share = [&](const std::vector<float>& from, int heads, std::vector<float>* to) {
    std::copy_n(from.begin(), int64_t{num_shared} * heads * shape.head_dim, to->begin());
  };
  share(parent.q, shape.num_heads, &child.q);
  share(parent.k, shape.num_kv_heads, &child.k);
  share(parent.v, shape.num_kv_heads, &child.v);
  return child;
}

// Random trees of samples and beams: each sequence shares whole blocks with an earlier one, and decodes one or a few
// tokens in the same step. A sequence that is alone in a step has nothing to share.
TEST_P(AttentionExactnessTest, SharingBlocksDoesNotMatter) {
  const auto backend = MakeBackend();
  for (int round = 0; round < 8; ++round) {
    Random random(100 + round);
    Shape shape = LongShapes()[round % 3 == 0 ? 0 : round % 3 == 1 ? 1 : 3];
    shape.block_size = 1 << random.Int(round % 2 == 0 ? 4 : 2, 7);
    shape.num_heads = shape.num_kv_heads * random.Int(1, 5);
    shape.head_dim = 16;
    shape.window = round == 5 ? 800 : 0;
    SCOPED_TRACE(testing::Message() << "round " << round << ": " << ToString(shape));
    PagedPool pool(LayoutOf(shape), 12'000 / shape.block_size + 20, &random);
    std::vector<Sequence> sequences;
    std::vector<Slice> together;
    sequences.reserve(10);
    for (int i = 0; i < 10; ++i) {
      const int num_new = random.Int(0, 2) > 0 ? 1 : random.Int(1, 10), num_tokens = random.Int(num_new + 1, 1200);
      std::vector<uint32_t> table;
      int num_shared = 0;
      if (i > 0) {
        const int parent = random.Int(0, i - 1);
        const int most = std::min(num_tokens - num_new, sequences[parent].num_tokens - 10) / shape.block_size;
        const int num_blocks = std::max(0, random.Int(0, 2) > 0 ? most : random.Int(0, std::max(0, most)));
        num_shared = num_blocks * shape.block_size;
        table.assign(together[parent].table.begin(), together[parent].table.begin() + num_blocks);
        sequences.push_back(Fork(shape, sequences[parent], num_shared, num_tokens, &random));
      } else {
        sequences.push_back(MakeSequence(shape, num_tokens, &random));
      }
      const std::vector<uint32_t> own = pool.MakeTable(num_tokens - num_shared);
      table.insert(table.end(), own.begin(), own.end());
      const int begin = num_tokens - num_new;
      if (begin > num_shared) RunStep(backend.get(), shape, &pool, {{&sequences[i], table, num_shared, begin}});
      together.push_back({&sequences[i], table, begin, num_tokens});
    }
    const std::vector<float> all = RunStep(backend.get(), shape, &pool, together);
    auto row = all.begin();
    for (size_t i = 0; i < together.size(); ++i) {
      const std::vector<float> alone = RunStep(backend.get(), shape, &pool, {together[i]});
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), row)) << "sequence " << i;
      row += int64_t(alone.size());
    }
  }
}

TEST_P(AttentionExactnessTest, LaterTokensAreNeverRead) {
  const auto backend = MakeBackend();
  Random random(5);
  for (Shape shape : LongShapes()) {
    for (const int block_size : {4, 16}) {
      shape.block_size = block_size;
      Sequence sequence = MakeSequence(shape, 150, &random);
      const std::vector<float> healthy = RunChunks(backend.get(), shape, sequence, {150}, 1);
      const size_t kv_row = size_t(shape.num_kv_heads) * shape.head_dim;
      std::fill(sequence.k.begin() + int64_t(101 * kv_row), sequence.k.end(), NAN);
      std::fill(sequence.v.begin() + int64_t(101 * kv_row), sequence.v.end(), INFINITY);
      std::vector<float> sick = RunChunks(backend.get(), shape, sequence, {150}, 1);
      const size_t rows_before = size_t{101} * shape.num_heads * shape.head_dim;
      EXPECT_TRUE(std::equal(healthy.begin(), healthy.begin() + int64_t(rows_before), sick.begin())) << ToString(shape);
      EXPECT_TRUE(std::isnan(sick[rows_before])) << ToString(shape);
    }
  }
}

TEST(AttentionIsaTest, InstructionSetsWithFusedMultiplyAddAgree) {
  std::vector<cpu::Isa> isas = cpu::SupportedIsas();
  std::erase(isas, cpu::Isa::kGeneric);
  if (isas.size() < 2) GTEST_SKIP() << "one instruction set with fused multiply-add, or none";
  Random random(6);
  for (const Shape& shape : LongShapes()) {
    const Sequence sequence = MakeSequence(shape, 700, &random);
    const auto first = cpu::MakeCpuBackend(2, isas[0]), second = cpu::MakeCpuBackend(2, isas[1]);
    EXPECT_EQ(first->NumericsFingerprint(), second->NumericsFingerprint());
    EXPECT_EQ(RunChunks(first.get(), shape, sequence, {600, 601, 700}, 1),
              RunChunks(second.get(), shape, sequence, {600, 601, 700}, 1));
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, AttentionExactnessTest, testing::ValuesIn(TestedIsas()), IsaName);

}  // namespace
}  // namespace quire
