// SPDX-License-Identifier: Apache-2.0

#include "worker/model/gguf_sampling.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "worker/model/gguf_fields.h"

namespace quire {
namespace {

struct Default {
  const char* key;  // After "general.sampling.".
  const char* field;
  double min;
  double max;
};

// The limits are the same as for a request.
constexpr Default kDefaults[] = {{"temp", "temperature", 0, std::numeric_limits<float>::max()},
                                 {"top_p", "top_p", 1e-6, 1},
                                 {"min_p", "min_p", 0, 1},
                                 {"penalty_repeat", "repetition_penalty", 0.01, 10}};

}  // namespace

absl::StatusOr<std::string> GgufGenerationConfig(const GgufContents& contents) {
  const GgufFields fields(contents);
  nlohmann::json config = nlohmann::json::object();
  for (const Default& one : kDefaults) {
    const std::string key = absl::StrCat("general.sampling.", one.key);
    if (!fields.Has(key)) continue;
    QUIRE_ASSIGN_OR_RETURN(config[one.field], fields.Number(key, one.min, one.max));
  }
  constexpr const char* kTopK = "general.sampling.top_k";
  if (fields.Has(kTopK)) {
    constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
    QUIRE_ASSIGN_OR_RETURN(const int64_t top_k, fields.Int(kTopK, -kMax, kMax));
    config["top_k"] = std::max<int64_t>(top_k, 0);  // llama.cpp keeps all tokens below 1.
  }
  return config.empty() ? "" : config.dump();
}

}  // namespace quire
