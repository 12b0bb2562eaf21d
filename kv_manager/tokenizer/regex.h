// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_REGEX_H_
#define QUIRE_KV_MANAGER_TOKENIZER_REGEX_H_

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace quire {

// A part of a text, [begin, end) in bytes. It is a match or the text between two matches.
struct TextSpan {
  size_t begin;
  size_t end;
  bool is_match;
};

// A regular expression of a tokenizer.json, run by PCRE2. Thread-safe.
class Regex {
 public:
  // `pattern` is written in the syntax of Oniguruma, see regex_syntax.h. InvalidArgument when it cannot be compiled.
  static absl::StatusOr<Regex> Compile(std::string_view pattern);

  // Replaces `*spans` by the non-overlapping matches from left to right and the gaps between them. Together they cover
  // `text`, which is valid UTF-8. InvalidArgument when PCRE2 gives up at its backtracking or memory limit.
  absl::Status FindAll(std::string_view text, std::vector<TextSpan>* spans) const;

 private:
  struct Code;  // Owns the compiled pattern.
  struct CodeDeleter {
    void operator()(Code* code) const;
  };
  explicit Regex(std::unique_ptr<Code, CodeDeleter> code) : code_(std::move(code)) {}

  // Finds the first match that starts at `start` or later. Sets *found to false when there is none.
  absl::Status Search(std::string_view text, size_t start, bool* found, TextSpan* match) const;

  std::unique_ptr<Code, CodeDeleter> code_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_REGEX_H_
