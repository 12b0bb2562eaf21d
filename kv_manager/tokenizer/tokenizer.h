// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_TOKENIZER_H_
#define QUIRE_KV_MANAGER_TOKENIZER_TOKENIZER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/byte_range.h"
#include "base/ids.h"

namespace quire {

// The contents of a model's tokenizer files. A string is empty when the model has no such file.
struct TokenizerFiles {
  std::string tokenizer_json;   // The file of Hugging Face. It is used when it exists.
  std::string tokenizer_model;  // The file of SentencePiece. It is used otherwise.
  // These name the special tokens, and have further added tokens for a tokenizer.json. Optional.
  std::string tokenizer_config_json;
  std::string special_tokens_map_json = {};
  std::string added_tokens_json = {};
  std::string architecture = {};  // That of the model, such as "LlamaForCausalLM".
};

struct EncodeOptions {
  // Adds the tokens around the prompt that the model was trained with. For most models this is the BOS token in front.
  bool add_special_tokens = true;
  // Says whether text that spells a special token becomes that token. When false, it is ordinary text, which is what
  // untrusted text needs.
  bool parse_special_tokens = true;
  // The parts of the text that come from users: sorted, not empty, not overlapping, and on borders of characters. The
  // text is encoded as a whole, but a token that was added to the vocabulary, special or not, is never found in a place
  // that touches these parts: there it is ordinary text. Only added tokens of nothing but space are found everywhere.
  absl::Span<const ByteRange> user_ranges = {};
  // Says whether nobody waits for the tokens any more: then Encode soon returns CANCELLED. Borrowed. Null: somebody
  // waits.
  const std::function<bool()>* has_left = nullptr;
};

// Decodes tokens one by one into text that is final: text that was appended never changes. All appended text together
// is Tokenizer::Decode of all tokens. Not thread-safe. The Tokenizer must outlive it.
class DecodeStream {
 public:
  virtual ~DecodeStream() = default;

  // Appends the text that `token` completes, in whole characters. A token without a piece appends nothing; models can
  // have more rows than their tokenizer has tokens.
  virtual void Push(TokenId token, std::string* out) = 0;
  // Ends the sequence and appends the text that was kept back. Nothing may be pushed afterwards.
  virtual void Finish(std::string* out) = 0;
  // Returns a copy with the same state, for a sequence that forks.
  virtual std::unique_ptr<DecodeStream> Clone() const = 0;
};

// Turns text into tokens and back, exactly as the `tokenizers` and `sentencepiece` libraries do with the same files.
// Immutable; thread-safe.
class Tokenizer {
 public:
  // InvalidArgument, in one line that names file, place and reason, when the files are missing or broken, or use
  // features that are not supported.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const TokenizerFiles& files);

  virtual ~Tokenizer() = default;

  // InvalidArgument when `text` is not UTF-8 (naming the byte), or has a character that the vocabulary cannot express.
  virtual absl::StatusOr<std::vector<TokenId>> Encode(std::string_view text, const EncodeOptions& options) const = 0;

  // With `skip_special_tokens`, special tokens give no text. Ids outside of the vocabulary never give text. Stops with
  // the token that makes the text longer than `max_bytes`: tokens of one byte each may give a text of any size.
  std::string Decode(absl::Span<const TokenId> tokens, bool skip_special_tokens,
                     size_t max_bytes = std::string::npos) const;
  virtual std::unique_ptr<DecodeStream> NewDecodeStream(bool skip_special_tokens) const = 0;

  // Returns the piece of a token as it is in the vocabulary, or NotFound when there is no such token. Valid as long as
  // this object lives.
  virtual absl::StatusOr<std::string_view> TokenPiece(TokenId id) const = 0;
  // Returns the bytes of a token in the middle of a text. They may be a part of a character: " the" for "\u0120the", a
  // newline for "<0x0A>". A special token has the bytes of its name, and an id without a piece has none.
  virtual std::string TokenBytes(TokenId id) const = 0;
  virtual std::optional<TokenId> TokenToId(std::string_view piece) const = 0;
  virtual bool IsSpecial(TokenId id) const = 0;

  // One more than the largest id.
  virtual size_t vocab_size() const = 0;
  // They are known from tokenizer_config.json, or from the usual names of special tokens.
  virtual std::optional<TokenId> bos_id() const = 0;
  virtual std::optional<TokenId> eos_id() const = 0;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_TOKENIZER_H_
