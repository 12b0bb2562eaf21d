// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_CHARACTER_PROPERTIES_H_
#define QUIRE_GRAMMAR_CHARACTER_PROPERTIES_H_

#include <optional>
#include <string_view>

#include "grammar/code_points.h"

namespace quire::grammar {

// Returns the characters of a general category of Unicode 15 by its short or long name, such as "L", "Lu", "Letter" or
// "gc=Letter", and of "Any" and "ASCII". Returns nothing for other names, such as names of scripts.
std::optional<CodePointSet> CharactersWith(std::string_view property);

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_CHARACTER_PROPERTIES_H_
