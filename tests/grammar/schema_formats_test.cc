// SPDX-License-Identifier: Apache-2.0

#include "grammar/schema_formats.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grammar/grammar.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/grammar/random_text.h"
#include "tests/grammar/trial_vocabulary.h"
#include "tests/test_paths.h"

namespace quire::grammar {
namespace {

constexpr const char* kFormats[] = {"date", "time",     "date-time", "duration", "uuid",
                                    "ipv4", "hostname", "ipv6",      "email",    "uri"};

std::shared_ptr<const Automaton> CompiledFormat(const std::string& format) {
  const auto automaton = Compile(
      {.kind = Source::Kind::kJsonSchema, .text = absl::StrCat(R"({"type": "string", "format": ")", format, "\"}")});
  EXPECT_TRUE(automaton.ok()) << automaton.status();
  return automaton.ok() ? *automaton : nullptr;
}

bool FormatMatches(const std::string& format, const std::string& text) {
  return Matches(CompiledFormat(format), absl::StrCat("\"", text, "\""));
}

TEST(SchemaFormatsTest, UsualTextsAreThere) {
  for (const auto& [format, text] : std::vector<std::pair<std::string, std::string>>{
           {"duration", "P1Y2M3DT4H5M6S"},
           {"duration", "PT36H"},
           {"duration", "P4W"},
           {"hostname", "raw.github-user-content.example.com"},
           {"hostname", "localhost"},
           {"ipv6", "2001:db8::1"},
           {"ipv6", "::"},
           {"ipv6", "1:2:3:4:5:6:7:8"},
           {"ipv6", "fe80::"},
           {"uri", "https://example.org"},
           {"uri", "http://localhost:8000/v1/models?a=1&b=%20x#top"},
           {"uri", "https://en.example.org/wiki/Foo_(bar),_baz"},
       }) {
    EXPECT_TRUE(FormatMatches(format, text)) << format << " " << text;
  }
}

TEST(SchemaFormatsTest, WrongTextsAreNot) {
  for (const auto& [format, text] : std::vector<std::pair<std::string, std::string>>{
           {"duration", "P"},
           {"duration", "P1D2H"},
           {"duration", "PT"},
           {"hostname", "-a.example"},
           {"hostname", "a..example"},
           {"ipv6", "1:2:3:4:5:6:7"},
           {"ipv6", "1::2::3"},
           {"ipv6", "1:2:3:4:5:6:7::8"},
           {"uri", "example.org"},
           {"uri", "https://"},
           {"uri", "https://a b.example"},
       }) {
    EXPECT_FALSE(FormatMatches(format, text)) << format << " " << text;
  }
}

// The public test suite, if it stands beside the checkout, says which texts do not have a format.
TEST(SchemaFormatsTest, NoTextThatTheSuiteRefusesIsThere) {
  const std::filesystem::path folder = SourcePath("../shared/json_schema_tests/tests/draft2020-12/optional/format");
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " does not exist";
  for (const std::string format : kFormats) {
    const auto automaton = CompiledFormat(format);
    std::ifstream file(folder / absl::StrCat(format, ".json"));
    for (const auto& group : nlohmann::json::parse(file)) {
      for (const auto& test : group["tests"]) {
        if (!test["valid"].get<bool>()) {
          EXPECT_FALSE(Matches(automaton, test["data"].dump())) << format << " " << test["data"];
        }
      }
    }
  }
}

TEST(SchemaFormatsTest, TextsHaveTheLengthsThatAreTold) {
  TokenMasks masks(TrialVocabulary(600, 3));
  Random random(7);
  for (const std::string format : kFormats) {
    const SchemaFormat& known = *FindSchemaFormat(format);
    const auto automaton = CompiledFormat(format);
    for (int i = 0; i < 30; ++i) {
      const auto text = RandomText(automaton, i * 20, &masks, &random);
      ASSERT_TRUE(text.has_value());
      const int length = static_cast<int>(text->size()) - 2;
      EXPECT_TRUE(length >= known.min_length && length <= known.max_length) << format << " " << *text;
    }
  }
  EXPECT_TRUE(FormatMatches("date-time", "2024-01-01T00:00:00Z"));
  EXPECT_TRUE(FormatMatches("duration", "P0D"));
  EXPECT_TRUE(FormatMatches("hostname", "ab"));
  EXPECT_TRUE(FormatMatches("email", "a@b.c"));
  EXPECT_TRUE(FormatMatches("uri", "http://ab"));
  const std::string label(20, 'a');
  std::string host;
  for (int i = 0; i < 3; ++i) absl::StrAppend(&host, label, "-", label, "-", label, ".");
  host += std::string(24, 'a');
  EXPECT_EQ(host.size(), 213u);
  EXPECT_TRUE(FormatMatches("hostname", host));
  std::string uri = absl::StrCat("https://", host, ":8000");
  for (int i = 0; i < 8; ++i) absl::StrAppend(&uri, "/", std::string(150, 'a'));
  uri += "?";
  for (int i = 0; i < 200; ++i) uri += "%20";
  absl::StrAppend(&uri, "#", std::string(40, 'a'));
  EXPECT_EQ(uri.size(), 2076u);
  EXPECT_TRUE(FormatMatches("uri", uri));
  EXPECT_FALSE(FormatMatches("uri", uri + "a"));
}

TEST(SchemaFormatsTest, LengthsThatAllTextsHaveMayStandBesideAFormat) {
  for (const char* schema : {R"({"format": "uri", "minLength": 1, "maxLength": 2083})", R"({"format": "uuid",
       "minLength": 36, "maxLength": 36})"}) {
    EXPECT_TRUE(Compile({.kind = Source::Kind::kJsonSchema, .text = schema}).ok()) << schema;
  }
}

}  // namespace
}  // namespace quire::grammar
