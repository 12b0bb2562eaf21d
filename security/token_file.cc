// SPDX-License-Identifier: Apache-2.0

#include "security/token_file.h"

#include <openssl/crypto.h>

#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace quire {
namespace {

constexpr char kForm[] = "it must be TENANT SHA256 or TENANT SHA256 admin";

}  // namespace

absl::StatusOr<TokenTable> TokenTable::Parse(absl::string_view text) {
  TokenTable table;
  std::map<Sha256Digest, int> lines;  // Where each digest is.
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    const std::vector<absl::string_view> words = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    const bool is_admin = words.size() == 3 && words[2] == "admin";
    if (words.size() == 3 && !is_admin)
      return InvalidArgument("line ", number, " has a third word that is not admin, ", kForm);
    if (words.size() != 2 && !is_admin)
      return InvalidArgument("line ", number, " has ", words.size(), " words, ", kForm);
    if (!IsTenantName(words[0])) {
      return InvalidArgument("line ", number, " has a tenant of ", words[0].size(), " bytes, it must be at most ",
                             kMaxTenantBytes, " visible ASCII characters");
    }
    const absl::string_view hex = words[1];
    const std::optional<Sha256Digest> digest = ParseSha256(hex);
    if (!digest.has_value()) {
      return InvalidArgument("line ", number, " has a digest of ", hex.size(),
                             " characters, it must be 64 hexadecimal digits");
    }
    if (table.entries_.size() == kMaxTokens)
      return InvalidArgument("line ", number, " is one too many, the limit is ", kMaxTokens);
    const auto [first, is_new] = lines.emplace(*digest, number);
    if (!is_new) return InvalidArgument("line ", number, " has the digest of line ", first->second);
    table.entries_.push_back({*digest, {.tenant = std::string(words[0]), .is_admin = is_admin}});
  }
  return table;
}

std::optional<Caller> TokenTable::Find(absl::string_view token) const {
  const Sha256Digest digest = Sha256(token);
  // Every entry is compared, and in full, so that the time does not depend on the token.
  const Entry* found = nullptr;
  for (const Entry& entry : entries_) {
    if (CRYPTO_memcmp(entry.digest.data(), digest.data(), digest.size()) == 0) found = &entry;
  }
  return found == nullptr ? std::nullopt : std::optional(found->caller);
}

absl::StatusOr<std::shared_ptr<TokenFile>> TokenFile::Open(const std::string& path,
                                                           std::chrono::milliseconds interval) {
  std::shared_ptr<TokenFile> tokens(new TokenFile());
  absl::StatusOr<std::unique_ptr<WatchedFile>> file =
      WatchedFile::Open({.flag = "tokens",
                         .contents = "tokens",
                         .path = path,
                         .read = [self = tokens.get()](absl::string_view text) { return self->Read(text); },
                         .interval = interval});
  if (!file.ok()) return file.status();
  tokens->file_ = *std::move(file);
  return tokens;
}

absl::Status TokenFile::Read(absl::string_view text) {
  QUIRE_ASSIGN_OR_RETURN(TokenTable table, TokenTable::Parse(text));
  const MutexLock lock(&mutex_);
  table_ = std::make_shared<const TokenTable>(std::move(table));
  ++num_tables_;
  return absl::OkStatus();
}

std::shared_ptr<const TokenTable> TokenFile::Current() const {
  const MutexLock lock(&mutex_);
  return table_;
}

uint64_t TokenFile::num_tables() const {
  const MutexLock lock(&mutex_);
  return num_tables_;
}

std::optional<Caller> TokenFile::Find(absl::string_view token) const {
  return Current()->Find(token);
}

}  // namespace quire
