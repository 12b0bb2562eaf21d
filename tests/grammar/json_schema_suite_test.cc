// SPDX-License-Identifier: Apache-2.0

// The public test suite of JSON schemas, draft 2020-12, if it stands beside the checkout.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <string>

#include "grammar/grammar.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/grammar/random_text.h"
#include "tests/grammar/schema_check.h"
#include "tests/grammar/trial_vocabulary.h"
#include "tests/test_paths.h"

namespace quire::grammar {
namespace {

using SuiteJson = nlohmann::ordered_json;

// The keywords of a schema and of all parts of it.
void CollectKeywords(const SuiteJson& schema, std::set<std::string>* keywords) {
  for (const auto& [key, value] : schema.items()) {
    if (schema.is_object()) keywords->insert(key);
    if (value.is_structured()) CollectKeywords(value, keywords);
  }
}

// Says whether FitsSchema can check values of a schema: it knows no names of schemas but JSON pointers, and no
// properties of characters in patterns.
bool CanCheck(const SuiteJson& schema) {
  if (schema.dump().find(R"(\\p{)") != std::string::npos) return false;
  std::set<std::string> keywords;
  if (schema.is_object()) CollectKeywords(schema, &keywords);
  return std::none_of(keywords.begin(), keywords.end(), [](const std::string& keyword) {
    return keyword == "$id" || keyword == "$anchor" || keyword == "$dynamicRef" || keyword.starts_with("unevaluated");
  });
}

// Returns true if a message has a place of the schema between these texts.
bool NamesAPlace(const SuiteJson& schema, std::string_view message, std::string_view begin, std::string_view end) {
  if (!message.starts_with(begin)) return false;
  message.remove_prefix(begin.size());
  return schema.contains(SuiteJson::json_pointer(std::string(message.substr(0, message.find(end)))));
}

// A refusal names a place and a keyword of the schema, or says that there is nothing to write.
bool NamesAReason(const SuiteJson& schema, std::string_view message) {
  if (message == "no text matches: the schema is false") return true;
  if (NamesAPlace(schema, message, "no text matches, because rule \"#", "\"")) return true;
  if (!message.starts_with("no text matches: ") && !NamesAPlace(schema, message, "at #", ": ")) return false;
  std::set<std::string> keywords;
  if (schema.is_object()) CollectKeywords(schema, &keywords);
  return std::any_of(keywords.begin(), keywords.end(),
                     [&](const std::string& keyword) { return message.find("\"" + keyword + "\"") != message.npos; });
}

TEST(JsonSchemaSuiteTest, SupportedSchemasGiveValidTextsAndOthersAreRefusedByName) {
  const std::filesystem::path folder = SourcePath("../shared/json_schema_tests/tests/draft2020-12");
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " does not exist";
  TokenMasks masks(TrialVocabulary(1000, 9));
  Random random(13);
  int num_supported = 0, num_refused = 0, num_texts = 0, num_valid = 0, num_accepted = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream file(entry.path());
    for (const SuiteJson& group : SuiteJson::parse(file)) {
      const SuiteJson& schema = group["schema"];
      SCOPED_TRACE(entry.path().filename().string() + ": " + group["description"].get<std::string>());
      const auto automaton = Compile({.kind = Source::Kind::kJsonSchema, .text = schema.dump()});
      if (!automaton.ok()) {
        ++num_refused;
        EXPECT_TRUE(NamesAReason(schema, std::string(automaton.status().message()))) << automaton.status();
        continue;
      }
      ++num_supported;
      const bool can_check = CanCheck(schema);
      for (const SuiteJson& test : group["tests"]) {
        // Formats are annotations in the suite, and rules here.
        const bool is_valid = test["valid"].get<bool>();
        EXPECT_EQ(can_check ? FitsSchema(test["data"], schema, schema) : is_valid, is_valid) << test["data"];
        const bool is_accepted = Matches(*automaton, test["data"].dump());
        EXPECT_FALSE(is_accepted && !is_valid) << test["data"];
        num_valid += is_valid;
        num_accepted += is_valid && is_accepted;
      }
      for (int i = 0; i < 10; ++i) {
        const auto text = RandomText(*automaton, 20, &masks, &random);
        if (!text.has_value()) continue;  // A walk by chance may not find the end of a name with a pattern.
        const SuiteJson value = SuiteJson::parse(*text, nullptr, /*allow_exceptions=*/false);
        ASSERT_FALSE(value.is_discarded()) << *text;
        EXPECT_TRUE(!can_check || FitsSchema(value, schema, schema)) << *text << " for " << schema;
        num_texts += can_check;
      }
    }
  }
  std::cout << num_supported << " schemas are supported, " << num_refused << " are refused; " << num_texts
            << " texts fit; " << num_accepted << " of " << num_valid << " valid values are texts of the grammars\n";
  EXPECT_GE(num_supported, 320);
}

}  // namespace
}  // namespace quire::grammar
