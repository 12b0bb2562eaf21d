// SPDX-License-Identifier: Apache-2.0

#include "base/json_text.h"

#include <string>

#include "gtest/gtest.h"

namespace quire {
namespace {

TEST(JsonTextTest, StringsAreEscapedAsJson) {
  std::string out;
  AppendJsonString(absl::string_view("a\"\\\n\r\t\x01\x1F\0\xC3\xA4/", 12), &out);
  EXPECT_EQ(out, "\"a\\\"\\\\\\n\\r\\t\\u0001\\u001f\\u0000\xC3\xA4/\"");
}

TEST(JsonTextTest, BytesThatAreNotUtf8AreReplaced) {
  std::string out;
  AppendJsonString("a\xFF\xC3\"\xE2\x82", &out);
  EXPECT_EQ(out, "\"a\xEF\xBF\xBD\xEF\xBF\xBD\\\"\xEF\xBF\xBD\"");
}

}  // namespace
}  // namespace quire
