// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_SCHEMA_ANNOTATIONS_H_
#define QUIRE_GRAMMAR_SCHEMA_ANNOTATIONS_H_

#include <string>
#include <string_view>

namespace quire::grammar {

// Returns the text of a JSON schema without what describes it to people and has no effect: titles, descriptions,
// comments, defaults, examples and the like. What a reference names stays. A text that is no JSON stays as it is.
std::string WithoutAnnotations(std::string_view schema);

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_SCHEMA_ANNOTATIONS_H_
