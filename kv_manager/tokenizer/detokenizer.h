// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_DETOKENIZER_H_
#define QUIRE_KV_MANAGER_TOKENIZER_DETOKENIZER_H_

#include <memory>
#include <string>

#include "absl/types/span.h"
#include "kv_manager/tokenizer/tokenizer.h"

namespace quire {

// The text of one sequence, token by token. The text depends only on the tokens, however often the sequence is started
// again. What Push has returned never changes and consists of whole characters: an incomplete character waits, and
// becomes U+FFFD only when it can no longer be completed. The time per token does not depend on the number of tokens
// before it.
//
// The concatenation of everything that Push and Finish return is Tokenizer::Decode(context + tokens) without the
// beginning that it shares with Decode(context). For example, after the prompt "Hello" the token "▁world" gives "
// world", and at the start of a sequence it gives "world". A decoder with byte fallback of a tokenizer.json keeps a run
// of byte tokens back until the run ends, because it is valid or invalid as a whole. That of a tokenizer.model returns
// each character at once.
//
// Not thread-safe. Copying it forks the text. The Tokenizer must outlive it.
class StreamingDetokenizer {
 public:
  // `context` is the prompt or its end. One visible token is enough to tell that the text continues.
  StreamingDetokenizer(const Tokenizer& tokenizer, absl::Span<const TokenId> context, bool skip_special_tokens);
  StreamingDetokenizer(const StreamingDetokenizer& other) : stream_(other.stream_->Clone()), echo_(other.echo_) {}
  StreamingDetokenizer& operator=(const StreamingDetokenizer& other);
  StreamingDetokenizer(StreamingDetokenizer&&) = default;
  StreamingDetokenizer& operator=(StreamingDetokenizer&&) = default;

  // Returns the text that `token` completes. It is often empty inside a character.
  std::string Push(TokenId token);
  // Returns the text that was kept back. Nothing may be pushed afterwards.
  std::string Finish();

 private:
  // Removes the text that belongs to the context from the start of `*text`.
  void DropEcho(std::string* text);

  std::unique_ptr<DecodeStream> stream_;
  std::string echo_;  // Text of the context that was still kept back when the sequence began.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_DETOKENIZER_H_
