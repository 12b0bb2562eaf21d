#ifndef QUIRE_TESTS_KV_MANAGER_TOKENIZER_GOLDEN_FILES_H_
#define QUIRE_TESTS_KV_MANAGER_TOKENIZER_GOLDEN_FILES_H_

#include <string>

#include "kv_manager/tokenizer/tokenizer.h"

namespace quire {

// The content of a file below the repository's root; empty when there is none.
std::string ReadRepositoryFile(const std::string& path);

// The files of tests/golden/tokenizer/<name>.
TokenizerFiles GoldenFiles(const std::string& name);

// Ends the test program when the golden tokenizer does not load.
std::unique_ptr<Tokenizer> LoadGolden(const std::string& name);

}  // namespace quire

#endif  // QUIRE_TESTS_KV_MANAGER_TOKENIZER_GOLDEN_FILES_H_
