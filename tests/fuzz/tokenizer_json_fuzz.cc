// SPDX-License-Identifier: Apache-2.0

#include <cstddef>
#include <cstdint>

#include "tests/fuzz/tokenizer_use.h"

// Input: tokenizer.json.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  quire::TokenizerFiles files;
  files.tokenizer_json.assign(reinterpret_cast<const char*>(data), size);
  quire::UseTokenizer(files);
  return 0;
}
