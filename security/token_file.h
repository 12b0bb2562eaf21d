// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SECURITY_TOKEN_FILE_H_
#define QUIRE_SECURITY_TOKEN_FILE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "base/watched_file.h"
#include "security/caller.h"
#include "security/digest.h"

namespace quire {

// A set of bearer tokens. It stores only the SHA-256 digest of each. A value type.
class TokenTable {
 public:
  static constexpr size_t kMaxTokens = 4096;

  // Reads a table with one token per line: the tenant, the 64 hexadecimal digits of the token's SHA-256 digest, and
  // "admin" if the token belongs to an operator. Skips empty lines and lines that begin with #. Returns
  // INVALID_ARGUMENT with the number of the line when a line is wrong. The message never contains a digest.
  static absl::StatusOr<TokenTable> Parse(absl::string_view text);

  // Returns whose token it is. The time that this takes depends only on the number of tokens.
  std::optional<Caller> Find(absl::string_view token) const;

 private:
  struct Entry {
    Sha256Digest digest;
    Caller caller;
  };

  std::vector<Entry> entries_;
};

// The token table in a file. It is read again when the file changes. Thread-safe.
class TokenFile {
 public:
  // Returns INVALID_ARGUMENT with the path when the file cannot be read or a line is wrong. Afterwards a thread looks
  // at the file after every `interval`.
  static absl::StatusOr<std::shared_ptr<TokenFile>> Open(const std::string& path,
                                                         std::chrono::milliseconds interval = std::chrono::seconds(1));

  // Looks the token up in the table. When the file has been removed, cannot be read or has become wrong, the table
  // stays as it was and the reason is logged. An empty file has no tokens.
  std::optional<Caller> Find(absl::string_view token) const;

  // The number of tables that were read so far. What Find has returned since the last change of this number still
  // holds.
  uint64_t num_tables() const QUIRE_EXCLUDES(mutex_);

  WatchedFile* file() const { return file_.get(); }

 private:
  TokenFile() = default;

  absl::Status Read(absl::string_view text) QUIRE_EXCLUDES(mutex_);
  std::shared_ptr<const TokenTable> Current() const QUIRE_EXCLUDES(mutex_);

  mutable Mutex mutex_;
  std::shared_ptr<const TokenTable> table_ QUIRE_GUARDED_BY(mutex_);
  uint64_t num_tables_ QUIRE_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<WatchedFile> file_;  // Its thread uses the fields above, so it is destroyed first.
};

}  // namespace quire

#endif  // QUIRE_SECURITY_TOKEN_FILE_H_
