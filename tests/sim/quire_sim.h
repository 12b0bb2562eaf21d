// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SIM_QUIRE_SIM_H_
#define QUIRE_TESTS_SIM_QUIRE_SIM_H_

namespace quire {

// The program quire-sim; see README.md. Returns its exit code: 0 when nothing failed, 1 for a failure, 2 for arguments
// that make no sense. Called once.
int RunQuireSim(int argc, const char* const* argv);

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_QUIRE_SIM_H_
