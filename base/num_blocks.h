// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_NUM_BLOCKS_H_
#define QUIRE_BASE_NUM_BLOCKS_H_

namespace quire {

// The number of blocks that hold `num_tokens` tokens.
constexpr int NumBlocksFor(int num_tokens, int block_size) {
  return num_tokens / block_size + (num_tokens % block_size != 0);
}

}  // namespace quire

#endif  // QUIRE_BASE_NUM_BLOCKS_H_
