#ifndef QUIRE_BENCH_BENCH_MAIN_H_
#define QUIRE_BENCH_BENCH_MAIN_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/flags.h"

namespace quire {

// The main() of a benchmark: reads the flags, answers --help, runs. Returns the exit code: 0, 2 for a wrong command
// line or when `run` fails with INVALID_ARGUMENT, 1 when it fails otherwise.
int BenchMain(const ProgramFlags& flags, int argc, char** argv, absl::FunctionRef<absl::Status()> run);

}  // namespace quire

#endif  // QUIRE_BENCH_BENCH_MAIN_H_
