// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/body_json.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

std::string Repeat(const std::string& text, size_t count) {
  std::string all;
  all.reserve(text.size() * count);
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}

std::string Message(const std::string& body) {
  return std::string(ParseBody(body).status().message());
}

TEST(ParseBodyTest, AnErrorHasItsPlace) {
  const auto message = [](const std::string& body) { return std::string(ParseBody(body).status().message()); };
  EXPECT_EQ(message("{\"a\": x}"), "the body is not JSON in UTF-8: byte 6 of 8 is wrong");
  EXPECT_EQ(message("{\"a\": \"\xFF\"}"), "the body is not JSON in UTF-8: byte 7 of 10 is wrong");
  EXPECT_EQ(message("{\"a\": 1} x"), "the body is not JSON in UTF-8: byte 9 of 10 is wrong");
  EXPECT_EQ(message("{\"a\": 1"), "the body is not JSON in UTF-8: it ends too early");
  EXPECT_EQ(message("{\"a\": 1e400}"), "the body has a number that is too large for a double, before byte 11");
  for (const char* text : {"\\ud800", "\\ud800x", "\\udc00"}) {
    EXPECT_THAT(message(std::string("{\"a\": \"") + text + "\"}"),
                testing::StartsWith("the body has one half of a surrogate pair alone (\\ud800 to \\udfff), which is no "
                                    "character, before byte "));
  }
  EXPECT_EQ(message(""), "the body is not JSON in UTF-8: it ends too early");
}

TEST(ParseBodyTest, WhatWouldCostTooMuchIsRefused) {
  EXPECT_TRUE(ParseBody("{\"a\": [1, \"[{:\\\"\"]}").ok());
  EXPECT_FALSE(ParseBody("[]").ok());
  EXPECT_FALSE(ParseBody("{\"a\": \"\xFF\"}").ok());
  EXPECT_FALSE(ParseBody("{\"a\": 1} x").ok());
  EXPECT_EQ(ParseBody("{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}").status().message(),
            "the body is nested deeper than 100 levels");
  std::string many = "{\"0\":0";
  for (int i = 1; i < 2049; ++i) many += ",\"" + std::to_string(i) + "\":0";
  EXPECT_EQ(ParseBody(many + "}").status().message(), "the body has an object with more than 2048 members");
  std::string lists = "{\"a\":[{\"b\":0}";
  for (int i = 0; i < 65536; ++i) lists += ",{\"b\":0}";
  EXPECT_EQ(ParseBody(lists + "]}").status().message(), "the body has more than 65536 members of objects");
}

TEST(ParseBodyTest, ValuesAreThoseOfTheText) {
  const std::string text =
      R"({"a":[1,-2,3.5,1e3,true,false,null,"x\u00e4\n",[],{},[[0]]],"b":{"c":{"d":[1]}},"":18446744073709551615})";
  const absl::StatusOr<Json> json = ParseBody(text);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(*json, Json::parse(text));
  EXPECT_EQ(json->dump(), Json::parse(text).dump()) << "the order of members";
  EXPECT_EQ(ParseBody(" {\n} ")->dump(), "{}");
}

TEST(ParseBodyTest, TheLastOfTwoMembersWithOneNameCounts) {
  EXPECT_EQ(ParseBody(R"({"a":1,"b":[{"c":2}],"a":{"d":3}})")->dump(), R"({"a":{"d":3},"b":[{"c":2}]})");
  // An object with many members is searched in another way.
  std::string many = "{";
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&many, "\"m", i % 500, "\":", i, ",");
  const absl::StatusOr<Json> json = ParseBody(many + "\"end\":{\"a\":1,\"a\":2}}");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(json->size(), 501u);
  EXPECT_EQ((*json)["m7"], 507);
  EXPECT_EQ((*json)["end"]["a"], 2);
}

TEST(ParseBodyTest, ValuesAreCountedWhileTheyAreRead) {
  EXPECT_EQ(Message("{\"a\":[" + Repeat("[],", 300'000) + "0]}"),
            "the body has more than 262144 values that are no numbers");
  EXPECT_EQ(Message("{\"a\":[" + Repeat("{},", 300'000) + "0]}"),
            "the body has more than 262144 values that are no numbers");
  EXPECT_EQ(Message("{\"a\":[" + Repeat("\"\",", 300'000) + "0]}"),
            "the body has more than 262144 values that are no numbers");
  EXPECT_EQ(Message("{\"a\":[" + Repeat("null,", 300'000) + "0]}"),
            "the body has more than 262144 values that are no numbers");
  EXPECT_EQ(Message("{\"a\":[" + Repeat("1,", 4'200'000) + "0]}"), "the body has more than 4194304 numbers");
  EXPECT_EQ(Message("{\"a\":[" + Repeat("1,", 5'000'000) + "0]}"), "the body has more than 4194304 numbers");
  // A wrong text may have more commas than values.
  EXPECT_EQ(Message("{\"a\":[" + Repeat(",", 5'000'000) + "0]}"), "the body has more than 4194304 numbers");
  EXPECT_TRUE(ParseBody("{\"a\":[" + Repeat("1234,", 1'000'000) + "0]}").ok()) << "a prompt of a million tokens";
}

TEST(ParseBodyTest, AListHasMemoryForItsValuesOnly) {
  const absl::StatusOr<Json> json = ParseBody("{\"a\":[" + Repeat("[1,2,3],", 1000) + "[]]}");
  ASSERT_TRUE(json.ok()) << json.status();
  const auto& list = (*json)["a"].get_ref<const Json::array_t&>();
  EXPECT_EQ(list.capacity(), 1001u);
  EXPECT_EQ(list[0].get_ref<const Json::array_t&>().capacity(), 3u);
}

}  // namespace
}  // namespace quire
