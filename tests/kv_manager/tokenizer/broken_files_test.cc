// SPDX-License-Identifier: Apache-2.0

// Tokenizer files come with the model and are not trusted. Every mistake in them gives a status of one line.

#include <nlohmann/json.hpp>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv_manager/tokenizer/proto_reader.h"
#include "kv_manager/tokenizer/sentencepiece_model.h"
#include "kv_manager/tokenizer/tokenizer.h"
#include "tests/kv_manager/tokenizer/golden_files.h"

namespace quire {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr char kText[] = "It's <s> 12 na\u00EFve \u4E2D \U0001F600  x";

// Loads and, when that works, uses the tokenizer. Returns whether it loaded.
bool Exercise(const TokenizerFiles& files) {
  const auto tokenizer = Tokenizer::Load(files);
  if (!tokenizer.ok()) {
    EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(tokenizer.status().message()), Not(HasSubstr("\n")));
    return false;
  }
  const auto tokens = (*tokenizer)->Encode(kText, {});
  if (tokens.ok()) (*tokenizer)->Decode(*tokens, true);
  std::vector<TokenId> low;
  for (TokenId id = -1; id < 300; ++id) low.push_back(id);
  (*tokenizer)->Decode(low, false);
  return true;
}

// Changes, inserts, deletes or repeats a few bytes.
std::string Mutate(std::string bytes, std::mt19937* random) {
  const auto below = [random](size_t n) { return n == 0 ? 0 : (*random)() % n; };
  for (size_t i = 0, count = 1 + below(4); i < count && !bytes.empty(); ++i) {
    const size_t at = below(bytes.size());
    switch (below(4)) {
      case 0:
        bytes[at] = static_cast<char>(below(256));
        break;
      case 1:
        bytes[at] = "\"\\{}[],:0919-et"[below(15)];
        break;
      case 2:
        bytes.erase(at, 1 + below(8));
        break;
      default:
        bytes.insert(at, bytes.substr(below(bytes.size()), 1 + below(16)));
        break;
    }
  }
  return bytes;
}

TEST(BrokenFilesTest, AMutatedTokenizerJsonNeverCrashes) {
  std::mt19937 random(11);
  int num_refused = 0;
  for (const char* name : {"mixed", "sp_bpe_metaspace", "sp_unigram_json", "llama3"}) {
    const std::string original = GoldenFiles(name).tokenizer_json;
    for (int round = 0; round < 150; ++round) {
      TokenizerFiles files;
      // Half of the mutations hit the part before the model, where the small structures are.
      const size_t head = original.find("\"model\":");
      files.tokenizer_json = round % 2 == 0 ? Mutate(original.substr(0, head), &random) + original.substr(head)
                                            : Mutate(original, &random);
      num_refused += Exercise(files) ? 0 : 1;
    }
  }
  EXPECT_GT(num_refused, 100);
}

// Replaces one value somewhere in the document.
void MutateValue(json* value, std::mt19937* random) {
  if (value->is_structured() && !value->empty() && (*random)() % 8 != 0) {
    auto it = value->begin();
    std::advance(it, (*random)() % std::min<size_t>(value->size(), 40));
    return MutateValue(&*it, random);
  }
  const json replacements[] = {nullptr,        true,       -1,          1e300, 18446744073709551615u,
                               2097152,        "",         "\u2581",    "(((", json::array(),
                               json::object(), "Sequence", "ByteLevel", 3};
  *value = replacements[(*random)() % std::size(replacements)];
}

TEST(BrokenFilesTest, ATokenizerJsonWithAWrongValueNeverCrashes) {
  std::mt19937 random(12);
  int num_refused = 0;
  for (const char* name : {"mixed", "sp_bpe_prepend", "sp_unigram_json", "qwen2"}) {
    const json original = json::parse(GoldenFiles(name).tokenizer_json);
    for (int round = 0; round < 150; ++round) {
      json document = original;
      MutateValue(&document, &random);
      TokenizerFiles files;
      files.tokenizer_json = document.dump();
      num_refused += Exercise(files) ? 0 : 1;
    }
  }
  EXPECT_GT(num_refused, 200);
}

TEST(BrokenFilesTest, ATokenThatIsAddedAroundEveryTextMustExist) {
  json document = json::parse(GoldenFiles("llama3").tokenizer_json);
  document["post_processor"] = json::parse(R"({"type":"BertProcessing","cls":["C",0],"sep":["S",1000000]})");
  TokenizerFiles files;
  files.tokenizer_json = document.dump();
  EXPECT_THAT(Tokenizer::Load(files).status().message(), HasSubstr("post_processor: token 1000000 does not exist"));
}

TEST(BrokenFilesTest, ATruncatedFileIsRefused) {
  for (const char* name : {"mixed", "sp_unigram_json"}) {
    const std::string original = GoldenFiles(name).tokenizer_json;
    for (size_t size = 1; size + 2 < original.size(); size += 1 + original.size() / 100) {
      TokenizerFiles files;
      files.tokenizer_json = original.substr(0, size);
      EXPECT_FALSE(Exercise(files)) << name << " cut to " << size;
    }
  }
  for (const char* name : {"sp_bpe", "sp_unigram", "sp_symbols"}) {
    const std::string original = GoldenFiles(name).tokenizer_model;
    for (size_t size = 0; size < original.size(); size += 1 + original.size() / 300) {
      TokenizerFiles files;
      files.tokenizer_model = original.substr(0, size);
      Exercise(files);  // a cut between two fields can leave a valid model
    }
  }
}

TEST(BrokenFilesTest, AMutatedTokenizerModelNeverCrashes) {
  std::mt19937 random(13);
  int num_refused = 0;
  for (const char* name : {"sp_bpe", "sp_unigram", "sp_symbols"}) {
    const std::string original = GoldenFiles(name).tokenizer_model;
    for (int round = 0; round < 300; ++round) {
      TokenizerFiles files;
      files.tokenizer_model = Mutate(original, &random);
      num_refused += Exercise(files) ? 0 : 1;
    }
  }
  EXPECT_GT(num_refused, 300);
}

std::string LoadError(const std::function<void(json*)>& change) {
  json document = json::parse(GoldenFiles("qwen2").tokenizer_json);
  change(&document);
  TokenizerFiles files;
  files.tokenizer_json = document.dump();
  const auto tokenizer = Tokenizer::Load(files);
  return tokenizer.ok() ? "" : std::string(tokenizer.status().message());
}

TEST(BrokenFilesTest, TheMessageNamesFilePathAndReason) {
  EXPECT_EQ(LoadError([](json*) {}), "");
  EXPECT_EQ(LoadError([](json* d) { (*d)["model"]["type"] = "WordPiece"; }),
            "tokenizer.json: model: model type \"WordPiece\" is not supported");
  EXPECT_EQ(LoadError([](json* d) { (*d)["model"].erase("vocab"); }), "tokenizer.json: model.vocab: is missing");
  EXPECT_EQ(LoadError([](json* d) { (*d)["model"]["vocab"]["a"] = -4; }),
            "tokenizer.json: model.vocab.a: token id is -4, ids are 0 to 2097151");
  EXPECT_EQ(LoadError([](json* d) { (*d)["model"]["vocab"]["zz zz"] = 7; }).substr(0, 35),
            "tokenizer.json: model.vocab: tokens");
  EXPECT_EQ(LoadError([](json* d) { (*d)["model"]["dropout"] = 0.1; }),
            "tokenizer.json: model.dropout: must be null: encoding is deterministic");
  EXPECT_EQ(LoadError([](json* d) { (*d)["model"]["merges"][3] = "a b c"; }),
            "tokenizer.json: model.merges: entry 3 is not a pair of tokens");
  EXPECT_EQ(LoadError([](json* d) { (*d)["added_tokens"][0]["id"] = 5; }).substr(0, 43),
            "tokenizer.json: added_tokens[0].id: is 5, w");
  EXPECT_EQ(LoadError([](json* d) { (*d)["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "["; }),
            "tokenizer.json: pre_tokenizer.pretokenizers[0].pattern.Regex: regular expression has a class that is not "
            "closed at byte 0");
  EXPECT_EQ(LoadError([](json* d) { *d = json::array(); }), "tokenizer.json: : expected an object, found array");
}

TEST(BrokenFilesTest, DeepNestingAndMissingFilesAreRefused) {
  TokenizerFiles files;
  EXPECT_THAT(Tokenizer::Load(files).status().message(), HasSubstr("neither a tokenizer.json nor a tokenizer.model"));
  files.tokenizer_json = std::string(1'000'000, '[');
  EXPECT_THAT(Tokenizer::Load(files).status().message(), HasSubstr("tokenizer.json is nested deeper than 64 levels"));
  files.tokenizer_json = "{";
  EXPECT_THAT(Tokenizer::Load(files).status().message(),
              HasSubstr("tokenizer.json is not JSON in UTF-8: it ends too early"));
  files.tokenizer_json = "{}";
  files.tokenizer_config_json = R"({"bos_token":7})";
  EXPECT_THAT(Tokenizer::Load(files).status().message(),
              HasSubstr("tokenizer_config.json: bos_token: expected a string, found number"));
}

// A message of SentencePieces with one piece of the given type.
std::string Piece(const std::string& text, int type) {
  const std::string piece =
      std::string("\x0A") + static_cast<char>(text.size()) + text + "\x18" + static_cast<char>(type);
  return std::string("\x0A") + static_cast<char>(piece.size()) + piece;
}

std::string ModelError(const std::string& bytes) {
  TokenizerFiles files;
  files.tokenizer_model = bytes;
  const auto tokenizer = Tokenizer::Load(files);
  return tokenizer.ok() ? "" : std::string(tokenizer.status().message());
}

TEST(BrokenFilesTest, ASentencePieceModelMustBeWhole) {
  EXPECT_EQ(ModelError(Piece("<unk>", 2) + Piece("a", 1)), "");
  EXPECT_EQ(ModelError(Piece("a", 1)), "tokenizer.model: has no unknown piece");
  EXPECT_EQ(ModelError(Piece("<unk>", 2) + Piece("<un>", 2)), "tokenizer.model: pieces 0 and 1 are both unknown");
  EXPECT_EQ(ModelError(Piece("a", 1) + Piece("a", 4)), "tokenizer.model: piece \"a\" is given twice");
  EXPECT_EQ(ModelError(Piece("a", 7)), "tokenizer.model: piece 0 has type 7, types are 1 to 6");
  EXPECT_EQ(ModelError(Piece("", 1)), "tokenizer.model: piece 0 is empty");
  EXPECT_THAT(ModelError(Piece("\xFF", 1)), HasSubstr("tokenizer.model: piece 0 is not valid UTF-8"));
  EXPECT_THAT(ModelError(Piece("<0x41>", 6)), HasSubstr("piece 0 is a byte without byte_fallback"));
  const std::string byte_fallback = "\x12\x03\x98\x02\x01";  // TrainerSpec.byte_fallback = true
  EXPECT_THAT(ModelError(byte_fallback + Piece("<unk>", 2)), HasSubstr("lacks 256 of the 256 byte pieces"));
  EXPECT_THAT(ModelError(byte_fallback + Piece("<0xZZ>", 6)), HasSubstr("byte piece 0 is not <0x00> to <0xFF>"));
  EXPECT_EQ(ModelError(std::string("\x12\x02\x18\x03")),
            "tokenizer.model: model_type is 3, only 1 (unigram) and 2 (BPE) are supported");
  EXPECT_EQ(ModelError("\x0A\x50"), "tokenizer.model: ModelProto: field 1 has 80 bytes, only 0 are left");
  EXPECT_EQ(ModelError("\x08\x01"), "tokenizer.model: ModelProto: field 1 has wire type 0, expected bytes");
  EXPECT_THAT(ModelError(std::string(11, '\xFF')), HasSubstr("a varint is cut off or too long"));
  EXPECT_THAT(ModelError(std::string("\x00", 1)), HasSubstr("bad tag 0"));
  EXPECT_THAT(ModelError("\x0B"), HasSubstr("field 1 has wire type 3"));
}

}  // namespace
}  // namespace quire
