#ifndef QUIRE_KV_MANAGER_TOKENIZER_DETOKENIZER_H_
#define QUIRE_KV_MANAGER_TOKENIZER_DETOKENIZER_H_

#include <memory>
#include <string>

#include "absl/types/span.h"
#include "kv_manager/tokenizer/tokenizer.h"

namespace quire {

// The text of one sequence as its tokens come. A pure fold over the tokens: the same tokens give the same text, however
// often the sequence is started again. What Push has returned never changes and is whole characters: a character that
// is not complete waits, and becomes U+FFFD only when it can no longer be completed. Time per token does not depend on
// how many came before.
//
// The concatenation of all that Push and Finish return is Tokenizer::Decode(context + tokens) behind what it has in
// common with Decode(context). So behind the prompt "Hello" the token "▁world" gives " world", and at the start of a
// sequence "world". A decoder with byte fallback keeps a run of byte tokens until it ends when the run stands or falls
// as a whole (tokenizer.json), and writes each character at once otherwise (tokenizer.model).
//
// Not thread-safe. Copying forks it. The Tokenizer must outlive it.
class StreamingDetokenizer {
 public:
  // `context`: the prompt, or its end (one visible token is enough to tell that the text goes on).
  StreamingDetokenizer(const Tokenizer& tokenizer, absl::Span<const TokenId> context, bool skip_special_tokens);
  StreamingDetokenizer(const StreamingDetokenizer& other) : stream_(other.stream_->Clone()), echo_(other.echo_) {}
  StreamingDetokenizer& operator=(const StreamingDetokenizer& other);
  StreamingDetokenizer(StreamingDetokenizer&&) = default;
  StreamingDetokenizer& operator=(StreamingDetokenizer&&) = default;

  // The text that `token` completes; often empty inside of a character.
  std::string Push(TokenId token);
  // The text that was kept back. Nothing may be pushed afterwards.
  std::string Finish();

 private:
  // Removes what belongs to the context from the start of `*text`.
  void DropEcho(std::string* text);

  std::unique_ptr<DecodeStream> stream_;
  std::string echo_;  // text of the context that was still kept back when the sequence began
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_DETOKENIZER_H_
