// SPDX-License-Identifier: Apache-2.0

// Compares with Transformers' AutoTokenizer, as tools/goldens/llama_tokenizer_goldens.py has recorded it.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kv_manager/tokenizer/tokenizer.h"
#include "tests/kv_manager/tokenizer/golden_files.h"

namespace quire {
namespace {

using nlohmann::json;

TEST(LlamaClassTest, TheClassAndItsFlagDecideWhereASpaceComesInFront) {
  const json golden = json::parse(ReadRepositoryFile("tests/golden/tokenizer/llama_class.json"));
  for (const json& test : golden["cases"]) {
    const std::string folder = "tests/golden/tokenizer/" + test["folder"].get<std::string>() + "/";
    TokenizerFiles files;
    if (folder.find("sp_bpe/") == folder.npos) {
      files.tokenizer_json = ReadRepositoryFile(folder + "tokenizer.json");
    } else {
      files.tokenizer_model = ReadRepositoryFile(folder + "tokenizer.model");
    }
    files.tokenizer_config_json = test["config"].dump();
    files.architecture = test["model_type"] == "llama" ? "LlamaForCausalLM" : "MistralForCausalLM";
    const auto tokenizer = Tokenizer::Load(files);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    for (size_t i = 0; i < golden["texts"].size(); ++i) {
      const auto text = golden["texts"][i].get<std::string>();
      const auto tokens = (*tokenizer)->Encode(text, {.add_special_tokens = false});
      ASSERT_TRUE(tokens.ok()) << tokens.status();
      const json& expected = test["tokens"][i];
      EXPECT_EQ(*tokens, expected[0].get<std::vector<TokenId>>())
          << folder << " " << test["config"] << test["model_type"] << " " << golden["texts"][i];
      EXPECT_EQ((*tokenizer)->Decode(*tokens, /*skip_special_tokens=*/true), expected[1].get<std::string>())
          << folder << " " << test["config"] << test["model_type"] << " " << golden["texts"][i];
    }
  }
  EXPECT_EQ(golden["cases"].size(), 48u);
}

}  // namespace
}  // namespace quire
