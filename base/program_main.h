// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_PROGRAM_MAIN_H_
#define QUIRE_BASE_PROGRAM_MAIN_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/flags.h"

namespace quire {

// The exit code of every program of ours when the command line is wrong.
inline constexpr int kExitWrongUsage = 2;

// The main() of a program that does one thing and ends: reads the flags, answers --help and calls `run`. Returns the
// exit code: 0 for success, 2 when the command line is wrong or `run` fails with INVALID_ARGUMENT, 1 for other errors.
int ProgramMain(const ProgramFlags& flags, int argc, char** argv, absl::FunctionRef<absl::Status()> run);

}  // namespace quire

#endif  // QUIRE_BASE_PROGRAM_MAIN_H_
