// SPDX-License-Identifier: Apache-2.0

#include "worker/model/pooling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>

#include "nlohmann/json.hpp"
#include "tests/test_paths.h"
#include "tests/worker/model/model_files.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

using Files = std::map<std::string, std::string>;

CheckpointPooling PoolingOf(const Files& files) {
  return ReadPooling([&files](const std::string& path) -> absl::StatusOr<std::optional<std::string>> {
    const auto file = files.find(path);
    return file == files.end() ? std::optional<std::string>() : file->second;
  });
}

constexpr char kModules[] = R"([
  {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
  {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}])";

// As versions before 6 of Sentence Transformers write it.
Files WithPooling(const std::string& config) {
  return {{"modules.json", kModules}, {"1_Pooling/config.json", config}};
}

TEST(PoolingTest, ADecoderWithoutModulesGivesItsNormalizedLastState) {
  EXPECT_EQ(PoolingOf({}), (CheckpointPooling{.kind = PoolingKind::kLastToken, .normalizes = true}));
}

TEST(PoolingTest, FilesOfSentenceTransformersAreRead) {
  const auto golden = nlohmann::json::parse(ReadWholeFile(SourcePath("tests/golden/embeddings/tales.json")));
  const auto pooling_of = [&golden](const char* name) {
    Files files;
    for (const auto& [path, content] : golden[name]["files"].items()) files[path] = content.dump();
    return PoolingOf(files);
  };
  EXPECT_EQ(pooling_of("lasttoken"), (CheckpointPooling{.kind = PoolingKind::kLastToken, .normalizes = true}));
  EXPECT_EQ(pooling_of("mean"), (CheckpointPooling{.kind = PoolingKind::kMean, .normalizes = true}));
  EXPECT_EQ(pooling_of("cls"), (CheckpointPooling{.kind = PoolingKind::kFirstToken, .normalizes = false}));
}

TEST(PoolingTest, FlagsOfOlderVersionsAreRead) {
  EXPECT_EQ(PoolingOf(WithPooling(R"({"word_embedding_dimension": 1024, "pooling_mode_cls_token": false,
      "pooling_mode_mean_tokens": false, "pooling_mode_max_tokens": false, "pooling_mode_lasttoken": true})")),
            (CheckpointPooling{.kind = PoolingKind::kLastToken, .normalizes = false}));
  EXPECT_EQ(PoolingOf(WithPooling(R"({"pooling_mode_mean_tokens": true})")).kind, PoolingKind::kMean);
  EXPECT_EQ(PoolingOf(WithPooling(R"({"pooling_mode_cls_token": true})")).kind, PoolingKind::kFirstToken);
}

TEST(PoolingTest, WhatIsNotSupportedIsRefusedByName) {
  const auto refusal = [](const Files& files) {
    const CheckpointPooling pooling = PoolingOf(files);
    EXPECT_EQ(pooling.kind, PoolingKind::kNone);
    return pooling.refusal;
  };
  EXPECT_EQ(refusal(WithPooling(R"({"pooling_mode_max_tokens": true})")),
            "1_Pooling/config.json: pooling_mode_max_tokens asks for \"max\", supported are lasttoken, mean and cls");
  EXPECT_EQ(refusal(WithPooling(R"({"pooling_mode": "weightedmean"})")),
            "1_Pooling/config.json: pooling_mode asks for \"weightedmean\", supported are lasttoken, mean and cls");
  EXPECT_EQ(refusal(WithPooling(R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true})")),
            "1_Pooling/config.json: pooling_mode_cls_token and pooling_mode_mean_tokens are set, only one pooling is "
            "supported");
  EXPECT_EQ(refusal(WithPooling("{}")), "1_Pooling/config.json sets no pooling_mode");
  EXPECT_EQ(refusal(WithPooling("[]")), "1_Pooling/config.json is no object");
  EXPECT_EQ(refusal(WithPooling(R"({"pooling_mode": ["cls", "mean"]})")),
            "1_Pooling/config.json: pooling_mode is [\"cls\",\"mean\"], must be a string");
  EXPECT_EQ(refusal({{"modules.json", kModules}}), "there is no 1_Pooling/config.json, which modules.json names");
  EXPECT_EQ(refusal(WithPooling("")), "1_Pooling/config.json is damaged: it has 0 bytes");
  EXPECT_EQ(refusal({{"modules.json", ""}}), "modules.json is damaged: it has 0 bytes");
  EXPECT_THAT(refusal({{"modules.json", "{"}}), HasSubstr("modules.json is not JSON"));
  EXPECT_EQ(refusal({{"modules.json", "{}"}}), "modules.json must be an array of at most 16 modules");
  EXPECT_EQ(refusal({{"modules.json", "[]"}}), "modules.json has no module of the type Pooling");
  EXPECT_EQ(refusal({{"modules.json", R"([{"type": "a.Transformer"}, {"type": "a.Pooling", "path": "../x"}])"}}),
            "modules.json: [1].path is \"../x\", must be a folder of the model, in at most 256 bytes");
  EXPECT_EQ(refusal({{"modules.json", R"([{"type": "a.Transformer"}, {"type": "a.Pooling", "path": "p"},
                                          {"type": "a.Dense", "path": "2_Dense"}])"}}),
            "modules.json: [2].type is \"a.Dense\", the modules must be Transformer, Pooling and perhaps Normalize");
}

}  // namespace
}  // namespace quire
