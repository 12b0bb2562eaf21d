// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/model_list.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(ModelListTest, TheNameOfAModelInAUrlMayBeEscaped) {
  EXPECT_EQ(ModelNameOfUrl("owner/name"), "owner/name");
  EXPECT_EQ(ModelNameOfUrl("owner%2Fname"), "owner/name");
  EXPECT_EQ(ModelNameOfUrl("owner%2fa%20b%25"), "owner/a b%");
  EXPECT_EQ(ModelNameOfUrl("%2"), "%2");
  EXPECT_EQ(ModelNameOfUrl("100%zz%-1"), "100%zz%-1");
  EXPECT_EQ(ModelNameOfUrl(""), "");
}

}  // namespace
}  // namespace quire
