// SPDX-License-Identifier: Apache-2.0

#include "base/json_depth.h"

#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

TEST(JsonDepthTest, ObjectsAndListsCountAndBracketsInStringsDoNot) {
  EXPECT_EQ(JsonDepth("7"), 0);
  EXPECT_EQ(JsonDepth("[]"), 1);
  EXPECT_EQ(JsonDepth(R"({"a": [1], "b": [{}]})"), 3);
  EXPECT_EQ(JsonDepth(R"(["[[[", "{\"[[", "\\"])"), 1);
  EXPECT_EQ(JsonDepth(R"(["\\", [[]]])"), 3) << "the backslash is escaped, and the quotation mark ends the string";
  EXPECT_EQ(JsonDepth(std::string(100'000, '[')), 100'000);
}

TEST(JsonDepthTest, TextsThatAreNotJsonHaveADepthToo) {
  EXPECT_EQ(JsonDepth(""), 0);
  EXPECT_EQ(JsonDepth("]]][["), 0);
  EXPECT_EQ(JsonDepth("\"[[\\"), 0);
}

}  // namespace
}  // namespace quire
