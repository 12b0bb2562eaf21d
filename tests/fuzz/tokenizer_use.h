// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_FUZZ_TOKENIZER_USE_H_
#define QUIRE_TESTS_FUZZ_TOKENIZER_USE_H_

#include "kv_manager/tokenizer/tokenizer.h"

namespace quire {

// Loads a tokenizer and, if it loads, encodes and decodes a text and decodes unusual tokens. Ends the program when an
// error has more than one line, when a token is not in the vocabulary, or when a decoded text is not UTF-8.
void UseTokenizer(const TokenizerFiles& files);

}  // namespace quire

#endif  // QUIRE_TESTS_FUZZ_TOKENIZER_USE_H_
