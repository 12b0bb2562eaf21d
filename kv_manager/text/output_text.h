#ifndef QUIRE_KV_MANAGER_TEXT_OUTPUT_TEXT_H_
#define QUIRE_KV_MANAGER_TEXT_OUTPUT_TEXT_H_

#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "kv_manager/text/stop_string_matcher.h"
#include "kv_manager/tokenizer/detokenizer.h"
#include "kv_manager/tokenizer/tokenizer.h"

namespace quire {

// What a caller wants to see of the generated tokens. Checked.
struct OutputOptions {
  std::vector<std::string> stop;    // Generation ends when the text contains one of these.
  std::vector<TokenId> end_tokens;  // Each ends generation and is its last token: eos and stop tokens. Sorted.
  int min_tokens = 0;               // Stop strings that are completed by an earlier token are ordinary text.
  bool include_stop = false;        // The text includes the stop string or the end token.
  bool skip_special_tokens = true;
};

// The text of one sample, made token by token. What is appended to `text`, joined, is what the tokenizer decodes from
// the generated tokens where they stand, behind the prompt, cut at the first stop string. Held back is what may still
// become a stop string and what is not yet a whole character. Not thread-safe.
class OutputText {
 public:
  // `tokenizer` outlives this; null: there is no text. Unless `prompt_text` is null it is set to the decoded prompt,
  // without a character whose bytes the prompt does not complete: generated text goes on from there as if both had been
  // decoded together.
  OutputText(const Tokenizer* tokenizer, const std::vector<TokenId>& prompt, OutputOptions options,
             std::string* prompt_text);

  // Reads the next generated token. Returns the stop string that it completes; then nothing may be appended any more.
  std::optional<std::string> Append(TokenId token, std::string* text);

  // No token follows: shows what was held back. Returns the stop string that this completes, as Append does.
  std::optional<std::string> Finish(std::string* text);

 private:
  std::optional<std::string> Match(const std::string& piece, std::string* text);

  StopStringMatcher matcher_;
  OutputOptions options_;                            // Without the stop strings, which the matcher has.
  std::optional<StreamingDetokenizer> detokenizer_;  // None without a tokenizer.
  int num_tokens_ = 0;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TEXT_OUTPUT_TEXT_H_
