// SPDX-License-Identifier: Apache-2.0

#include "worker/model/rope_scaling.h"

#include <cmath>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/worker/model/model_files.h"

namespace quire {
namespace {

using nlohmann::json;

TEST(RopeScalingTest, FrequenciesAreThoseOfTransformers) {
  const json cases = json::parse(ReadWholeFile(GoldenModel("rope.json")));
  ASSERT_GE(cases.size(), 33u);
  for (const json& golden : cases) {
    const json config = {{"rope_parameters", golden["rope_parameters"]}};
    const auto rope = ReadRopeConfig(JsonFields(config, "config.json"),
                                     {.head_dim = golden["head_dim"].get<int>(), .max_position_embeddings = 256});
    ASSERT_TRUE(rope.ok()) << rope.status();
    EXPECT_NEAR(rope->attention_factor, golden["attention_factor"].get<double>(), 1e-12) << golden["rope_parameters"];
    const std::vector<float> frequencies = InverseFrequencies(*rope, golden["head_dim"].get<int>());
    ASSERT_EQ(frequencies.size(), golden["inv_freq"].size());
    for (size_t i = 0; i < frequencies.size(); ++i) {
      const float expected = golden["inv_freq"][i].get<float>();
      EXPECT_NEAR(frequencies[i], expected, 5e-7 * expected) << golden["rope_parameters"] << " dimension " << i;
    }
  }
}

TEST(RopeScalingTest, PairsTurnFromOneRadianToOneOverTheta) {
  RopeConfig rope;
  rope.theta = 10000.0;
  const std::vector<float> frequencies = InverseFrequencies(rope, 4);  // 1 / 10000^(0/4), 1 / 10000^(2/4)
  ASSERT_EQ(frequencies.size(), 2u);
  EXPECT_EQ(frequencies[0], 1.0f);
  EXPECT_FLOAT_EQ(frequencies[1], 0.01f);
}

}  // namespace
}  // namespace quire
