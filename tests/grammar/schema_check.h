// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_GRAMMAR_SCHEMA_CHECK_H_
#define QUIRE_TESTS_GRAMMAR_SCHEMA_CHECK_H_

#include "nlohmann/json.hpp"

namespace quire::grammar {

// Whether a value fits a JSON schema, by the specification alone. References are JSON pointers. The formats and the
// order of properties are not looked at, nor are unevaluatedItems and unevaluatedProperties.
bool FitsSchema(const nlohmann::ordered_json& value, const nlohmann::ordered_json& schema,
                const nlohmann::ordered_json& root);

}  // namespace quire::grammar

#endif  // QUIRE_TESTS_GRAMMAR_SCHEMA_CHECK_H_
