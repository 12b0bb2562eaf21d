// SPDX-License-Identifier: Apache-2.0

#include "tests/kernels/kernel_test_util.h"

namespace quire {

std::vector<cpu::Isa> TestedIsas() {
  return cpu::SupportedIsas();
}

}  // namespace quire
