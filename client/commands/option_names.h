// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_COMMANDS_OPTION_NAMES_H_
#define QUIRE_CLIENT_COMMANDS_OPTION_NAMES_H_

#include "absl/status/status.h"

namespace quire {

// Returns the error with which the manager has refused a GenerateRequest, with the options of `quirectl generate` in
// place of the fields, also within sentences: "--return is 5, ..." for "beam.num_return_sequences: is 5, ...".
absl::Status WithOptionNames(const absl::Status& status);

}  // namespace quire

#endif  // QUIRE_CLIENT_COMMANDS_OPTION_NAMES_H_
