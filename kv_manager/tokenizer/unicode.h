// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_UNICODE_H_
#define QUIRE_KV_MANAGER_TOKENIZER_UNICODE_H_

#include <string>
#include <string_view>

// Character properties as the reference tokenizers see them. The libraries here know Unicode 15 (utf8proc) and 14
// (PCRE2); the references mix versions (regular expressions 16, numbers and case 17, normal forms 9, punctuation 8).
// The differences are short tables in unicode.cc, so that a text splits the same way on both sides. All functions are
// pure and thread-safe; strings are valid UTF-8.

namespace quire {

bool IsWhitespace(char32_t c);     // White_Space
bool IsNumeric(char32_t c);        // Nd, Nl, No
bool IsPunctuation(char32_t c);    // P and the ASCII symbols
bool IsWordCharacter(char32_t c);  // Unicode's \w: Alphabetic, M, Nd, Pc, Join_Control

// Returns the full lower case of one character (U+0130 becomes two characters).
void AppendLowercase(char32_t c, std::string* out);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
std::string ToNormalForm(NormalForm form, std::string_view text);

// Replaces every character that PCRE2 does not know yet by an older one of the same category, script and encoded
// length, so that a regular expression treats it in the same way at the same offset. Returns `text` itself when there
// is no such character, and otherwise a view of `*storage`.
std::string_view WithKnownCharacters(std::string_view text, std::string* storage);

// Returns the end of the extended grapheme cluster that starts at `pos`. The rule for Indic conjuncts (GB9c) is not
// applied: a conjunct ends after its virama. With the rule, such a cluster would be too long for the only caller, which
// looks at short clusters.
size_t NextGraphemeBoundary(std::string_view text, size_t pos);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_UNICODE_H_
