// SPDX-License-Identifier: Apache-2.0

#include "gateway/web/error_body.h"

#include "gtest/gtest.h"

namespace quire {
namespace {

TEST(ErrorBodyTest, StringsAreEscapedAsJson) {
  std::string out;
  AppendJsonString(absl::string_view("a\"\\\n\r\t\x01\x1F\0\xC3\xA4/", 12), &out);
  EXPECT_EQ(out, "\"a\\\"\\\\\\n\\r\\t\\u0001\\u001f\\u0000\xC3\xA4/\"");
}

TEST(ErrorBodyTest, BytesThatAreNotUtf8AreReplaced) {
  std::string out;
  AppendJsonString("a\xFF\xC3\"\xE2\x82", &out);
  EXPECT_EQ(out, "\"a\xEF\xBF\xBD\xEF\xBF\xBD\\\"\xEF\xBF\xBD\"");
}

TEST(ErrorBodyTest, WhatIsMissingIsNull) {
  EXPECT_EQ(ErrorBody("m", "t", std::nullopt, "c"), R"({"error":{"message":"m","type":"t","param":null,"code":"c"}})");
}

}  // namespace
}  // namespace quire
