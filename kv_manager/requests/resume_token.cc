// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/resume_token.h"

#include <limits>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_reason.h"
#include "kv_manager/requests/token_stream.h"
#include "kv_manager/rpc/rpc_status.h"
#include "security/digest.h"

namespace quire {
namespace {

constexpr absl::string_view kVersion = "1";
// A checksum that needs no key tells a token that was damaged on its way from a token of another key: only the latter
// says that the request does not run here.
constexpr size_t kChecksumBytes = 4;
// Owners and names have at most 128 bytes each.
constexpr size_t kMaxTokenBytes = 1024;

std::string ChecksumOf(absl::string_view sealed) {
  const Sha256Digest digest = Sha256(sealed);
  return std::string(digest.begin(), digest.begin() + kChecksumBytes);
}

// The fields are separated by newlines, which neither owners nor names have.
std::optional<ResumeToken> Parse(const std::string& message) {
  const std::vector<std::string> fields = absl::StrSplit(message, '\n');
  ResumeToken token;
  if (fields.size() != 5 || fields[0] != kVersion || !absl::SimpleAtoi(fields[3], &token.nonce) ||
      !absl::SimpleAtoi(fields[4], &token.expires_unix_sec)) {
    return std::nullopt;
  }
  token.owner = fields[1];
  token.name = fields[2];
  return token;
}

// Without the text, because errors are logged.
absl::Status NotAToken() {
  FieldErrors errors;
  errors.Add("resume_token", "is not a resume token");
  return errors.ToStatus();
}

}  // namespace

std::string EncodeResumeToken(const ResumeToken& token, const SealKey& key) {
  const std::string sealed = key.Seal(
      absl::StrCat(kVersion, "\n", token.owner, "\n", token.name, "\n", token.nonce, "\n", token.expires_unix_sec));
  return absl::WebSafeBase64Escape(absl::StrCat(sealed, ChecksumOf(sealed)));
}

absl::StatusOr<ResumeToken> DecodeResumeToken(absl::string_view text, const SealKey& key, const std::string& owner,
                                              int64_t now_unix_sec) {
  std::string sealed;
  if (text.size() > kMaxTokenBytes || !absl::WebSafeBase64Unescape(text, &sealed)) return NotAToken();
  // The last letter has bits that mean nothing.
  if (sealed.size() <= kChecksumBytes || absl::WebSafeBase64Escape(sealed) != text) return NotAToken();
  const std::string checksum = sealed.substr(sealed.size() - kChecksumBytes);
  sealed.resize(sealed.size() - kChecksumBytes);
  if (ChecksumOf(sealed) != checksum) return NotAToken();
  const std::optional<std::string> message = key.Open(sealed);
  const std::optional<ResumeToken> token = message.has_value() ? Parse(*message) : std::nullopt;
  if (!token.has_value()) return UnknownRequestError();
  if (token->owner != owner) {
    return WithReason(absl::PermissionDeniedError("resume_token: it was made for another tenant"), "NOT_YOUR_TENANT");
  }
  if (token->expires_unix_sec <= now_unix_sec) {
    return WithReason(absl::NotFoundError("resume_token: it has expired"), "RESUME_TOKEN_EXPIRED",
                      {{"resubmit_ok", "false"}});
  }
  return *token;
}

}  // namespace quire
