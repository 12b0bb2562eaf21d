// SPDX-License-Identifier: Apache-2.0

#include "kernels/experts.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/blocks.h"
#include "kernels/reference/experts.h"
#include "tests/kernels/kernel_test_util.h"
#include "tests/kernels/router_rules.h"

namespace quire {
namespace {

using ExpertsTest = CpuBackendTest;

// What Route writes.
struct Choices {
  std::vector<int32_t> experts;
  std::vector<float> weights;
  std::vector<float> shared_weights;
};

Choices RouteOn(Backend* backend, const RouterRule& rule, const std::vector<float>& logits, bool has_shared,
                const std::vector<float>& bias = {}) {
  const int num_logits = rule.num_experts + (has_shared ? 1 : 0), num_tokens = int(logits.size()) / num_logits;
  Choices choices;
  choices.experts.resize(size_t(num_tokens) * rule.top_k, -1);
  choices.weights.resize(choices.experts.size(), NAN);
  choices.shared_weights.resize(has_shared ? num_tokens : 0, NAN);
  backend->Route({.rule = rule,
                  .logits = logits.data(),
                  .num_logits = num_logits,
                  .choice_bias = bias.empty() ? nullptr : bias.data(),
                  .num_tokens = num_tokens,
                  .experts = choices.experts.data(),
                  .weights = choices.weights.data(),
                  .shared_weights = has_shared ? choices.shared_weights.data() : nullptr});
  return choices;
}

TEST_P(ExpertsTest, RoutesAreThoseOfTheFormula) {
  const auto backend = MakeBackend();
  Random random(1);
  for (const RouterRule& rule : RouterRules()) {
    for (const bool has_shared : {false, true}) {
      for (const bool has_bias : {false, true}) {
        const int num_tokens = 70, num_logits = rule.num_experts + (has_shared ? 1 : 0);
        const std::vector<float> logits = random.Normals(size_t(num_tokens) * num_logits, 2.0f);
        const std::vector<float> bias = has_bias ? random.Normals(rule.num_experts, 0.3f) : std::vector<float>();
        const Choices actual = RouteOn(backend.get(), rule, logits, has_shared, bias);
        for (int token = 0; token < num_tokens; ++token) {
          const float* const row = &logits[size_t(token) * num_logits];
          const auto expected = reference::Route(rule, {row, row + rule.num_experts}, Doubles(bias));
          for (int k = 0; k < rule.top_k; ++k) {
            const size_t at = size_t(token) * rule.top_k + k;
            ASSERT_EQ(actual.experts[at], expected.experts[k]) << rule.num_experts << " experts, token " << token;
            ASSERT_NEAR(actual.weights[at], expected.weights[k], 1e-6 * expected.weights[k]);
          }
          if (has_shared) {
            const double gate = 1 / (1 + std::exp(-double{row[rule.num_experts]}));
            ASSERT_NEAR(actual.shared_weights[token], gate, 1e-6 * gate);
          }
        }
      }
    }
  }
}

TEST_P(ExpertsTest, EqualScoresGoToTheLowerExpert) {
  const auto backend = MakeBackend();
  const std::vector<float> same(8, 0.25f), two = {0, 1, 3, 1, 1, 3, 1, 0};
  RouterRule rule = {.num_experts = 8, .top_k = 3};
  EXPECT_EQ(RouteOn(backend.get(), rule, same, false).experts, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(RouteOn(backend.get(), rule, two, false).experts, (std::vector<int32_t>{1, 2, 5}));
  rule.num_groups = 4;
  rule.top_groups = 2;
  EXPECT_EQ(RouteOn(backend.get(), rule, same, false).experts, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(RouteOn(backend.get(), rule, two, false).experts, (std::vector<int32_t>{2, 3, 5}));
}

// A broken input must not make the choice leave its arrays.
TEST_P(ExpertsTest, LogitsThatAreNoNumbersGiveSomeChoice) {
  const auto backend = MakeBackend();
  for (RouterRule rule : RouterRules()) {
    for (const float logit : {NAN, INFINITY, -INFINITY}) {
      const Choices choices = RouteOn(backend.get(), rule, std::vector<float>(rule.num_experts, logit), false);
      for (int k = 0; k < rule.top_k; ++k) {
        EXPECT_TRUE(choices.experts[k] >= (k == 0 ? 0 : choices.experts[k - 1] + 1)) << k;
        EXPECT_LT(choices.experts[k], rule.num_experts);
      }
    }
  }
}

// The experts of a layer, in one of the forms that the CPU multiplies.
class Layer {
 public:
  static constexpr int kFirstBlocks = 8, kNumForms = kFirstBlocks + int(BlockType::kMXFP4) + 1;

  // The forms are the values of DataType, int8, int4 by int8, float32 and bfloat16, fp8, and the types of blocks, for
  // which both sizes are rounded up to whole blocks.
  Layer(int form, int num_experts, int min_dim, int min_width, Backend* backend, Random* random,
        bool has_biases = false)
      : form_(form), dim_(WholeBlocks(form, min_dim)), width_(WholeBlocks(form, min_width)) {
    const int dim = dim_, width = width_;
    for (int i = 0; i < num_experts; ++i) {
      if (form >= kFirstBlocks) {
        const BlockType type = BlockType(form - kFirstBlocks);
        const auto gate = Blocks(type, width * dim, random), up = Blocks(type, width * dim, random);
        const auto down = Blocks(type, dim * width, random);
        gate_ups_.push_back(backend->PackGatedBlocks({gate.data(), width, dim, type}, {up.data(), width, dim, type}));
        const BlockMatrixView view = {down.data(), dim, width, type};
        downs_.push_back(backend->PackBlocks(&view, 1));
      } else if (form < 3) {
        const DataType type = DataType(form);
        const auto gate = Encoded(random->Normals(size_t(width) * dim, 0.1f), type);
        const auto up = Encoded(random->Normals(size_t(width) * dim, 0.1f), type);
        const auto down = Encoded(random->Normals(size_t(width) * dim, 0.1f), type);
        gate_ups_.push_back(backend->PackGated({gate.data(), width, dim, type}, {up.data(), width, dim, type}));
        const MatrixView view = {down.data(), dim, width, type, NumSlices(width, 1, 0)};
        downs_.push_back(backend->Pack(&view, 1));
      } else {
        const Numbers gate(form, width, dim, random), up(form, width, dim, random), down(form, dim, width, random);
        gate_ups_.push_back(backend->PackGatedQuantized(gate.View(), up.View()));
        const QuantizedMatrixView view = down.View();
        downs_.push_back(backend->PackQuantized(&view, 1));
      }
      experts_.push_back({gate_ups_.back().get(), downs_.back().get()});
      if (!has_biases) continue;
      biases_.push_back(random->Normals(size_t(2 * width)));
      experts_.back().gate_up_bias = biases_.back().data();
      biases_.push_back(random->Normals(size_t(dim)));
      experts_.back().down_bias = biases_.back().data();
    }
  }

  std::string name() const {
    const std::string names[] = {"float32",          "bfloat16", "float16", "int8", "int4", "int4 by float32",
                                 "int4 by bfloat16", "fp8",      "q8_0",    "q4_k", "q5_k", "q6_k",
                                 "iq4_nl",           "mxfp4"};
    return names[form_];
  }
  int size() const { return int(experts_.size()); }
  int dim() const { return dim_; }
  int width() const { return width_; }
  const Expert* experts() const { return experts_.data(); }

 private:
  static int WholeBlocks(int form, int count) {
    const int columns = form < kFirstBlocks ? 1 : ShapeOf(BlockType(form - kFirstBlocks)).columns;
    return (count + columns - 1) / columns * columns;
  }
  static std::vector<uint8_t> Blocks(BlockType type, int count, Random* random) {
    const BlockShape shape = ShapeOf(type);
    std::vector<uint8_t> blocks(size_t(count / shape.columns * shape.bytes));
    for (uint8_t& byte : blocks) byte = uint8_t(random->Int(0, 255));
    for (size_t at = 0; at < blocks.size(); at += size_t(shape.bytes)) {
      SetBlockScale(type, /*scale=*/float(random->Int(1, 100)) * 1e-5f, /*minimum=*/1e-3f, &blocks[at]);
    }
    return blocks;
  }
  // A random quantized matrix.
  struct Numbers {
    Numbers(int form, int rows, int cols, Random* random)
        : form(form), rows(rows), cols(cols), group(form == 3 ? 0 : 32), values(size_t(rows) * cols) {
      for (int8_t& value : values) {
        value = int8_t(form == 3   ? random->Int(-127, 127)
                       : form == 7 ? random->Int(0, 80) | random->Int(0, 1) << 7
                                   : random->Int(0, 15));
      }
      scales =
          random->Normals(size_t(rows) * (group == 0 ? 1 : (cols + group - 1) / group), form == 7 ? 0.01f : 0.001f);
      zeros.resize(scales.size());
      for (uint8_t& zero : zeros) zero = uint8_t(random->Int(6, 9));
    }
    QuantizedMatrixView View() const {
      const QuantizedFormat formats[] = {QuantizedFormat::kInt8, QuantizedFormat::kInt4, QuantizedFormat::kInt4Float32,
                                         QuantizedFormat::kInt4BFloat16, QuantizedFormat::kFp8};
      return {.values = values.data(),
              .scales = scales.data(),
              .rows = rows,
              .cols = cols,
              .format = formats[form - 3],
              .group = group,
              .zeros = form == 3 || form == 7 ? nullptr : zeros.data()};
    }
    int form, rows, cols, group;
    std::vector<int8_t> values;
    std::vector<float> scales;
    std::vector<uint8_t> zeros;
  };

  int form_, dim_, width_;
  std::vector<std::unique_ptr<PackedMatrix>> gate_ups_, downs_;
  std::vector<std::vector<float>> biases_;
  std::vector<Expert> experts_;
};

// Tokens with their choices.
struct Step {
  std::vector<float> x;          // [num_tokens, dim]
  std::vector<int32_t> experts;  // [num_tokens, top_k]
  std::vector<float> weights;    // The same shape.
  std::vector<float> residual;   // [num_tokens, dim]
  int top_k;

  int num_tokens() const { return int(experts.size()) / top_k; }
};

// Experts are chosen evenly, or nearly all tokens use the first ones.
Step RandomStep(int num_tokens, int top_k, const Layer& layer, bool is_skewed, Random* random) {
  Step step{.x = random->Normals(size_t(num_tokens) * layer.dim()),
            .experts = {},
            .weights = {},
            .residual = random->Normals(size_t(num_tokens) * layer.dim()),
            .top_k = top_k};
  for (int token = 0; token < num_tokens; ++token) {
    std::vector<int32_t> ids(layer.size());
    for (int i = 0; i < layer.size(); ++i) ids[i] = i;
    if (!is_skewed || token % 16 == 0) random->Shuffle(&ids);
    std::sort(ids.begin(), ids.begin() + top_k);
    step.experts.insert(step.experts.end(), ids.begin(), ids.begin() + top_k);
    for (int k = 0; k < top_k; ++k) step.weights.push_back(random->Normal());
  }
  return step;
}

// Returns the tokens [first, first + count).
Step Part(const Step& step, int first, int count) {
  const auto rows = [&](const auto& matrix) {
    const size_t cols = matrix.size() / size_t(step.num_tokens());
    const auto begin = matrix.begin() + int64_t(size_t(first) * cols);
    return std::decay_t<decltype(matrix)>(begin, begin + int64_t(size_t(count) * cols));
  };
  return {rows(step.x), rows(step.experts), rows(step.weights), rows(step.residual), step.top_k};
}

std::vector<float> RunOn(Backend* backend, const Layer& layer, const Step& step,
                         Activation activation = Activation::kSilu) {
  std::vector<float> y = step.residual;
  backend->ExpertMlp({.x = step.x.data(),
                      .w = layer.experts(),
                      .num_experts = layer.size(),
                      .top_k = step.top_k,
                      .experts = step.experts.data(),
                      .weights = step.weights.data(),
                      .shared = nullptr,
                      .shared_weights = nullptr,
                      .residual = y.data(),
                      .y = y.data(),
                      .num_tokens = step.num_tokens(),
                      .activation = activation});
  return y;
}

// The same with an ordinary product for each expert and token, and the reference of the sum.
std::vector<float> ExpectedOf(Backend* backend, const Layer& layer, const Step& step, bool is_fused,
                              Activation activation = Activation::kSilu) {
  std::vector<float> y;
  for (int token = 0; token < step.num_tokens(); ++token) {
    const Step one = Part(step, token, 1);
    std::vector<std::vector<float>> outputs;
    for (const int expert : one.experts) {
      const Expert& w = layer.experts()[expert];
      const std::vector<char> x = Encoded(one.x, backend->InputType(*w.gate_up));
      const DataType gated_type = backend->InputType(*w.down);
      std::vector<char> gated(size_t(layer.width()) * SizeOf(gated_type));
      backend->GatedLinear({.x = x.data(),
                            .w = w.gate_up,
                            .bias = w.gate_up_bias,
                            .y = gated.data(),
                            .y_type = gated_type,
                            .num_tokens = 1,
                            .activation = activation});
      outputs.push_back(
          Multiply(backend, Decoded(gated, gated_type), *w.down, layer.width(), layer.dim(), w.down_bias));
    }
    const std::vector<float> row = reference::SumExperts({one.experts.begin(), one.experts.end()}, layer.size(),
                                                         one.weights, outputs, one.residual, is_fused);
    y.insert(y.end(), row.begin(), row.end());
  }
  return y;
}

TEST_P(ExpertsTest, BitsAreThoseOfOneProductForEachExpertAndTheTreeOfRanges) {
  Random random(2);
  const bool is_fused = GetParam() != cpu::Isa::kGeneric;
  for (int form = 0; form < Layer::kNumForms; ++form) {
    const auto backend = MakeBackend(3);
    const Layer layer(form, /*num_experts=*/19, /*dim=*/96, /*width=*/40, backend.get(), &random);
    for (const int num_tokens : {1, 2, 7}) {
      const Step step = RandomStep(num_tokens, /*top_k=*/5, layer, /*is_skewed=*/false, &random);
      ASSERT_EQ(Bits(RunOn(backend.get(), layer, step)), Bits(ExpectedOf(backend.get(), layer, step, is_fused)))
          << layer.name() << ", " << num_tokens << " tokens";
    }
  }
}

TEST_P(ExpertsTest, EachExpertAddsItsOwnBiases) {
  Random random(5);
  const bool is_fused = GetParam() != cpu::Isa::kGeneric;
  for (int form = 0; form < Layer::kNumForms; ++form) {
    const auto backend = MakeBackend(3);
    const Layer layer(form, /*num_experts=*/5, /*dim=*/96, /*width=*/40, backend.get(), &random, /*has_biases=*/true);
    for (const int num_tokens : {1, 7, 60}) {
      const Step step = RandomStep(num_tokens, /*top_k=*/3, layer, /*is_skewed=*/false, &random);
      ASSERT_EQ(Bits(RunOn(backend.get(), layer, step, Activation::kClampedSwiglu)),
                Bits(ExpectedOf(backend.get(), layer, step, is_fused, Activation::kClampedSwiglu)))
          << layer.name() << ", " << num_tokens << " tokens";
    }
  }
}

// Experts with one row and with many, more rows than one part has, and more panels than an item has.
TEST_P(ExpertsTest, ATokenDoesNotDependOnItsCompanyOrTheThreads) {
  Random random(3);
  const struct { int num_experts, top_k, dim, width; } shapes[] = {{6, 6, 64, 300}, {40, 8, 160, 64}, {3, 2, 2048, 32}};
  for (int form = 0; form < Layer::kNumForms; ++form) {
    for (const auto& shape : shapes) {
      const auto backend = MakeBackend(2), three = MakeBackend(3);
      const Layer layer(form, shape.num_experts, shape.dim, shape.width, backend.get(), &random);
      const int num_tokens = shape.dim == 64 && form == 1 ? 1500 : 150;
      const Step step = RandomStep(num_tokens, shape.top_k, layer, /*is_skewed=*/shape.num_experts == 40, &random);
      const std::vector<float> whole = RunOn(backend.get(), layer, step);
      ASSERT_EQ(Bits(RunOn(three.get(), layer, step)), Bits(whole)) << layer.name();
      for (const int count : {1, 3, 50}) {
        const int first = num_tokens - count - 1;
        const std::vector<float> part = RunOn(backend.get(), layer, Part(step, first, count));
        ASSERT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + int64_t{first} * layer.dim()))
            << layer.name() << ", " << count << " tokens";
      }
    }
  }
}

// They are added after the experts, in this order.
TEST_P(ExpertsTest, TheSharedExpertAndTheResidualComeLast) {
  const auto backend = MakeBackend();
  Random random(4);
  const Layer layer(/*form=*/0, /*num_experts=*/4, /*dim=*/40, /*width=*/32, backend.get(), &random);
  Step step = RandomStep(/*num_tokens=*/9, /*top_k=*/2, layer, /*is_skewed=*/false, &random);
  const std::vector<float> residual = step.residual;
  std::fill(step.residual.begin(), step.residual.end(), 0.0f);
  const std::vector<float> sum = RunOn(backend.get(), layer, step), shared = random.Normals(sum.size());
  for (const bool has_gate : {false, true}) {
    const std::vector<float> gates = random.Normals(step.num_tokens());
    std::vector<float> y = shared, expected;
    for (size_t i = 0; i < sum.size(); ++i) {
      const float gate = has_gate ? gates[i / size_t(layer.dim())] : 1;
      const bool is_fused = GetParam() != cpu::Isa::kGeneric;
      expected.push_back((is_fused ? std::fma(gate, shared[i], sum[i]) : gate * shared[i] + sum[i]) + residual[i]);
    }
    backend->ExpertMlp({.x = step.x.data(),
                        .w = layer.experts(),
                        .num_experts = layer.size(),
                        .top_k = step.top_k,
                        .experts = step.experts.data(),
                        .weights = step.weights.data(),
                        .shared = y.data(),
                        .shared_weights = has_gate ? gates.data() : nullptr,
                        .residual = residual.data(),
                        .y = y.data(),
                        .num_tokens = step.num_tokens()});
    EXPECT_EQ(y, expected);
  }
}

TEST(ExpertRangeTest, RangesAreWholeForTwoFourAndEightDevices) {
  for (const int num_experts : {1, 4, 8, 60, 64, 128, 160}) {
    int before = 0;
    for (int expert = 0; expert < num_experts; ++expert) {
      const int range = ExpertRange(expert, num_experts);
      EXPECT_GE(range, before);
      EXPECT_LT(range, kExpertRanges);
      before = range;
    }
  }
  EXPECT_EQ(ExpertRange(15, 128), 0);
  EXPECT_EQ(ExpertRange(16, 128), 1);
  EXPECT_EQ(ExpertRange(59, 60), 7);
}

INSTANTIATE_TEST_SUITE_P(Isas, ExpertsTest, testing::ValuesIn(TestedIsas()), IsaName);

}  // namespace
}  // namespace quire
