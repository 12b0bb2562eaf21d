// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_LEADERSHIP_CANDIDATE_NAME_H_
#define QUIRE_KV_MANAGER_LEADERSHIP_CANDIDATE_NAME_H_

#include <string>

#include "absl/strings/string_view.h"

namespace quire {

// Returns a name for this process that no other one has: the address where clients reach it, and 16 random hexadecimal
// digits, as in "10.0.0.7:50051_d1d5a3f7b2c4e690". A lease says by this name who holds it.
std::string NewCandidateName(absl::string_view address);

// Returns the address in such a name.
std::string AddressOf(absl::string_view candidate);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_LEADERSHIP_CANDIDATE_NAME_H_
