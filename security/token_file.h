#ifndef QUIRE_SECURITY_TOKEN_FILE_H_
#define QUIRE_SECURITY_TOKEN_FILE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "security/caller.h"

namespace quire {

// Bearer tokens, each known by its SHA-256 alone. A value.
class TokenTable {
 public:
  static constexpr size_t kMaxTokens = 4096;

  // One token per line: its tenant, the 64 hexadecimal digits of its SHA-256, and "admin" when it is an operator's.
  // Empty lines and those that begin with # are skipped. INVALID_ARGUMENT names the line, and never shows a digest.
  static absl::StatusOr<TokenTable> Parse(absl::string_view text);

  // Whose token it is. How long this takes depends on the number of tokens alone.
  std::optional<Caller> Find(absl::string_view token) const;

 private:
  struct Entry {
    std::array<uint8_t, 32> digest;
    Caller caller;
  };

  std::vector<Entry> entries_;
};

// The token table in a file, which is read again when it has changed. Thread-safe.
class TokenFile {
 public:
  // INVALID_ARGUMENT, with the path, when it cannot be read or a line is wrong. `clock` is borrowed.
  static absl::StatusOr<std::shared_ptr<TokenFile>> Open(const std::string& path, const Clock* clock = &SteadyClock());

  // As of at most a second ago. A file that has gone, cannot be read or has become wrong changes nothing, and is
  // logged; an empty one has no tokens.
  std::optional<Caller> Find(absl::string_view token);

 private:
  // What tells one state of the file from another: device, inode, size, and the time of the last change.
  using Version = std::array<int64_t, 5>;

  TokenFile(std::string path, const Clock* clock) : path_(std::move(path)), clock_(clock) {}

  Version ReadVersion() const;
  // Takes the table and `version`; of a file that is wrong `version` alone, of one that cannot be read nothing.
  absl::Status Read(const Version& version);
  std::shared_ptr<const TokenTable> Current();

  const std::string path_;
  const Clock* const clock_;
  std::mutex mutex_;  // Guards the rest.
  std::shared_ptr<const TokenTable> table_;
  Version version_ = {};
  std::string trouble_;  // Of the last look, so that it is logged once.
  int64_t next_look_us_ = 0;
};

}  // namespace quire

#endif  // QUIRE_SECURITY_TOKEN_FILE_H_
