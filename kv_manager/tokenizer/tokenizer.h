#ifndef QUIRE_KV_MANAGER_TOKENIZER_TOKENIZER_H_
#define QUIRE_KV_MANAGER_TOKENIZER_TOKENIZER_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"

namespace quire {

// The contents of a model's tokenizer files; empty where the model has none.
struct TokenizerFiles {
  std::string tokenizer_json;         // Hugging Face; used when it is there
  std::string tokenizer_model;        // SentencePiece; used otherwise
  std::string tokenizer_config_json;  // names the special tokens; optional
};

struct EncodeOptions {
  // Puts the tokens around the prompt that the model was trained with (for most models: the BOS token in front).
  bool add_special_tokens = true;
  // Whether text that spells a special token becomes that token. False treats it as ordinary text: for text of which
  // the author is not trusted.
  bool parse_special_tokens = true;
};

// Decodes tokens one by one into text that is final. What has been appended so far and what is appended later never
// changes: together it is Tokenizer::Decode of all tokens. Not thread-safe; the Tokenizer must outlive it.
class DecodeStream {
 public:
  virtual ~DecodeStream() = default;

  // Appends the text that `token` completes, whole characters only. A token without a piece (models have more rows than
  // their tokenizer) adds nothing.
  virtual void Push(TokenId token, std::string* out) = 0;
  // Ends the sequence: appends what was kept back. Nothing may be pushed afterwards.
  virtual void Finish(std::string* out) = 0;
  // A copy with the same state, for a sequence that forks.
  virtual std::unique_ptr<DecodeStream> Clone() const = 0;
};

// Turns text into tokens and back, exactly as the `tokenizers` and `sentencepiece` libraries do with the same files.
// Immutable; thread-safe.
class Tokenizer {
 public:
  // InvalidArgument, in one line that names file, place and reason, when the files are missing, broken, or use what is
  // not supported.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const TokenizerFiles& files);

  virtual ~Tokenizer() = default;

  // InvalidArgument when `text` is not UTF-8 (naming the byte), or has a character that the vocabulary cannot express.
  virtual absl::StatusOr<std::vector<TokenId>> Encode(std::string_view text, const EncodeOptions& options) const = 0;

  // With `skip_special_tokens` special tokens leave no text. Ids outside of the vocabulary leave none either.
  std::string Decode(absl::Span<const TokenId> tokens, bool skip_special_tokens) const;
  virtual std::unique_ptr<DecodeStream> NewDecodeStream(bool skip_special_tokens) const = 0;

  // The piece of a token as it is in the vocabulary; NotFound when there is no such token. Valid as long as this lives.
  virtual absl::StatusOr<std::string_view> TokenPiece(TokenId id) const = 0;
  // The bytes that a token stands for in the middle of a text, which may be part of a character: " the" for
  // "\u0120the", a newline for "<0x0A>". A special token stands for its name, an id without a piece for nothing.
  virtual std::string TokenBytes(TokenId id) const = 0;
  virtual std::optional<TokenId> TokenToId(std::string_view piece) const = 0;
  virtual bool IsSpecial(TokenId id) const = 0;

  // One more than the largest id.
  virtual size_t vocab_size() const = 0;
  // Known from tokenizer_config.json, or from the usual names of special tokens.
  virtual std::optional<TokenId> bos_id() const = 0;
  virtual std::optional<TokenId> eos_id() const = 0;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_TOKENIZER_H_
