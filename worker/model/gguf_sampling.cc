// SPDX-License-Identifier: Apache-2.0

#include "worker/model/gguf_sampling.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/sampling_fields.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "worker/model/gguf_fields.h"

namespace quire {
namespace {

// The least number of a range that does not include its end.
constexpr double kLeastAboveEnd = 1e-6;

}  // namespace

absl::StatusOr<std::string> GgufGenerationConfig(const GgufContents& contents) {
  const GgufFields fields(contents);
  nlohmann::json config = nlohmann::json::object();
  for (const SamplingField& field : kSamplingFields) {
    const std::string key = absl::StrCat("general.sampling.", field.gguf_key);
    if (!field.is_recommended() || !fields.Has(key)) continue;
    if (field.counts_tokens()) {
      constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
      QUIRE_ASSIGN_OR_RETURN(const int64_t count, fields.Int(key, -kMax, kMax));
      config[field.name] = std::max<int64_t>(count, 0);  // llama.cpp keeps all tokens below 1.
      continue;
    }
    // The limits are the same as for a request.
    const double low = field.has_low ? field.low : field.low + kLeastAboveEnd;
    QUIRE_ASSIGN_OR_RETURN(config[field.name], fields.Number(key, low, field.high));
  }
  return config.empty() ? "" : config.dump();
}

}  // namespace quire
