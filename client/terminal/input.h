// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_TERMINAL_INPUT_H_
#define QUIRE_CLIENT_TERMINAL_INPUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace quire {

// Returns the argument, or all of standard input when the argument is "-". When standard input is a terminal, a line on
// standard error asks for it first. INVALID_ARGUMENT names the argument by
// `name` when the text is not UTF-8.
absl::StatusOr<std::string> ReadText(const std::string& argument, const std::string& name);

// Parses token ids from arguments such as {"1", "2,3"}, or from standard input for {"-"}. Ids are separated by spaces,
// newlines or commas. The JSON of `quirectl tokenize -o json` is accepted as well.
absl::StatusOr<std::vector<uint32_t>> ReadTokenIds(const std::vector<std::string>& arguments);

}  // namespace quire

#endif  // QUIRE_CLIENT_TERMINAL_INPUT_H_
