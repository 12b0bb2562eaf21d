// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TEXT_OUTPUT_TEXT_H_
#define QUIRE_KV_MANAGER_TEXT_OUTPUT_TEXT_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "kv_manager/text/stop_string_matcher.h"
#include "kv_manager/tokenizer/detokenizer.h"
#include "kv_manager/tokenizer/tokenizer.h"

namespace quire {

// The part of the generated text that a caller wants. The values have been checked.
struct OutputOptions {
  std::vector<std::string> stop = {};    // Generation ends when the text contains one of these.
  std::vector<TokenId> end_tokens = {};  // Tokens that end generation: eos and stop tokens. Sorted.
  int min_tokens = 0;                    // A stop string that an earlier token completes is ordinary text.
  bool include_stop = false;             // The text includes the stop string or the end token.
  bool skip_special_tokens = true;
};

// Makes the text of one sample, token by token. The appended pieces together are what the tokenizer decodes from the
// generated tokens in their place behind the prompt, cut at the first stop string. Text that may still become a stop
// string, and bytes that are not yet a whole character, are held back. A special token that is skipped has no text, but
// its name can complete, begin or be a stop string. Not thread-safe.
class OutputText {
 public:
  // `tokenizer` is borrowed; when it is null, there is no text. Unless `prompt_text` is null, it is set to the decoded
  // prompt without a last character that the prompt leaves incomplete. The generated text continues from there, as if
  // both had been decoded together.
  OutputText(const Tokenizer* tokenizer, const std::vector<TokenId>& prompt, OutputOptions options,
             std::string* prompt_text);

  // Reads the next generated token. Returns the stop string that it completes; after that Append must not be called.
  std::optional<std::string> Append(TokenId token, std::string* text);

  // Returns how many code points the tokens so far have made. Those that are held back count.
  size_t num_code_points() const { return num_code_points_; }

  // No token follows: appends what was held back. Returns the stop string that this completes, if any.
  std::optional<std::string> Finish(std::string* text);

 private:
  // Earlier matches are ordinary text.
  bool may_match() const { return num_tokens_ >= options_->min_tokens; }
  // Returns the stop string that was matched, if any. It becomes a part of the text if the caller wants it.
  std::optional<std::string> Stop(std::optional<int> match, std::string* text) const;

  const Tokenizer* tokenizer_;  // Borrowed; null if there is no text.
  StopStringMatcher matcher_;
  // All samples of a request share them. The stop strings are moved to the matcher.
  std::shared_ptr<const OutputOptions> options_;
  std::optional<StreamingDetokenizer> detokenizer_;  // Empty when there is no tokenizer.
  int num_tokens_ = 0;
  size_t num_code_points_ = 0;
};

// Returns where each token of a prompt begins in `text`, in code points. The prompt was made from `text`, or decodes to
// it. A token that `text` does not show, such as one that begins a sequence, has the offset of the next token.
std::vector<size_t> PromptTextOffsets(const Tokenizer& tokenizer, const std::vector<TokenId>& prompt,
                                      std::string_view text);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TEXT_OUTPUT_TEXT_H_
