// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/generation_config.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

constexpr int kVocabSize = 100;

SamplingDefaults Parse(const std::string& json) {
  const absl::StatusOr<SamplingDefaults> defaults = ParseGenerationConfig(json, kVocabSize);
  EXPECT_TRUE(defaults.ok()) << defaults.status();
  return defaults.value_or(SamplingDefaults());
}

std::string Error(const std::string& json) {
  const absl::Status status = ParseGenerationConfig(json, kVocabSize).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << json;
  return std::string(status.message());
}

TEST(GenerationConfigTest, SamplingFieldsAreReadAndOthersIgnored) {
  const SamplingDefaults all{.sampling = {{"temperature", 0.6f},
                                          {"top_k", 20},
                                          {"top_p", 0.95f},
                                          {"min_p", 0.05f},
                                          {"repetition_penalty", 1.05f}},
                             .max_tokens = 2048};
  EXPECT_EQ(Parse(R"({"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.05, "repetition_penalty": 1.05,
                      "max_new_tokens": 2048, "do_sample": true, "transformers_version": "4.51.0",
                      "eos_token_id": [1, 2], "presence_penalty": 1})"),
            all);
  EXPECT_EQ(Parse(R"({"temperature": null, "max_length": 4096})"), SamplingDefaults());
}

TEST(GenerationConfigTest, ATopKBeyondTheVocabularyKeepsAll) {
  EXPECT_EQ(Parse(R"({"top_k": 100})").sampling.at("top_k"), 100);
  EXPECT_EQ(Parse(R"({"top_k": 101})").sampling.at("top_k"), 0);
  EXPECT_EQ(Parse(R"({"top_k": -1})").sampling.at("top_k"), 0);
}

TEST(GenerationConfigTest, AValueThatNoRequestCouldHaveIsAnError) {
  EXPECT_THAT(
      Error(R"({"temperature": -1})"),
      HasSubstr("generation_config.json: temperature is -1, must be 0 .. the largest float32 number (about 3.4e38); "));
  EXPECT_THAT(Error(R"({"temperature": "hot"})"), HasSubstr("temperature is \"hot\""));
  EXPECT_THAT(Error(R"({"top_p": 0})"), HasSubstr("top_p is 0, must be above 0 and at most 1"));
  EXPECT_THAT(Error(R"({"top_p": 1e-60})"), HasSubstr("top_p is 1e-60, must be above 0 and at most 1"));
  EXPECT_THAT(Error(R"({"top_k": 0.5})"), HasSubstr("top_k is 0.5, must be an integer"));
  EXPECT_THAT(Error(R"({"max_new_tokens": 1.9})"), HasSubstr("max_new_tokens is 1.9, must be an integer"));
  EXPECT_THAT(Error(R"({"min_p": 1.5})"), HasSubstr("min_p is 1.5, must be 0 .. 1"));
  EXPECT_THAT(Error(R"({"repetition_penalty": 0})"), HasSubstr("repetition_penalty is 0, must be 0.01 .. 10"));
  EXPECT_THAT(Error(R"({"max_new_tokens": 0})"), HasSubstr("max_new_tokens is 0, must be 1 .. 2147483647; "));
  EXPECT_THAT(Error("3"), HasSubstr("must be a JSON object"));
  EXPECT_THAT(Error("{"), HasSubstr("generation_config.json is not JSON in UTF-8: it ends too early"));
}

}  // namespace
}  // namespace quire
