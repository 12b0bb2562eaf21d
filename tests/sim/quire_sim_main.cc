// SPDX-License-Identifier: Apache-2.0

// quire-sim: the core of the manager against shadow workers, over scenarios drawn from seeds.

#include "tests/sim/quire_sim.h"

int main(int argc, char** argv) {
  return quire::RunQuireSim(argc, argv);
}
