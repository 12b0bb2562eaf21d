// SPDX-License-Identifier: Apache-2.0

#include "tests/kv_manager/tokenizer/golden_files.h"

#include <fstream>
#include <iterator>

#include "base/check.h"
#include "tests/test_paths.h"

namespace quire {

std::string ReadRepositoryFile(const std::string& path) {
  std::ifstream in(SourcePath(path), std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

TokenizerFiles GoldenFiles(const std::string& name) {
  const std::string folder = "tests/golden/tokenizer/" + name;
  TokenizerFiles files;
  files.tokenizer_json = ReadRepositoryFile(folder + "/tokenizer.json");
  files.tokenizer_model = ReadRepositoryFile(folder + "/tokenizer.model");
  return files;
}

std::unique_ptr<Tokenizer> LoadGolden(const std::string& name) {
  auto tokenizer = Tokenizer::Load(GoldenFiles(name));
  QUIRE_CHECK(tokenizer.ok()) << name << ": " << tokenizer.status().ToString();
  return *std::move(tokenizer);
}

}  // namespace quire
