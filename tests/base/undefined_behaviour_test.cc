// SPDX-License-Identifier: Apache-2.0

// UndefinedBehaviorSanitizer ends a program, also where a check itself lets the program continue.

#include "tests/base/undefined_behaviour.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace quire {
namespace {

TEST(UndefinedBehaviourTest, EndsTheProgram) {
  const char text[] = "text";
  EXPECT_EQ(AddressBehind(text, 4), text + 4);
  EXPECT_EQ(Add(1, 2), 3);
  EXPECT_DEATH(Add(std::numeric_limits<int>::max(), 1), "runtime error: signed integer overflow");
  EXPECT_DEATH(AddressBehind(text, SIZE_MAX - 1), "runtime error: .*overflowed");
}

}  // namespace
}  // namespace quire
