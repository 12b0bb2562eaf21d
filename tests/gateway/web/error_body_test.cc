// SPDX-License-Identifier: Apache-2.0

#include "gateway/web/error_body.h"

#include "gtest/gtest.h"

namespace quire {
namespace {

TEST(ErrorBodyTest, WhatIsMissingIsNull) {
  EXPECT_EQ(ErrorBody("m", "t", std::nullopt, "c"), R"({"error":{"message":"m","type":"t","param":null,"code":"c"}})");
}

}  // namespace
}  // namespace quire
