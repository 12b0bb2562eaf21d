#ifndef QUIRE_CLIENT_INPUT_H_
#define QUIRE_CLIENT_INPUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace quire {

// The text of an argument: itself, or all of standard input as it is when it is "-". INVALID_ARGUMENT under the
// argument's `name` when that is not UTF-8.
absl::StatusOr<std::string> ReadText(const std::string& argument, const std::string& name);

// The token ids of arguments such as {"1", "2,3"}, or those in standard input for {"-"}: separated by spaces, newlines
// or commas.
absl::StatusOr<std::vector<uint32_t>> ReadTokenIds(const std::vector<std::string>& arguments);

}  // namespace quire

#endif  // QUIRE_CLIENT_INPUT_H_
