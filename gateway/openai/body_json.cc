// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/body_json.h"

#include "absl/status/status.h"
#include "base/json_reader.h"
#include "base/status.h"

namespace quire {
namespace {

constexpr size_t kMaxBodyDepth = 100;

}  // namespace

absl::StatusOr<Json> ParseBody(const std::string& body) {
  constexpr JsonLimits kLimits = {.max_depth = kMaxBodyDepth,
                                  .max_members = 2048,
                                  .max_all_members = 65536,
                                  .max_numbers = size_t{1} << 22,
                                  .max_others = size_t{1} << 18};
  QUIRE_ASSIGN_OR_RETURN(Json json, ReadJson<Json>(body, "the body", kLimits));
  if (!json.is_object()) return absl::InvalidArgumentError("the body is not a JSON object");
  return json;
}

Json ParsePart(absl::string_view text) {
  Json json;
  const bool is_wrong = ReadJson({text.data(), text.size()}, {.max_depth = kMaxBodyDepth}, &json).has_value();
  return is_wrong ? Json(Json::value_t::discarded) : json;
}

}  // namespace quire
