// SPDX-License-Identifier: Apache-2.0

#include "client/library/bearer_token.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace quire {

absl::StatusOr<std::string> HeaderToken(absl::string_view token) {
  token = absl::StripTrailingAsciiWhitespace(token);
  if (token.size() > kMaxTokenBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the token has ", token.size(), " bytes, and at most ", kMaxTokenBytes, " are allowed"));
  }
  const auto bad = std::find_if_not(token.begin(), token.end(), [](char c) { return absl::ascii_isprint(c); });
  if (bad == token.end()) return std::string(token);
  return absl::InvalidArgumentError(absl::StrCat("the token has a character that a header cannot carry: byte ",
                                                 bad - token.begin() + 1, " of ", token.size(),
                                                 " is not printable ASCII"));
}

}  // namespace quire
