// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_JINJA_PARSER_H_
#define QUIRE_KV_MANAGER_JINJA_PARSER_H_

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kv_manager/jinja/ast.h"

namespace quire::jinja {

// Parses a template. INVALID_ARGUMENT, beginning with "line N: ", names what is wrong or not supported. Unknown filters
// and tests are errors, except where they may never be reached: inside an if. REQUIRES: valid UTF-8.
absl::StatusOr<std::vector<StatementPtr>> Parse(std::string_view source);

}  // namespace quire::jinja

#endif  // QUIRE_KV_MANAGER_JINJA_PARSER_H_
