// SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include "kernels/cpu/kv_unit.h"
#include "kernels/reference/dense.h"
#include "tests/kernels/paged_batch.h"

namespace quire {
namespace {

using KvAppendTest = CpuBackendTest;

// Returns element `index` of an array of the type.
float At(const void* data, size_t index, KvType type) {
  if (type == KvType::kBFloat16) return ToFloat(static_cast<const BFloat16*>(data)[index]);
  if (type == KvType::kFloat16) return ToFloat(static_cast<const Float16*>(data)[index]);
  return static_cast<const float*>(data)[index];
}

struct Step {
  int num_heads = 3;
  int rotary_dim = 0;
  bool has_norm = false;
  bool norms_after_rotation = false;
  float query_growth = 0;
  int query_span = 0;
  float scaling = 1;
  std::vector<float> inv_freq, q_norm, k_norm, qkv;
};

Step MakeStep(const KvLayout& layout, int num_tokens, int rotary_dim, bool has_norm, Random* random) {
  Step step;
  step.rotary_dim = rotary_dim;
  step.has_norm = has_norm;
  step.scaling = has_norm ? 1.25f : 1.0f;
  for (int i = 0; i < rotary_dim / 2; ++i) step.inv_freq.push_back(std::pow(100.0f, -2.0f * i / rotary_dim));
  step.q_norm = random->Normals(layout.head_dim);
  step.k_norm = random->Normals(layout.head_dim);
  step.qkv = random->Normals(size_t(num_tokens) * (step.num_heads + 2 * layout.num_kv_heads) * layout.head_dim);
  return step;
}

void RunRopeAppend(Backend* backend, const BatchView& view, const KvLayout& layout, void* pool, Step* step) {
  backend->RopeAppend({.batch = &view,
                       .qkv = step->qkv.data(),
                       .num_heads = step->num_heads,
                       .q_norm = step->has_norm ? step->q_norm.data() : nullptr,
                       .k_norm = step->has_norm ? step->k_norm.data() : nullptr,
                       .norm_epsilon = 1e-6f,
                       .inv_freq = step->inv_freq.data(),
                       .rotary_dim = step->rotary_dim,
                       .attention_scaling = step->scaling,
                       .norms_after_rotation = step->norms_after_rotation,
                       .query_growth = step->query_growth,
                       .query_span = step->query_span,
                       .layout = &layout,
                       .kv_pool = pool});
}

// Returns one head of a row after norm and rotation.
std::vector<double> ExpectedHead(const Step& step, const float* head, int head_dim, const std::vector<float>& norm,
                                 int position) {
  std::vector<double> values(head, head + head_dim);
  const auto normalize = [&](bool is_after) {
    if (step.has_norm && step.norms_after_rotation == is_after)
      values = reference::RmsNorm(values, Doubles(norm), 1e-6);
  };
  normalize(/*is_after=*/false);
  reference::Rotate(position, Doubles(step.inv_freq), step.scaling, values.data());
  normalize(/*is_after=*/true);
  return values;
}

void CheckAgainstReference(Backend* backend, const KvLayout& layout, int rotary_dim, bool has_norm, Random* random) {
  PagedPool pool(layout, 60, random);
  const int num_tokens = 41;
  const std::vector<uint32_t> table = pool.MakeTable(num_tokens);
  Step step = MakeStep(layout, num_tokens, rotary_dim, has_norm, random);
  const Step before = step;
  // The chunks begin and end at even and odd tokens of a unit.
  const size_t row_size = size_t(step.num_heads + 2 * layout.num_kv_heads) * layout.head_dim;
  for (int begin = 0; const int end : {7, 18, 21, num_tokens}) {
    PagedBatch batch;
    batch.Add(table, begin, end, layout.block_size);
    const BatchView view = batch.View();
    Step chunk = before;
    chunk.qkv.assign(before.qkv.begin() + int64_t(begin * row_size), before.qkv.begin() + int64_t(end * row_size));
    RunRopeAppend(backend, view, layout, pool.data(), &chunk);
    std::copy(chunk.qkv.begin(), chunk.qkv.end(), step.qkv.begin() + int64_t(begin * row_size));
    begin = end;
  }

  const int dim = layout.head_dim, row_heads = step.num_heads + 2 * layout.num_kv_heads;
  // bfloat16 keeps 8 bits and float16 11. The tolerance is half a unit of the stored value plus the error of the angle.
  const double tolerance = layout.type == KvType::kBFloat16 ? 5e-3 : layout.type == KvType::kFloat16 ? 7e-4 : 1e-5;
  for (int t = 0; t < num_tokens; ++t) {
    const float* row = before.qkv.data() + int64_t{t} * row_heads * dim;
    for (int h = 0; h < step.num_heads; ++h) {
      const float* q = step.qkv.data() + (int64_t{t} * row_heads + h) * dim;
      EXPECT_LT(RelativeError({q, q + dim}, ExpectedHead(before, row + h * dim, dim, before.q_norm, t)), 1e-5);
    }
    for (int h = 0; h < layout.num_kv_heads; ++h) {
      const int offset = t % layout.block_size;
      const size_t unit = layout.unit_start(table[t / layout.block_size], h, offset);
      const cpu::UnitStrides key = cpu::KeyStrides(layout, offset % layout.unit_tokens());
      const cpu::UnitStrides value = cpu::ValueStrides(layout, offset % layout.unit_tokens());
      std::vector<float> k, v, v_expected;
      for (int d = 0; d < dim; ++d) {
        k.push_back(At(pool.data(), unit + key.At(d), layout.type));
        v.push_back(At(pool.data(), unit + value.At(d), layout.type));
        v_expected.push_back(Rounded(row[(step.num_heads + layout.num_kv_heads + h) * dim + d], DataType(layout.type)));
      }
      const float* k_before = row + (step.num_heads + h) * dim;
      EXPECT_LT(RelativeError(k, ExpectedHead(before, k_before, dim, before.k_norm, t)), tolerance);
      EXPECT_EQ(v, v_expected);
    }
  }
}

TEST_P(KvAppendTest, NormsRotatesAndStoresInEveryLayout) {
  const auto backend = MakeBackend();
  Random random(1);
  for (const DataType type : kAllTypes) {
    for (const int block_size : {1, 4, 16, 32}) {
      for (const int head_dim : {6, 32, 80}) {
        const KvLayout layout = {
            .num_layers = 1, .num_kv_heads = 2, .head_dim = head_dim, .block_size = block_size, .type = KvTypeOf(type)};
        SCOPED_TRACE(testing::Message() << "blocks of " << block_size << " " << Name(type) << ", head_dim "
                                        << head_dim);
        CheckAgainstReference(backend.get(), layout, head_dim, false, &random);
        CheckAgainstReference(backend.get(), layout, head_dim - 2, true, &random);
      }
    }
  }
}

// A rotation of a head with a part that stands still does not commute with a norm that has weights.
TEST_P(KvAppendTest, NormsAfterTheRotationAndGrowsQueries) {
  const auto backend = MakeBackend();
  Random random(4);
  const KvLayout layout = {
      .num_layers = 1, .num_kv_heads = 1, .head_dim = 8, .block_size = 16, .type = KvType::kFloat32};
  PagedPool pool(layout, 4, &random);
  const int num_tokens = 10;
  const std::vector<uint32_t> table = pool.MakeTable(num_tokens);
  PagedBatch batch;
  batch.Add(table, 0, num_tokens, layout.block_size);
  const BatchView view = batch.View();
  Step step = MakeStep(layout, num_tokens, 6, true, &random);
  step.norms_after_rotation = true;
  step.query_growth = 0.3f;
  step.query_span = 4;
  const Step before = step;
  RunRopeAppend(backend.get(), view, layout, pool.data(), &step);
  const int dim = layout.head_dim, row_size = (step.num_heads + 2) * dim;
  for (int t = 0; t < num_tokens; ++t) {
    const double growth = 1 + 0.3 * std::log(1 + t / 4);
    for (int h = 0; h <= step.num_heads; ++h) {  // The last one is of K.
      const int at = t * row_size + h * dim;
      const bool is_query = h < step.num_heads;
      std::vector<double> expected =
          ExpectedHead(before, &before.qkv[at], dim, is_query ? before.q_norm : before.k_norm, t);
      for (double& value : expected) value *= is_query ? growth : 1;
      EXPECT_LT(RelativeError({&step.qkv[at], &step.qkv[at] + dim}, expected), 1e-6) << "token " << t << " head " << h;
    }
  }
}

TEST_P(KvAppendTest, WritesNothingButTheSlotsOfTheBatch) {
  const auto backend = MakeBackend();
  Random random(2);
  for (const int block_size : {2, 16}) {
    const KvLayout layout = {
        .num_layers = 1, .num_kv_heads = 2, .head_dim = 16, .block_size = block_size, .type = KvType::kBFloat16};
    PagedPool pool(layout, 20, &random);
    const std::vector<uint32_t> table = pool.MakeTable(20);
    PagedBatch batch;
    batch.Add(table, 15, 18, block_size);
    Step step = MakeStep(layout, 3, 16, false, &random);
    const BatchView view = batch.View();
    RunRopeAppend(backend.get(), view, layout, pool.data(), &step);
    int written = 0;
    for (size_t i = 0; i < 20 * layout.block_elements(); ++i) {
      written += static_cast<const BFloat16*>(static_cast<void*>(pool.data()))[i].bits != 0xffff;
    }
    EXPECT_EQ(written, 3 * 2 * 2 * 16) << "3 tokens, K and V, 2 heads of 16";
  }
}

// Models were trained with the float32 product of position and frequency, also at large positions. With frequencies
// that are powers of two this product is exact, so the reference in double must agree to the last digits.
TEST_P(KvAppendTest, RotationIsExactAtLargePositions) {
  const auto backend = MakeBackend();
  Random random(3);
  const KvLayout layout = {
      .num_layers = 1, .num_kv_heads = 1, .head_dim = 8, .block_size = 16, .type = KvType::kFloat32};
  PagedPool pool(layout, 1, &random);
  Step step = MakeStep(layout, 1, 8, false, &random);
  step.inv_freq = {1, 0.5f, 0.25f, 0.125f};
  const Step before = step;
  const int32_t position = 131'071, query_starts[] = {0, 1};
  const int64_t slot = 3;
  BatchView view = {};
  view.num_tokens = 1;
  view.num_sequences = 1;
  view.positions = &position;
  view.slots = &slot;
  view.query_starts = query_starts;
  RunRopeAppend(backend.get(), view, layout, pool.data(), &step);
  EXPECT_LT(RelativeError({step.qkv.begin(), step.qkv.begin() + 8},
                          ExpectedHead(before, before.qkv.data(), 8, before.q_norm, position)),
            3e-7);
}

INSTANTIATE_TEST_SUITE_P(Isas, KvAppendTest, testing::ValuesIn(TestedIsas()), IsaName);

}  // namespace
}  // namespace quire
