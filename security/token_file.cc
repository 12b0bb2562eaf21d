#include "security/token_file.h"

#include <openssl/crypto.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/read_file.h"
#include "base/status.h"

namespace quire {
namespace {

constexpr int64_t kCheckIntervalUs = 1'000'000;
constexpr size_t kMaxTenantBytes = 128;
constexpr char kForm[] = "it must be TENANT SHA256 or TENANT SHA256 admin";

bool IsTenant(absl::string_view name) {
  return name.size() <= kMaxTenantBytes && std::all_of(name.begin(), name.end(), absl::ascii_isgraph);
}

}  // namespace

absl::StatusOr<TokenTable> TokenTable::Parse(absl::string_view text) {
  TokenTable table;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    const std::vector<absl::string_view> words = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    const bool is_admin = words.size() == 3 && words[2] == "admin";
    if (words.size() != 2 && !is_admin)
      return InvalidArgument("line ", number, " has ", words.size(), " words, ", kForm);
    if (!IsTenant(words[0])) {
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

absl::StatusOr<std::shared_ptr<TokenFile>> TokenFile::Open(const std::string& path, const Clock* clock) {
  std::shared_ptr<TokenFile> file(new TokenFile(path, clock));
  const MutexLock lock(&file->mutex_);
  QUIRE_RETURN_IF_ERROR(file->Read(file->ReadVersion()));
  file->next_check_us_ = clock->NowMicros() + kCheckIntervalUs;
  return file;
}

std::optional<Caller> TokenFile::Find(absl::string_view token) {
  return Current()->Find(token);
}

TokenFile::Version TokenFile::ReadVersion() const {
  struct stat file = {};
  if (stat(path_.c_str(), &file) != 0) return {};
  return {static_cast<int64_t>(file.st_dev), static_cast<int64_t>(file.st_ino), file.st_size, file.st_mtim.tv_sec,
          file.st_mtim.tv_nsec};
}

absl::Status TokenFile::Read(const Version& version) {
  const absl::StatusOr<std::string> text = ReadFile(path_);
  if (!text.ok()) return InvalidArgument(text.status().message());
  // A file that was read is not read again until it changes, even if it is wrong. A file that could not be read is
  // tried again.
  version_ = version;
  absl::StatusOr<TokenTable> table = TokenTable::Parse(*text);
  if (!table.ok()) return InvalidArgument(path_, ": ", table.status().message());
  table_ = std::make_shared<const TokenTable>(*std::move(table));
  return absl::OkStatus();
}

std::shared_ptr<const TokenTable> TokenFile::Current() {
  const MutexLock lock(&mutex_);
  const int64_t now_us = clock_->NowMicros();
  if (now_us < next_check_us_) return table_;
  next_check_us_ = now_us + kCheckIntervalUs;
  const Version version = ReadVersion();
  const std::string previous_error = std::exchange(last_error_, "");
  if (version == version_) return table_;
  const absl::Status status = Read(version);
  last_error_ = std::string(status.message());
  if (status.ok()) {
    QUIRE_LOG(kInfo) << "read the tokens again from " << path_;
  } else if (last_error_ != previous_error) {
    QUIRE_LOG(kError) << "--tokens: " << last_error_ << "; the tokens stay as they were";
  }
  return table_;
}

}  // namespace quire
