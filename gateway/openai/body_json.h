// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_BODY_JSON_H_
#define QUIRE_GATEWAY_OPENAI_BODY_JSON_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace quire {

// JSON whose objects keep the order of their members, which chat templates write into prompts.
using Json = nlohmann::ordered_json;

// Parses the body of a request. INVALID_ARGUMENT when it is not JSON in UTF-8 (the message has the place), when it is
// no object, or when it has more than one of these limits: 100 levels, 2048 members in an object and 65536 in all,
// 2^22 numbers, and 2^18 other values. Values are counted while they are read. So parsing takes at most 160 MiB and
// four times the bytes of the body: 32 bytes for each number, of which half is needed to destroy the values, and 100
// for each other value.
absl::StatusOr<Json> ParseBody(const std::string& body);

// Parses a part of such a body, or what a model has written. The result is discarded if it is no JSON, or nested in
// more than 100 levels: functions that write and copy values recurse. Unlike Json::parse, it takes no time that grows
// with the square of the members of an object.
Json ParsePart(absl::string_view text);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_BODY_JSON_H_
