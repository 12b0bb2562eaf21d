#ifndef QUIRE_SECURITY_TOKEN_FILE_H_
#define QUIRE_SECURITY_TOKEN_FILE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/mutex.h"
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
  // Returns INVALID_ARGUMENT with the path when the file cannot be read or a line is wrong. `clock` must outlive the
  // object.
  static absl::StatusOr<std::shared_ptr<TokenFile>> Open(const std::string& path, const Clock* clock = &SteadyClock());

  // Looks the token up in the table as it was in the file at most a second ago. When the file has been removed, cannot
  // be read or has become wrong, the table stays as it was and the reason is logged. An empty file has no tokens.
  std::optional<Caller> Find(absl::string_view token);

 private:
  // Distinguishes one state of the file from another: device, inode, size, and the time of the last change (seconds and
  // nanoseconds).
  using Version = std::array<int64_t, 5>;

  TokenFile(std::string path, const Clock* clock) : path_(std::move(path)), clock_(clock) {}

  Version ReadVersion() const;
  // Reads the file and replaces table_ and version_. When a line is wrong, only version_ changes; when the file cannot
  // be read, nothing does.
  absl::Status Read(const Version& version) QUIRE_REQUIRES(mutex_);
  std::shared_ptr<const TokenTable> Current() QUIRE_EXCLUDES(mutex_);

  const std::string path_;
  const Clock* const clock_;
  Mutex mutex_;
  std::shared_ptr<const TokenTable> table_ QUIRE_GUARDED_BY(mutex_);
  Version version_ QUIRE_GUARDED_BY(mutex_) = {};
  std::string last_error_ QUIRE_GUARDED_BY(mutex_);  // The error of the last check, which is logged only once.
  int64_t next_check_us_ QUIRE_GUARDED_BY(mutex_) = 0;
};

}  // namespace quire

#endif  // QUIRE_SECURITY_TOKEN_FILE_H_
