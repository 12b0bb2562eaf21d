// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KV_MANAGER_TOKENIZER_GOLDEN_FILES_H_
#define QUIRE_TESTS_KV_MANAGER_TOKENIZER_GOLDEN_FILES_H_

#include <string>

#include "kv_manager/tokenizer/tokenizer.h"

namespace quire {

// Returns the content of a file, whose path begins at the repository's root. Empty if there is no file.
std::string ReadRepositoryFile(const std::string& path);

// The files of tests/golden/tokenizer/<name>.
TokenizerFiles GoldenFiles(const std::string& name);

// Ends the test program if the golden tokenizer cannot be loaded.
std::unique_ptr<Tokenizer> LoadGolden(const std::string& name);

}  // namespace quire

#endif  // QUIRE_TESTS_KV_MANAGER_TOKENIZER_GOLDEN_FILES_H_
