// SPDX-License-Identifier: Apache-2.0

// Compares whole models on the GPU backend, on the emulated device, with the CPU.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <regex>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/emulated_device.h"
#include "kernels/fp8.h"
#include "nlohmann/json.hpp"
#include "tests/worker/model/model_files.h"
#include "tests/worker/model/paged_runner.h"
#include "tests/worker/model/quantized_checkpoint.h"
#include "tests/worker/model/small_gguf.h"
#include "tests/worker/model/test_backends.h"
#include "tools/make_model/model_shape.h"
#include "tools/make_model/safetensors_writer.h"
#include "worker/model/model.h"

namespace quire {
namespace {

constexpr int kPromptTokens = 70;

make_model::ModelShape Shape(const std::string& family) {
  make_model::ModelShape shape = *make_model::Preset("tiny");
  shape.family = family;
  shape.vocab = 264;
  if (family == "mistral") shape.window = 24;
  EXPECT_EQ(make_model::Complete(&shape), "");
  return shape;
}

// All matrices of the layers have whole blocks of 128 x 128, also Q, K and V alone.
make_model::ModelShape ShapeOfBlocks(const std::string& family) {
  make_model::ModelShape shape = *make_model::Preset("tiny");
  shape.family = family;
  shape.vocab = 264;
  shape.dim = 128;
  shape.kv_heads = shape.heads;
  shape.ffn = 256;
  EXPECT_EQ(make_model::Complete(&shape), "");
  return shape;
}

struct LoadedModel {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;
};

LoadedModel Load(const TestDirectory& directory, std::unique_ptr<Backend> backend,
                 const WeightRounding& rounding = {}) {
  absl::StatusOr<std::unique_ptr<Model>> model =
      LoadModel(directory.path(), backend.get(), /*progress=*/nullptr, rounding);
  EXPECT_TRUE(model.ok()) << model.status();
  return {std::move(backend), *std::move(model)};
}

std::unique_ptr<Backend> EmulatedGpu(DataType element, bool exact, bool rounds_int8_inputs = true) {
  return std::make_unique<cuda::CudaBackend>(
      std::make_unique<cuda::EmulatedDevice>(),
      cuda::CudaBackendOptions{.element = element, .exact = exact, .rounds_int8_inputs = rounds_int8_inputs});
}

Tokens Prompt() {
  Tokens tokens(kPromptTokens);
  for (int i = 0; i < kPromptTokens; ++i) tokens[i] = (37 * i + 11) % 264;
  return tokens;
}

// Families with the tensors of another family, which make_model can write.
const std::map<std::string, std::pair<std::string, nlohmann::json>> kRelatives = {
    {"smollm3", {"llama", {{"architectures", {"SmolLM3ForCausalLM"}}, {"no_rope_layers", {0, 1}}}}},
    {"ministral",
     {"mistral",
      {{"architectures", {"MinistralForCausalLM"}}, {"layer_types", {"full_attention", "sliding_attention"}}}}},
    {"helium", {"llama", {{"architectures", {"HeliumForCausalLM"}}, {"head_dim", 16}}}},
    {"seed_oss", {"qwen2", {{"architectures", {"SeedOssForCausalLM"}}, {"head_dim", 16}}}},
};

void WriteModel(std::string family, DataType type, const TestDirectory& directory,
                make_model::ModelShape (*shape_of)(const std::string& family) = &Shape) {
  nlohmann::json changes = nlohmann::json::object();
  if (const auto relative = kRelatives.find(family); relative != kRelatives.end()) {
    std::tie(family, changes) = relative->second;
  }
  const make_model::ModelShape shape = shape_of(family);
  nlohmann::json config = nlohmann::json::parse(make_model::ConfigJson(shape, Name(type)));
  config.update(changes);
  directory.Write("config.json", config.dump());
  const absl::Status status =
      make_model::WriteRandomTensors(make_model::TensorsOf(shape), type, 1, directory.path() + "/model.safetensors");
  ASSERT_TRUE(status.ok()) << status;
}

// Runs every architecture in both types, with biases, norms of heads, sliding windows and chunks. On the CPU everything
// except the weights is float32. On the GPU activations, K and V have 8 or 11 bits, which means about 10 roundings per
// layer.
TEST(GpuModelTest, LogitsAreThoseOfTheCpuUpToRounding) {
  const struct {
    DataType type;
    float tolerance;
  } types[] = {{DataType::kBFloat16, 0.03f}, {DataType::kFloat16, 0.004f}};
  for (const char* family : {"llama", "mistral", "qwen2", "qwen3", "smollm3", "ministral", "seed_oss", "helium"}) {
    for (const auto& [type, tolerance] : types) {
      SCOPED_TRACE(absl::StrCat(family, " ", Name(type)));
      const TestDirectory directory;
      WriteModel(family, type, directory);
      const LoadedModel cpu = Load(directory, cpu::MakeCpuBackend(1, cpu::Isa::kGeneric));
      PagedRunner expected(cpu.model.get(), cpu.backend.get(), {});
      const std::vector<Logits> expected_logits = expected.Prefill(0, Prompt(), kPromptTokens);
      const LoadedModel gpu = Load(directory, EmulatedGpu(type, /*exact=*/false));
      PagedRunner actual(gpu.model.get(), gpu.backend.get(), {.kv_type = KvTypeOf(type)});
      const std::vector<Logits> actual_logits = actual.Prefill(0, Prompt(), 40);
      for (int i = 0; i < kPromptTokens; ++i) {
        EXPECT_LT(RelativeError(actual_logits[i], expected_logits[i]), tolerance) << "after token " << i;
      }
    }
  }
}

TEST(GpuModelTest, InExactModeChunksBlocksAndPlacementChangeNoBit) {
  const TestDirectory directory;
  WriteModel("llama", DataType::kBFloat16, directory);
  const LoadedModel gpu = Load(directory, EmulatedGpu(DataType::kBFloat16, /*exact=*/true));
  PagedRunner whole(gpu.model.get(), gpu.backend.get(), {.kv_type = KvType::kBFloat16});
  const std::vector<Logits> expected = whole.Prefill(0, Prompt(), kPromptTokens);
  for (const auto& [chunk, block_size] : {std::pair(1, 16), std::pair(7, 1), std::pair(33, 4), std::pair(64, 64)}) {
    SCOPED_TRACE(absl::StrCat("chunks of ", chunk, ", blocks of ", block_size));
    PagedRunner runner(gpu.model.get(), gpu.backend.get(),
                       {.block_size = block_size, .kv_type = KvType::kBFloat16, .placement_seed = 5});
    EXPECT_EQ(runner.Prefill(0, Prompt(), chunk), expected);
  }
}

// The CPU rounds the same numbers, up to the rounding of activations to 16 bits.
TEST(GpuModelTest, Int8KvGivesTheLogitsOfTheCpuUpToRounding) {
  constexpr float kTolerance = 0.03f;  // As for bfloat16 without int8.
  for (const char* family : {"llama", "mistral", "qwen3"}) {
    for (const DataType type : {DataType::kBFloat16, DataType::kFloat16}) {
      SCOPED_TRACE(absl::StrCat(family, " ", Name(type)));
      const TestDirectory directory;
      WriteModel(family, type, directory);
      const LoadedModel cpu = Load(directory, cpu::MakeCpuBackend(1, cpu::Isa::kGeneric));
      PagedRunner expected(cpu.model.get(), cpu.backend.get(), {.kv_type = KvType::kInt8});
      const std::vector<Logits> expected_logits = expected.Prefill(0, Prompt(), kPromptTokens);
      const LoadedModel gpu = Load(directory, EmulatedGpu(type, /*exact=*/false));
      PagedRunner actual(gpu.model.get(), gpu.backend.get(), {.kv_type = KvType::kInt8});
      const std::vector<Logits> actual_logits = actual.Prefill(0, Prompt(), 40);
      for (int i = 0; i < kPromptTokens; ++i) {
        EXPECT_LT(RelativeError(actual_logits[i], expected_logits[i]), kTolerance) << "after token " << i;
      }
    }
  }
}

TEST(GpuModelTest, InExactModeChunksBlocksAndPlacementChangeNoBitOfInt8Kv) {
  const TestDirectory directory;
  WriteModel("llama", DataType::kBFloat16, directory);
  const LoadedModel gpu = Load(directory, EmulatedGpu(DataType::kBFloat16, /*exact=*/true));
  PagedRunner whole(gpu.model.get(), gpu.backend.get(), {.kv_type = KvType::kInt8});
  const std::vector<Logits> expected = whole.Prefill(0, Prompt(), kPromptTokens);
  for (const auto& [chunk, block_size] : {std::pair(1, 16), std::pair(33, 32)}) {
    SCOPED_TRACE(absl::StrCat("chunks of ", chunk, ", blocks of ", block_size));
    PagedRunner runner(gpu.model.get(), gpu.backend.get(),
                       {.block_size = block_size, .kv_type = KvType::kInt8, .placement_seed = 5});
    EXPECT_EQ(runner.Prefill(0, Prompt(), chunk), expected);
  }
}

// Blocks are complete with their scales, so that copied and swapped sequences continue as if nothing had happened.
TEST(GpuModelTest, Int8KvIsCopiedAndSwappedWithItsScales) {
  const TestDirectory directory;
  WriteModel("llama", DataType::kBFloat16, directory);
  const LoadedModel gpu = Load(directory, EmulatedGpu(DataType::kBFloat16, /*exact=*/true));
  const Tokens begin(40, 17), end = {5, 6, 7};
  PagedRunner whole(gpu.model.get(), gpu.backend.get(), {.kv_type = KvType::kInt8});
  whole.Prefill(0, begin, 40);
  const std::vector<Logits> expected = whole.Prefill(0, end, 3);
  PagedRunner runner(gpu.model.get(), gpu.backend.get(), {.kv_type = KvType::kInt8, .placement_seed = 3});
  runner.Prefill(0, begin, 40);
  runner.Fork(0, 1);
  runner.Prefill(0, {9, 10}, 2);  // The copy must not see these.
  EXPECT_EQ(runner.Prefill(1, end, 3), expected);
  runner.Fork(1, 2);
  runner.Swap(2);
  EXPECT_EQ(runner.Prefill(1, {8}, 1), runner.Prefill(2, {8}, 1));
}

// Where a CPU keeps the inputs of products in float32, it computes with the same weights as a GPU that keeps them in 16
// bits. Where both round the inputs of int8 to 8 bits, they round other numbers, because the activations of the GPU
// have 16 bits. Then each of the two roundings moves the logits about as far from the logits of exact inputs.
TEST(GpuModelTest, QuantizedWeightsGiveTheLogitsOfTheCpuUpToRounding) {
  constexpr float kTolerance = 0.03f;  // As for bfloat16 without quantization.
  const struct {
    WeightRounding rounding;
    bool rounds_int8_inputs;
  } kinds[] = {{{.layers = Quantization::kInt4, .int4_inputs = Int4Inputs::kFloat32}, true},
               {{.layers = Quantization::kInt8, .output = true}, true},
               {{.layers = Quantization::kInt8, .output = true}, false}};
  for (const auto& [rounding, rounds_int8_inputs] : kinds) {
    for (const char* family : {"llama", "qwen2"}) {
      SCOPED_TRACE(absl::StrCat(family, " ", Name(rounding.layers)));
      const TestDirectory directory;
      WriteModel(family, DataType::kBFloat16, directory);
      const auto on_cpu = [&](std::unique_ptr<Backend> backend, const WeightRounding& weights) {
        const LoadedModel cpu = Load(directory, std::move(backend), weights);
        return PagedRunner(cpu.model.get(), cpu.backend.get(), {}).Prefill(0, Prompt(), kPromptTokens);
      };
      std::vector<Logits> expected = on_cpu(std::make_unique<ExactInputsBackend>(), rounding);
      const std::vector<Logits> unrounded = on_cpu(cpu::MakeCpuBackend(1, cpu::Isa::kGeneric), {});
      const bool rounds_inputs = rounding.layers == Quantization::kInt8 && rounds_int8_inputs;
      float tolerance = kTolerance;
      if (rounds_inputs) {
        const std::vector<Logits> rounded = on_cpu(cpu::MakeCpuBackend(1, cpu::Isa::kGeneric), rounding);
        tolerance = std::min(0.06f, kTolerance + 2 * LargestError(rounded, expected));
        expected = rounded;
      }
      // One chunk has more tokens than the product kernels take, the others have fewer.
      for (const int chunk : {kPromptTokens, 40}) {
        const LoadedModel gpu =
            Load(directory, EmulatedGpu(DataType::kBFloat16, /*exact=*/false, rounds_int8_inputs), rounding);
        PagedRunner runner(gpu.model.get(), gpu.backend.get(), {.kv_type = KvType::kBFloat16});
        const std::vector<Logits> actual = runner.Prefill(0, Prompt(), chunk);
        EXPECT_LT(LargestError(actual, expected), tolerance) << "in chunks of " << chunk;
        if (rounding.layers == Quantization::kInt4) {  // Int8 is as near to the weights of the file as the rounding.
          EXPECT_GT(RelativeError(actual.back(), unrounded.back()), tolerance) << "nothing was rounded";
        }
      }
    }
  }
}

// Groups have 32 columns. The CPU keeps the inputs of products in float32.
TEST(GpuModelTest, Q4OfGgufGivesTheLogitsOfTheCpuUpToRounding) {
  const TestDirectory directory;
  std::mt19937 random(11);
  directory.Write("model.gguf", SmallGguf::File(
                                    Q4Matrix::kType,
                                    [&](int rows, int cols) { return RandomQ4(rows, cols, &random).blocks; }, &random));
  Tokens prompt(kPromptTokens);
  for (int i = 0; i < kPromptTokens; ++i) prompt[i] = (7 * i + 3) % SmallGguf::kVocab;
  const auto logits_on = [&](Backend* backend, KvType kv_type, int chunk) {
    const auto model = LoadModel(directory.path() + "/model.gguf", backend, /*progress=*/nullptr,
                                 {.int4_inputs = Int4Inputs::kFloat32});
    EXPECT_TRUE(model.ok()) << model.status();
    EXPECT_EQ((*model)->weights.rounding.layers, Quantization::kInt4);
    return PagedRunner(model->get(), backend, {.kv_type = kv_type}).Prefill(0, prompt, chunk);
  };
  ExactInputsBackend cpu;
  const std::vector<Logits> expected = logits_on(&cpu, KvType::kFloat32, kPromptTokens);
  for (const int chunk : {kPromptTokens, 40}) {
    const std::unique_ptr<Backend> gpu = EmulatedGpu(DataType::kBFloat16, /*exact=*/false);
    EXPECT_LT(LargestError(logits_on(gpu.get(), KvType::kBFloat16, chunk), expected), 0.03f) << chunk;
  }
}

TEST(GpuModelTest, InExactModeChunksChangeNoBitOfQuantizedModels) {
  const TestDirectory directory;
  WriteModel("llama", DataType::kBFloat16, directory);
  for (const Quantization width : {Quantization::kInt4, Quantization::kInt8}) {
    const LoadedModel gpu =
        Load(directory, EmulatedGpu(DataType::kBFloat16, /*exact=*/true), {.layers = width, .output = true});
    PagedRunner whole(gpu.model.get(), gpu.backend.get(), {.kv_type = KvType::kBFloat16});
    const std::vector<Logits> expected = whole.Prefill(0, Prompt(), kPromptTokens);
    for (const int chunk : {7, 33}) {
      PagedRunner runner(gpu.model.get(), gpu.backend.get(), {.kv_type = KvType::kBFloat16});
      EXPECT_EQ(runner.Prefill(0, Prompt(), chunk), expected) << Name(width) << ", chunks of " << chunk;
    }
  }
}

// A device whose kernels for whole numbers multiply weights of FP8.
class WrongDevice : public cuda::EmulatedDevice {
 public:
  const cuda::KernelTable* FindKernels(DataType element, int head_dim, int block_size) const override {
    static cuda::KernelTable wrong;
    const cuda::KernelTable* const right = EmulatedDevice::FindKernels(element, head_dim, block_size);
    if (right == nullptr) return nullptr;
    wrong = *right;
    wrong.fp8 = right->int8;
    return &wrong;
  }
};

class GpuCheckpointTest : public CheckpointTest {
 protected:
  // Makes every weight of the layers 1.5 times its scale, as FP8.
  void StoreFp8() {
    for (const std::string& name : matrices_) {
      StoredTensor& tensor = tensors_.at(name);
      tensor = {"F8_E4M3", tensor.shape, std::string(static_cast<size_t>(tensor.shape[0] * tensor.shape[1]), '\x3c')};
      tensors_[name + "_scale"] = {"F32", {1}, BytesOf(std::vector<float>{0.01f})};
    }
    config_["quantization_config"] = {{"quant_method", "fp8"}};
  }

  // Takes a model whose heads have kernels on a GPU, with the weights of its layers rounded to FP8. Each matrix has one
  // scale, or with a side of blocks, one for each block. Adjacent blocks have different scales.
  void TakeFp8Model(int side) {
    const TestDirectory directory;
    WriteModel("llama", DataType::kBFloat16, directory, side == 128 ? &ShapeOfBlocks : &Shape);
    const std::string file = ReadWholeFile(directory.path() + "/model.safetensors");
    const auto tensors = ParseSafetensors(file, "model.safetensors");
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    config_ = nlohmann::json::parse(ReadWholeFile(directory.path() + "/config.json"));
    config_["quantization_config"] = {{"quant_method", "fp8"}};
    if (side > 0) config_["quantization_config"]["weight_block_size"] = {side, side};
    tensors_.clear();
    matrices_.clear();
    for (const Tensor& tensor : *tensors) {
      tensors_[tensor.name] = {tensor.dtype, tensor.shape, std::string(tensor.bytes)};
      if (!absl::StrContains(tensor.name, "_proj.weight")) continue;
      matrices_.push_back(tensor.name);
      StoreFp8Of(tensor, side);
    }
  }

  void StoreFp8Of(const Tensor& tensor, int side) {
    const int rows = static_cast<int>(tensor.shape[0]), cols = static_cast<int>(tensor.shape[1]);
    const int height = side > 0 ? side : rows, width = side > 0 ? side : cols;
    const int down = (rows + height - 1) / height, across = (cols + width - 1) / width;
    const auto scale_of = [](int row, int col) { return (row + col) % 2 == 0 ? 0x1p-8f : 0x1.8p-9f; };
    std::string numbers;
    for (int i = 0; i < rows * cols; ++i) {
      BFloat16 weight;
      memcpy(&weight, tensor.bytes.data() + i * sizeof(weight), sizeof(weight));
      const float scale = scale_of(i / cols / height, i % cols / width);
      numbers.push_back(static_cast<char>(FloatToFp8(ToFloat(weight) / scale)));
    }
    std::vector<float> scales;
    for (int i = 0; i < down * across; ++i) scales.push_back(scale_of(i / across, i % across));
    tensors_[tensor.name] = {"F8_E4M3", tensor.shape, numbers};
    const std::vector<int64_t> shape = side > 0 ? std::vector<int64_t>{down, across} : std::vector<int64_t>{1};
    tensors_[tensor.name + (side > 0 ? "_scale_inv" : "_scale")] = {"F32", shape, BytesOf(scales)};
  }
};

// On compute capability 9.0, inputs of products by weights with one scale for each row, or for each block of 128 x 128,
// are rounded to FP8, too.
TEST_F(GpuCheckpointTest, Fp8GivesTheLogitsOfTheCpuUpToRounding) {
  for (const int side : {0, 32, 128}) {
    SCOPED_TRACE(absl::StrCat("blocks of ", side));
    TakeFp8Model(side);
    directory_.Write("model.safetensors", File());
    directory_.Write("config.json", config_.dump());
    const auto logits_of = [&](std::unique_ptr<Backend> backend, KvType kv_type, int chunk) {
      const LoadedModel loaded = ::quire::Load(directory_, std::move(backend));
      EXPECT_EQ(loaded.model->weights.rounding.layers, Quantization::kFp8);
      return PagedRunner(loaded.model.get(), loaded.backend.get(), {.kv_type = kv_type}).Prefill(0, Prompt(), chunk);
    };
    const std::vector<Logits> expected =
        logits_of(std::make_unique<Fp8Backend>(cpu::Isa::kGeneric, /*num_threads=*/1, /*multiplies=*/true),
                  KvType::kFloat32, kPromptTokens);
    const auto error_on_gpu = [&](bool is_sm90, int chunk) {
      return LargestError(
          logits_of(std::make_unique<cuda::CudaBackend>(std::make_unique<cuda::EmulatedDevice>(is_sm90),
                                                        cuda::CudaBackendOptions{.element = DataType::kBFloat16}),
                    KvType::kBFloat16, chunk),
          expected);
    };
    const float error_of_kept_inputs = error_on_gpu(/*is_sm90=*/false, 40);
    EXPECT_LT(error_of_kept_inputs, 0.03f);
    if (side == 32) {
      EXPECT_LT(error_on_gpu(/*is_sm90=*/true, 40), 0.03f);
      continue;
    }
    // A chunk of 40 tokens goes to our kernel, one of 70 to the library. FP8 rounds a number by up to 2^-4 of it, and
    // bfloat16 by up to 2^-8. It rounds 4 times in a layer, where bfloat16 rounds 10 times, and errors add like their
    // squares.
    const float most = 16 * std::sqrt(0.4f) * error_of_kept_inputs;
    for (const int chunk : {40, kPromptTokens}) {
      const float error = error_on_gpu(/*is_sm90=*/true, chunk);
      EXPECT_LT(error, most) << chunk;
      EXPECT_GT(error, 2 * error_of_kept_inputs) << chunk << ": nothing was rounded";
    }
  }
}

TEST_F(GpuCheckpointTest, AGpuThatMultipliesQuantizedWeightsWronglyIsRefused) {
  StoreFp8();
  ASSERT_TRUE(Load().ok()) << Load().status();  // On a CPU.
  const auto load = [&](std::unique_ptr<cuda::Device> device) {
    cuda::CudaBackend backend(std::move(device), {.element = DataType::kBFloat16});
    const auto model = LoadModel(directory_.path(), &backend);
    return model.ok() ? std::string(Name((*model)->weights.rounding.layers)) : std::string(model.status().message());
  };
  EXPECT_EQ(load(std::make_unique<cuda::EmulatedDevice>()), "fp8");
  EXPECT_THAT(
      load(std::make_unique<WrongDevice>()),
      testing::HasSubstr("emulated GPU multiplies by tensor model.layers.0.self_attn.q_proj.weight wrongly: its "
                         "product of 7 tokens by a quantized matrix of"));
}

// A device for kernels of compute capability 9.0 whose library doubles products of FP8, and adds one to the sums of
// products of whole numbers.
class WrongLibrary : public cuda::EmulatedDevice {
 public:
  WrongLibrary() : EmulatedDevice(/*is_sm90=*/true) {}
  bool MultiplyFp8(const cuda::Fp8MatmulArgs& args) override {
    EmulatedDevice::MultiplyFp8(args);
    cuda::Fp8MatmulArgs again = args;
    again.adds_to_y = true;
    return EmulatedDevice::MultiplyFp8(again);
  }
  bool MultiplyInt8(const cuda::Int8MatmulArgs& args) override {
    EmulatedDevice::MultiplyInt8(args);
    Synchronize();
    ++args.y[0];
    return true;
  }
};

TEST_F(GpuCheckpointTest, AGpuWhoseLibraryMultipliesFp8WronglyIsRefused) {
  StoreFp8();
  ASSERT_TRUE(Load().ok()) << Load().status();  // On a CPU.
  for (const bool rounds_fp8_inputs : {true, false}) {
    cuda::CudaBackend right(std::make_unique<cuda::EmulatedDevice>(/*is_sm90=*/true),
                            {.rounds_fp8_inputs = rounds_fp8_inputs});
    EXPECT_TRUE(LoadModel(directory_.path(), &right).ok());
    cuda::CudaBackend wrong(std::make_unique<WrongLibrary>(), {.rounds_fp8_inputs = rounds_fp8_inputs});
    const auto model = LoadModel(directory_.path(), &wrong);
    if (!rounds_fp8_inputs) {  // Then the library does not multiply FP8.
      EXPECT_TRUE(model.ok()) << model.status();
      continue;
    }
    EXPECT_THAT(std::string(model.status().message()),
                testing::HasSubstr("wrongly: its product of 65 tokens by a quantized matrix of"));
  }
}

TEST(GpuModelTest, AGpuWhoseLibraryMultipliesWholeNumbersWronglyIsRefused) {
  const TestDirectory directory;
  WriteModel("llama", DataType::kBFloat16, directory);
  for (const bool rounds_int8_inputs : {true, false}) {
    cuda::CudaBackend backend(std::make_unique<WrongLibrary>(), {.rounds_int8_inputs = rounds_int8_inputs});
    const auto model = LoadModel(directory.path(), &backend, /*progress=*/nullptr, {.layers = Quantization::kInt8});
    if (!rounds_int8_inputs) {  // Then the library does not multiply whole numbers.
      EXPECT_TRUE(model.ok()) << model.status();
      continue;
    }
    EXPECT_THAT(std::string(model.status().message()),
                testing::AllOf(testing::HasSubstr("emulated GPU multiplies by tensor model.layers.0.self_attn.q_proj."
                                                  "weight wrongly: its product of 65 tokens by a quantized matrix of"),
                               testing::HasSubstr(" at token 0, row 0")));
    // The numbers have all digits of a float, because they may differ in the last bit alone.
    const std::string message(model.status().message());
    std::smatch numbers;
    ASSERT_TRUE(std::regex_search(message, numbers, std::regex(" is (\\S+) instead of (\\S+) at "))) << message;
    for (const int i : {1, 2}) EXPECT_EQ(absl::StrFormat("%.9g", std::stof(numbers[i])), numbers[i]);
  }
}

TEST(GpuModelTest, WhatHasNoKernelsIsSaid) {
  const std::unique_ptr<Backend> gpu = EmulatedGpu(DataType::kBFloat16, /*exact=*/false);
  KvLayout layout = {.num_layers = 1, .num_kv_heads = 1, .head_dim = 64, .block_size = 16, .type = KvType::kBFloat16};
  EXPECT_TRUE(gpu->CheckLayout(layout, 64).ok());
  EXPECT_EQ(gpu->CheckLayout(layout, 65).message(), "65 query heads share 1 KV heads, at most 64 may share one");
  layout.head_dim = 48;
  EXPECT_EQ(gpu->CheckLayout(layout, 8).message(),
            "there are no kernels for heads of 48 dimensions in blocks of 16 tokens of bfloat16");
  layout.type = KvType::kFloat32;
  EXPECT_EQ(gpu->CheckLayout(layout, 8).message(), "K and V are float32, on this device they must be bfloat16 or int8");
  layout.type = KvType::kFloat16;
  EXPECT_FALSE(gpu->CheckLayout(layout, 8).ok());
}

TEST(GpuModelTest, Int8KvNeedsWholeUnitsAndHeadsThatTheRegistersHold) {
  const std::unique_ptr<Backend> gpu = EmulatedGpu(DataType::kBFloat16, /*exact=*/false);
  KvLayout layout = {.num_layers = 1, .num_kv_heads = 1, .head_dim = 64, .block_size = 16, .type = KvType::kInt8};
  for (const int block_size : {16, 32, 128}) {
    layout.block_size = block_size;
    EXPECT_TRUE(gpu->CheckLayout(layout, 8).ok());
  }
  for (const int block_size : {1, 2, 4, 8}) {
    layout.block_size = block_size;
    EXPECT_EQ(gpu->CheckLayout(layout, 8).message(),
              absl::StrCat("there are no kernels for heads of 64 dimensions in blocks of ", block_size,
                           " tokens of int8, only for at most 128 dimensions in blocks of at least 16 tokens"));
  }
  layout.head_dim = 48;
  layout.block_size = 16;
  EXPECT_EQ(gpu->CheckLayout(layout, 8).message(),
            "there are no kernels for heads of 48 dimensions in blocks of 16 tokens of int8");
}

}  // namespace
}  // namespace quire
