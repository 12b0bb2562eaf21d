// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_REGEX_SYNTAX_H_
#define QUIRE_KV_MANAGER_TOKENIZER_REGEX_SYNTAX_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace quire {

// Rewrites a regular expression of a tokenizer.json (Oniguruma, Ruby syntax, UTF-8) into one that PCRE2 with UTF, UCP
// and MULTILINE matches in the same way. These constructs differ and are rewritten: \s (PCRE2 adds U+180E), \w and \b
// (PCRE2 leaves out marks), \h (a hexadecimal digit, not a blank), \v, (?m) (the dot matches newline), isolated (?i),
// {n,m}+ (not possessive), {n}? and {,n}, scripts (\p{Han} without script extensions), and a class inside a class.
//
// InvalidArgument names the construct and its offset when there is no equivalent. This applies to class intersection, a
// negated class or \W, \D, \H inside a class, named backreferences and calls, and raw bytes. One difference is left: a
// case-insensitive literal does not match a character that folds to several ("ss" and U+00DF).
absl::StatusOr<std::string> TranslateOniguruma(std::string_view pattern);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_REGEX_SYNTAX_H_
