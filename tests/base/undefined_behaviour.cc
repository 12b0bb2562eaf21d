// SPDX-License-Identifier: Apache-2.0

#include "tests/base/undefined_behaviour.h"

namespace quire {

int Add(int a, int b) {
  return a + b;
}

const char* AddressBehind(const char* start, size_t distance) {
  return start + distance;
}

}  // namespace quire
