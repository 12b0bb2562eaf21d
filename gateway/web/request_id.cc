// SPDX-License-Identifier: Apache-2.0

#include "gateway/web/request_id.h"

#include <algorithm>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace quire {

std::string NewRequestId() {
  static std::random_device* const source = new std::random_device();
  std::string name;
  for (int i = 0; i < 4; ++i) absl::StrAppend(&name, absl::Hex((*source)(), absl::kZeroPad8));
  return name;
}

bool IsRequestId(absl::string_view text) {
  if (text.empty() || text.size() > kMaxRequestIdSize) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("-_.:/", c);
  });
}

}  // namespace quire
