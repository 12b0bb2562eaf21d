// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_RESPONSES_TEXT_LOGPROBS_H_
#define QUIRE_GATEWAY_RESPONSES_TEXT_LOGPROBS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gateway/openai/logprobs_json.h"

namespace quire {

// The logprobs of tokens until it is known whether they belong to a text, to thoughts or to a call. Some of the text is
// kept by the parser meanwhile.
class TextLogprobs {
 public:
  void Add(const LogprobList& positions, TokenName name);

  // The tokens up to here belong to something else.
  void Drop() { tokens_.clear(); }
  // The tokens up to here belong to a text that begins with `text`, and before it to tags and white space.
  void DropBefore(absl::string_view text);
  // Returns the entries of the list that a text has, for all tokens up to here.
  std::string Take();

  bool empty() const { return tokens_.empty(); }

 private:
  struct Token {
    std::string text;
    std::string entry = {};  // JSON.
  };

  std::vector<Token> tokens_;
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_RESPONSES_TEXT_LOGPROBS_H_
