// SPDX-License-Identifier: Apache-2.0

#include "tests/worker/model/golden_model.h"

#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "base/check.h"
#include "nlohmann/json.hpp"
#include "tests/worker/model/model_files.h"

namespace quire {

Golden LoadGolden(const std::string& name, Backend* backend, const WeightRounding& rounding, int rank, int num_ranks) {
  Golden golden;
  auto model = LoadModel(GoldenModel(name), backend, /*progress=*/nullptr, rounding,
                         /*is_long=*/absl::EndsWith(name, "_long"), rank, num_ranks);
  QUIRE_CHECK(model.ok()) << model.status();
  golden.model = *std::move(model);
  const auto json = nlohmann::json::parse(ReadWholeFile(GoldenModel(name) + "/golden.json"));
  golden.prompts = json["prompts"].get<std::vector<Tokens>>();
  golden.greedy = json["greedy"].get<std::vector<Tokens>>();
  const std::string bytes = ReadWholeFile(GoldenModel(name) + "/logits.bin");
  const size_t row_bytes = golden.model->config.vocab_size * sizeof(float);
  size_t offset = 0;
  for (const Tokens& prompt : golden.prompts) {
    golden.logits.emplace_back();
    for (size_t i = 0; i < prompt.size(); ++i, offset += row_bytes) {
      QUIRE_CHECK_LE(offset + row_bytes, bytes.size());
      golden.logits.back().emplace_back(golden.model->config.vocab_size);
      std::memcpy(golden.logits.back().back().data(), bytes.data() + offset, row_bytes);
    }
  }
  QUIRE_CHECK_EQ(offset, bytes.size());
  return golden;
}

}  // namespace quire
