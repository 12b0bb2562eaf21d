// SPDX-License-Identifier: Apache-2.0

#include "worker/model/gguf_tokenizer.h"

#include <functional>
#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv_manager/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"
#include "tests/kv_manager/tokenizer/golden_files.h"
#include "tests/test_paths.h"
#include "tests/worker/model/gguf_writer.h"
#include "tests/worker/model/model_files.h"
#include "worker/model/gguf.h"

namespace quire {
namespace {

using nlohmann::json;
using testing::HasSubstr;

using Files = std::map<std::string, std::string>;

absl::StatusOr<Files> FilesOf(const std::string& file) {
  const auto contents = ParseGguf(file, "x.gguf");
  EXPECT_TRUE(contents.ok()) << contents.status();
  const auto files = GgufTokenizerFiles(*contents);
  if (!files.ok()) return files.status();
  Files result;
  for (const TokenizerFile& one : *files) result[one.name] = one.contents;
  return result;
}

Files FilesOfGolden(const std::string& name) {
  const auto files = FilesOf(ReadWholeFile(SourcePath("tests/golden/gguf/" + name)));
  EXPECT_TRUE(files.ok()) << files.status();
  return files.value_or(Files());
}

std::unique_ptr<Tokenizer> Load(const Files& files) {
  TokenizerFiles from;
  const auto get = [&](const char* name) { return files.contains(name) ? files.at(name) : std::string(); };
  from.tokenizer_json = get("tokenizer.json");
  from.tokenizer_model = get("tokenizer.model");
  from.tokenizer_config_json = get("tokenizer_config.json");
  auto tokenizer = Tokenizer::Load(from);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

std::string ErrorWith(const std::function<void(GgufWriter*)>& add) {
  GgufWriter writer;
  add(&writer);
  const auto files = FilesOf(writer.File());
  EXPECT_FALSE(files.ok());
  return std::string(files.status().message());
}

// A tokenizer in a GGUF file gives the tokens and texts of the original files, for all strings of tests/golden.
void ExpectTokensOf(const std::string& gguf, const std::string& original) {
  const auto tokenizer = Load(FilesOfGolden(gguf));
  const auto expected = LoadGolden(original);
  ASSERT_NE(tokenizer, nullptr);
  if (expected->bos_id()) {
    EXPECT_EQ(tokenizer->bos_id(), expected->bos_id());
  }
  const auto strings = json::parse(ReadWholeFile(SourcePath("tests/golden/tokenizer/strings.json")));
  for (const std::string& text : strings.get<std::vector<std::string>>()) {
    for (const bool adds_special : {true, false}) {
      for (const bool parses_special : {true, false}) {
        const EncodeOptions options{adds_special, parses_special};
        const auto tokens = tokenizer->Encode(text, options), expected_tokens = expected->Encode(text, options);
        ASSERT_TRUE(tokens.ok()) << tokens.status();
        EXPECT_EQ(*tokens, *expected_tokens) << json(text) << adds_special << parses_special;
        EXPECT_EQ(tokenizer->Decode(*tokens, true), expected->Decode(*tokens, true));
      }
    }
  }
}

TEST(GgufTokenizerTest, LlamaBpeEncodesAsItsTokenizerJson) {
  ExpectTokensOf("llama3_bpe.gguf", "llama3");
}

TEST(GgufTokenizerTest, Qwen2EncodesAsItsTokenizerJson) {
  ExpectTokensOf("qwen2_bpe.gguf", "qwen2");
}

TEST(GgufTokenizerTest, SentencePieceEncodesAsItsTokenizerModel) {
  ExpectTokensOf("sentencepiece.gguf", "sp_bpe");
}

TEST(GgufTokenizerTest, OtherPreTokenizersEncodeAsTheLibrary) {
  const json golden = json::parse(ReadWholeFile(SourcePath("tests/golden/gguf/pre_tokenizers.json")));
  const std::string file = ReadWholeFile(SourcePath("tests/golden/gguf/llama3_bpe.gguf"));
  for (const auto& [name, expected] : golden["tokens"].items()) {
    const std::string length = GgufWriter::Bytes(uint64_t{9}) + "llama-bpe";
    std::string changed = file;
    changed.replace(changed.find(length), length.size(), GgufWriter::Bytes(uint64_t{name.size()}) + name);
    const auto files = FilesOf(changed);
    ASSERT_TRUE(files.ok()) << files.status();
    const auto tokenizer = Load(*files);
    ASSERT_NE(tokenizer, nullptr);
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto text = golden["texts"][i].get<std::string>();
      EXPECT_EQ(*tokenizer->Encode(text, {false, true}), expected[i].get<std::vector<TokenId>>())
          << name << " " << json(text);
    }
  }
}

TEST(GgufTokenizerTest, ThePreTokenizerDefaultCutsPunctuationAndThreeDigits) {
  std::string file = ReadWholeFile(SourcePath("tests/golden/gguf/llama3_bpe.gguf"));
  const std::string length = GgufWriter::Bytes(uint64_t{9}) + "llama-bpe";
  file.replace(file.find(length), length.size(), GgufWriter::Bytes(uint64_t{7}) + "default");
  const auto tokenizer = Load(*FilesOf(file));
  ASSERT_NE(tokenizer, nullptr);
  const auto tokens = *tokenizer->Encode("a.b12345", {false, true});
  EXPECT_EQ(tokenizer->Decode(tokens, true), "a.b12345");
}

TEST(GgufTokenizerTest, ChatTemplatesComeAlong) {
  const Files llama = FilesOfGolden("llama3_bpe.gguf");
  EXPECT_EQ(llama.at("chat_template.jinja"), "{{ bos_token }}{{ messages[0]['content'] }}");
  const json config = json::parse(llama.at("tokenizer_config.json"));
  EXPECT_EQ(config["made_from"], "gguf") << "the manager tells errors of such files by it";
  EXPECT_EQ(config["bos_token"], "<|begin_of_text|>");
  EXPECT_EQ(config["add_bos_token"], true) << "as llama.cpp does for llama-bpe";
  const Files qwen = FilesOfGolden("qwen2_bpe.gguf");
  EXPECT_FALSE(qwen.contains("chat_template.jinja"));
  const json named = json::parse(qwen.at("tokenizer_config.json"))["chat_template"];
  ASSERT_EQ(named.size(), 2u);
  EXPECT_EQ(named[0]["name"], "tool_use");
  EXPECT_EQ(named[1]["name"], "default");
  EXPECT_EQ(named[1]["template"], "{{ messages[0]['content'] }}<|im_end|>");
}

TEST(GgufTokenizerTest, NamedTemplatesAreFoundByTheirKeys) {
  std::string file = ReadWholeFile(SourcePath("tests/golden/gguf/qwen2_bpe.gguf"));
  const std::string list = "tokenizer.chat_templates";
  ASSERT_NE(file.find(list), std::string::npos);
  file.replace(file.find(list), list.size(), "tokenizer.chat_template_");  // No list of names any more.
  const auto files = FilesOf(file);
  ASSERT_TRUE(files.ok()) << files.status();
  const json named = json::parse(files->at("tokenizer_config.json"))["chat_template"];
  ASSERT_EQ(named.size(), 2u);
  EXPECT_EQ(named[0]["name"], "tool_use");
}

TEST(GgufTokenizerTest, ATokenizerThatIsNotReadIsRefusedByItsName) {
  EXPECT_EQ(ErrorWith([](GgufWriter* writer) { writer->AddString("tokenizer.ggml.model", "bert"); }),
            "tokenizer.ggml.model is \"bert\", must be gpt2 or llama");
  const auto with_pre = [](const std::string& name) {
    return ErrorWith([&](GgufWriter* writer) {
      writer->AddString("tokenizer.ggml.model", "gpt2");
      if (!name.empty()) writer->AddString("tokenizer.ggml.pre", name);
      writer->AddStrings("tokenizer.ggml.tokens", {"a", "b"});
    });
  };
  EXPECT_THAT(with_pre("falcon"), HasSubstr("tokenizer.ggml.pre is \"falcon\", must be one of llama-bpe, "));
  EXPECT_THAT(with_pre(""), HasSubstr("tokenizer.ggml.pre is missing, must be one of "));
  EXPECT_TRUE(FilesOf(GgufWriter().File())->empty()) << "a file without a tokenizer";
}

TEST(GgufTokenizerTest, BadTokensAreNamed) {
  const auto with = [](const std::vector<std::string>& tokens, const std::vector<int32_t>& types, uint32_t bos = 0) {
    return ErrorWith([&](GgufWriter* writer) {
      writer->AddString("tokenizer.ggml.model", "gpt2");
      writer->AddString("tokenizer.ggml.pre", "qwen2");
      writer->AddStrings("tokenizer.ggml.tokens", tokens);
      writer->AddInts("tokenizer.ggml.token_type", types);
      writer->AddUint32("tokenizer.ggml.bos_token_id", bos);
    });
  };
  EXPECT_EQ(with({"a", "a"}, {1, 1}), "tokenizer.ggml.tokens, element 1, is \"a\", which occurs before");
  EXPECT_EQ(with({"a", ""}, {1, 1}), "tokenizer.ggml.tokens, element 1, is empty");
  EXPECT_THAT(with({"a", "\xff"}, {1, 1}), HasSubstr("tokenizer.ggml.tokens, element 1 is not valid UTF-8"));
  EXPECT_EQ(with({"a", "b"}, {1, 7}), "tokenizer.ggml.token_type, element 1, is 7, must be 0 to 6");
  EXPECT_EQ(with({"a", "b"}, {-1, 1}), "tokenizer.ggml.token_type, element 0, is -1, must be 0 to 6");
  EXPECT_EQ(ErrorWith([](GgufWriter* writer) {
              writer->AddString("tokenizer.ggml.model", "gpt2");
              writer->AddString("tokenizer.ggml.pre", "qwen2");
              writer->AddStrings("tokenizer.ggml.tokens", {"a"});
              writer->Add(
                  "tokenizer.ggml.token_type", GgufType::kArray,
                  GgufWriter::Bytes(GgufType::kFloat32) + GgufWriter::Bytes(uint64_t{1}) + GgufWriter::Bytes(2.5f));
            }),
            "tokenizer.ggml.token_type, element 0, is 2.5, must be 0 to 6");
  EXPECT_THAT(with({"a", "b"}, {1}), HasSubstr("must be an array of 2 numbers"));
  EXPECT_EQ(with({"a", "b"}, {1, 1}, 2), "tokenizer.ggml.bos_token_id is 2, must be an integer in 0 .. 1");
}

TEST(GgufTokenizerTest, UserDefinedPiecesOfSentencePieceHaveItsSpaces) {
  GgufWriter writer;
  writer.AddString("tokenizer.ggml.model", "llama");
  writer.AddStrings("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "  ", "\u2581a", "a", "\u2581"});
  writer.AddInts("tokenizer.ggml.token_type", {2, 3, 3, 4, 1, 1, 1});
  std::string scores = GgufWriter::Bytes(GgufType::kFloat32) + GgufWriter::Bytes(uint64_t{7});
  for (int i = 0; i < 7; ++i) scores += GgufWriter::Bytes(static_cast<float>(-i));
  writer.Add("tokenizer.ggml.scores", GgufType::kArray, scores);
  writer.AddUint32("tokenizer.ggml.bos_token_id", 1);
  const auto files = FilesOf(writer.File());
  ASSERT_TRUE(files.ok()) << files.status();
  const auto tokenizer = Load(*files);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(*tokenizer->Encode("a  a", {true, true}), (std::vector<TokenId>{1, 4, 3, 5}));
}

}  // namespace
}  // namespace quire
