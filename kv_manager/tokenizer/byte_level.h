// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_BYTE_LEVEL_H_
#define QUIRE_KV_MANAGER_TOKENIZER_BYTE_LEVEL_H_

#include <string>

namespace quire {

// GPT-2's table: byte-level vocabularies write each byte as one printable character. Printable Latin-1 maps to itself,
// the other 68 bytes become U+0100 to U+0143 in order; a space is U+0120.
const std::string& ByteLevelCharacter(unsigned char byte);

// Returns the byte that a character represents, or -1 when there is none.
int ByteOfByteLevelCharacter(char32_t c);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_BYTE_LEVEL_H_
