// SPDX-License-Identifier: Apache-2.0

#include "kernels/philox.h"

#include <gtest/gtest.h>

#include <array>

namespace quire {
namespace {

std::array<uint32_t, 4> Words(PhiloxBlock counter, uint64_t key) {
  const PhiloxBlock block = Philox4x32(counter, key);
  return {block.word[0], block.word[1], block.word[2], block.word[3]};
}

// The three known answers that the authors publish for philox4x32 with 10 rounds.
TEST(PhiloxTest, GivesTheKnownAnswers) {
  EXPECT_EQ(Words({{0, 0, 0, 0}}, 0), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Words({{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}}, 0xffffffffffffffff),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Words({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0x299f31d0a4093822),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

}  // namespace
}  // namespace quire
