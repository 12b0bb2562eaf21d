// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_GRAMMAR_H_
#define QUIRE_GRAMMAR_GRAMMAR_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "grammar/automaton.h"

namespace quire::grammar {

inline constexpr size_t kMaxSourceBytes = 65536;       // All texts of a source together, without annotations.
inline constexpr size_t kMaxAnnotatedBytes = 1 << 20;  // With annotations.
inline constexpr size_t kMaxChoices = 1024;

// What the output of a request must be.
struct Source {
  enum class Kind { kJsonSchema, kJsonObject, kRegex, kChoice, kEbnf };

  Kind kind = Kind::kJsonObject;
  std::string text = {};                  // The schema, the regular expression or the grammar.
  std::vector<std::string> choices = {};  // kChoice: the output is one of these.

  bool operator==(const Source&) const = default;
};

// Returns the source without the annotations of its JSON schemas, such as descriptions. It compiles to the same.
Source WithoutAnnotations(Source source);

// Compiles a source. The time is bounded by the limits of automaton.h. INVALID_ARGUMENT, with the place, when the
// source is wrong, too large, uses what is not supported, when no text matches, or when each needs more than
// kMaxNesting levels of rules or can be read in too many ways (matcher.h). Grammars of the same owner share masks of
// tokens (Automaton::content). A pure function.
absl::StatusOr<std::shared_ptr<const Automaton>> Compile(const Source& source, std::string_view owner = "");

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_GRAMMAR_H_
