// SPDX-License-Identifier: Apache-2.0

// Checkpoints of mixtures of experts that are damaged or contradict themselves. transformer_test.cc has whole ones.

#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "nlohmann/json.hpp"
#include "tests/worker/model/model_files.h"
#include "tests/worker/model/stored_tensors.h"
#include "worker/model/model.h"

namespace quire {
namespace {

using nlohmann::json;
using testing::EndsWith;
using testing::HasSubstr;

class ExpertCheckpointTest : public testing::Test {
 protected:
  ExpertCheckpointTest() : backend_(MakeCpuBackend(1)) { SetLogLevel(LogLevel::kError); }
  ~ExpertCheckpointTest() override { SetLogLevel(LogLevel::kInfo); }

  // Returns the error of a golden model whose files are these.
  std::string ErrorOf(std::string_view config, std::string_view file, bool keeps_blocks = true) {
    directory_.Write("config.json", config);
    directory_.Write("model.safetensors", file);
    return std::string(
        LoadModel(directory_.path(), backend_.get(), nullptr, {.keeps_blocks = keeps_blocks}).status().message());
  }

  const std::unique_ptr<Backend> backend_;
  const TestDirectory directory_;
};

// Returns the bytes before the data of a .safetensors file.
size_t HeaderBytes(const std::string& file) {
  uint64_t size;
  std::memcpy(&size, file.data(), sizeof(size));
  return size + sizeof(size);
}

// Returns the first byte of a tensor.
size_t PlaceOf(const std::string& file, const std::string& name) {
  const size_t header = HeaderBytes(file);
  return header + json::parse(file.substr(8, header - 8))[name]["data_offsets"][0].get<size_t>();
}

Tensors StoredTensorsOf(const std::string& file) {
  const size_t header = HeaderBytes(file);
  Tensors tensors;
  const json entries = json::parse(file.substr(8, header - 8));
  for (const auto& [name, entry] : entries.items()) {
    if (name == "__metadata__") continue;
    const size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
    tensors[name] = {entry["dtype"], entry["shape"], file.substr(header + begin, end - begin)};
  }
  return tensors;
}

// Changes and cuts the header, the configuration and the scales.
TEST_F(ExpertCheckpointTest, ThousandDamagedFilesOfMxfp4AreLoadedOrRefusedInOneLine) {
  const std::string config = ReadWholeFile(GoldenModel("gpt_oss_mxfp4/config.json"));
  const std::string file = ReadWholeFile(GoldenModel("gpt_oss_mxfp4/model.safetensors"));
  const size_t header = HeaderBytes(file);
  std::mt19937 random(7);
  int num_refused[2] = {};
  for (int i = 0; i < 1000; ++i) {
    std::string bad = file, bad_config = config;
    const bool is_config = i % 3 == 1;
    if (is_config) {
      bad_config[random() % config.size()] = static_cast<char>(random());
    } else if (i % 30 == 0) {
      bad.resize(random() % bad.size());
    } else {
      bad[random() % header] = static_cast<char>(random());
    }
    const std::string error = ErrorOf(bad_config, bad);
    num_refused[is_config ? 1 : 0] += error.empty() ? 0 : 1;
    EXPECT_FALSE(absl::StrContains(error, "\n")) << i << " " << error;
  }
  EXPECT_GT(num_refused[0], 400);
  EXPECT_GT(num_refused[1], 100);
}

TEST_F(ExpertCheckpointTest, AScaleOfMxfp4WithoutFiniteWeightsIsNamed) {
  const std::string config = ReadWholeFile(GoldenModel("gpt_oss_mxfp4/config.json"));
  std::string file = ReadWholeFile(GoldenModel("gpt_oss_mxfp4/model.safetensors"));
  // Row 3 of the 64 alternating ones of expert 2 is row 1 of up.
  const size_t at = PlaceOf(file, "model.layers.1.mlp.experts.gate_up_proj_scales") + 2 * 64 + 3;
  for (const int scale : {252, 253, 255}) {
    SCOPED_TRACE(scale);
    file[at] = static_cast<char>(scale);
    const std::string name = "model.layers.1.mlp.experts.2.gate_up_proj.up.weight";
    const std::string error = ErrorOf(config, file), widened = ErrorOf(config, file, /*keeps_blocks=*/false);
    if (scale == 255) {
      EXPECT_THAT(widened, HasSubstr(name + "_scales has the scale 255 in row 1 and column 0, which is no number"));
    } else if (scale == 252) {
      EXPECT_EQ(widened, "");
    }
    if (!backend_->MultipliesBlocks()) continue;
    if (scale == 252) {
      EXPECT_EQ(error, "");
    } else {
      EXPECT_THAT(error, HasSubstr(absl::StrCat(name, " is MXFP4 [32, 32], and a scale of its row 1 is ", scale,
                                                ", at most 252 makes finite weights")));
    }
  }
}

// The rows of all experts are made in one form, which their kernels read.
TEST_F(ExpertCheckpointTest, ExpertsOfSeveralTypesAreRefused) {
  const std::string config = ReadWholeFile(GoldenModel("qwen3_moe/config.json"));
  const Tensors tensors = StoredTensorsOf(ReadWholeFile(GoldenModel("qwen3_moe/model.safetensors")));
  const std::string expert = "model.layers.0.mlp.experts.3.";
  const auto error_with_bfloat16 = [&](std::initializer_list<const char*> parts) {
    Tensors changed = tensors;
    for (const char* part : parts) {
      StoredTensor& tensor = changed.at(absl::StrCat(expert, part, ".weight"));
      std::string halves;
      for (size_t i = 0; i < tensor.bytes.size(); i += sizeof(float)) halves += tensor.bytes.substr(i + 2, 2);
      tensor = {"BF16", tensor.shape, halves};
    }
    return ErrorOf(config, SafetensorsFileOf(changed));
  };
  EXPECT_EQ(error_with_bfloat16({}), "");
  EXPECT_EQ(error_with_bfloat16({"gate_proj"}), "");  // With up in float32, both are.
  const std::string rest =
      " is multiplied as bfloat16, and that of expert 0 as float32; the experts of a layer must have one type";
  EXPECT_THAT(error_with_bfloat16({"gate_proj", "up_proj"}), EndsWith("tensor " + expert + "gate_proj.weight" + rest));
  EXPECT_THAT(error_with_bfloat16({"down_proj"}), EndsWith("tensor " + expert + "down_proj.weight" + rest));
}

}  // namespace
}  // namespace quire
