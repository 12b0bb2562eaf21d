// SPDX-License-Identifier: Apache-2.0

#include "base/json_reader.h"

#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Returns the message, or "" for a text that is read.
std::string ErrorOf(const std::string& text, const JsonLimits& limits) {
  return std::string(ReadJson<json>(text, "x.json", limits).status().message());
}

TEST(JsonReaderTest, ObjectsAndListsCountAndBracketsInStringsDoNot) {
  const auto depth = [](const std::string& text) {
    size_t depth = 0;
    while (ErrorOf(text, {.max_depth = depth}).find("is nested deeper than") == 7) ++depth;
    return depth;
  };
  EXPECT_EQ(depth("7"), 0u);
  EXPECT_EQ(depth("[]"), 1u);
  EXPECT_EQ(depth(R"({"a": [1], "b": [{}]})"), 3u);
  EXPECT_EQ(depth(R"(["[[[", "{\"[[", "\\"])"), 1u);
  EXPECT_EQ(depth(R"(["\\", [[]]])"), 3u) << "the backslash is escaped, and the quotation mark ends the string";
  EXPECT_EQ(ErrorOf(std::string(100'000, '['), {}), "x.json is nested deeper than 64 levels");
}

TEST(JsonReaderTest, TextsThatAreNotJsonHaveADepthToo) {
  EXPECT_EQ(ErrorOf("", {.max_depth = 0}), "x.json is not JSON in UTF-8: it ends too early");
  EXPECT_EQ(ErrorOf("]]][[", {.max_depth = 1}), "x.json is nested deeper than 1 levels");
  EXPECT_EQ(ErrorOf("\"[[\\", {.max_depth = 0}), "x.json is not JSON in UTF-8: it ends too early");
}

TEST(JsonReaderTest, AKeyMayBeRepeatedWhereTheLimitsSaySo) {
  std::string large = "{";
  for (int i = 0; i < 100; ++i) large += "\"" + std::to_string(i) + "\": 1, ";
  for (const std::string& text : {std::string("{\"7\": 1, \"7\": 2}"), large + "\"7\": 2}"}) {
    EXPECT_EQ(ReadJson<json>(text, "x")->at("7"), 2);
    EXPECT_EQ(ReadJson<ordered_json>(text, "x")->at("7"), 2);
    const JsonLimits once = {.allows_repeated_keys = false};
    EXPECT_EQ(ErrorOf(text, once), "x.json has the key \"7\" twice in one object");
    EXPECT_EQ(ReadJson<ordered_json>(text, "x", once).status().message(), "x has the key \"7\" twice in one object");
  }
}

TEST(JsonReaderTest, AFaultHasTheByteWhereTheTextStopsBeingJson) {
  json value;
  EXPECT_EQ(ReadJson("{\"a\" 1}", {}, &value)->wrong_byte, 5u);
  EXPECT_EQ(ReadJson("[1,", {}, &value)->wrong_byte, 3u) << "it ends too early";
  EXPECT_FALSE(ReadJson("[1e400]", {}, &value)->wrong_byte.has_value());
  EXPECT_FALSE(ReadJson("[1]", {}, &value).has_value());
}

}  // namespace
}  // namespace quire
