// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_RESUME_TOKEN_H_
#define QUIRE_KV_MANAGER_REQUESTS_RESUME_TOKEN_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "security/seal_key.h"

namespace quire {

// The content of a resume token. The seal of the token vouches for it.
struct ResumeToken {
  std::string owner;             // See OwnerOf. Only callers of this tenant may use the token.
  std::string name;              // The name of the request.
  uint64_t nonce = 0;            // Tells requests of one name apart.
  int64_t expires_unix_sec = 0;  // The token is not valid from then on.

  bool operator==(const ResumeToken&) const = default;
};

// The token as clients get it: letters, digits, "-" and "_".
std::string EncodeResumeToken(const ResumeToken& token, const SealKey& key);

// INVALID_ARGUMENT when the text is no token, for example because it was cut or one of its letters has changed;
// NOT_FOUND with the reason REQUEST_UNKNOWN when it was not made with this key, and with RESUME_TOKEN_EXPIRED when it
// is too old; PERMISSION_DENIED when it was made for another owner, whether the request exists or not.
absl::StatusOr<ResumeToken> DecodeResumeToken(absl::string_view text, const SealKey& key, const std::string& owner,
                                              int64_t now_unix_sec);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_RESUME_TOKEN_H_
