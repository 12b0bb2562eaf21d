// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/leadership/candidate_name.h"

#include <cstdint>
#include <random>

#include "absl/strings/str_cat.h"

namespace quire {

std::string NewCandidateName(absl::string_view address) {
  std::random_device random;
  const uint64_t number = uint64_t{random()} << 32 | random();
  return absl::StrCat(address, "_", absl::Hex(number, absl::kZeroPad16));
}

std::string AddressOf(absl::string_view candidate) {
  return std::string(candidate.substr(0, candidate.rfind('_')));
}

}  // namespace quire
