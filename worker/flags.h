#ifndef QUIRE_WORKER_FLAGS_H_
#define QUIRE_WORKER_FLAGS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace quire {

// A thin reader over absl::flags, because its own exits with other codes and several lines. `names` are the flags that
// users see, in the order of the help, with underscores.

// Sets the flags that `arguments` (without the program's name) give values to. Boolean flags stand alone or take
// =true/=false. INVALID_ARGUMENT in one line.
absl::Status SetFlags(absl::Span<const char* const> arguments, absl::Span<const char* const> names);

// One paragraph per flag: its name with dashes, its default and its help.
std::string DescribeFlags(absl::Span<const char* const> names);

// "kv_bytes" to "kv-bytes".
std::string WithDashes(absl::string_view name);

}  // namespace quire

#endif  // QUIRE_WORKER_FLAGS_H_
