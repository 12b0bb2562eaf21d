// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_DECODER_H_
#define QUIRE_KV_MANAGER_TOKENIZER_DECODER_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/utf8.h"
#include "kv_manager/tokenizer/json_value.h"
#include "kv_manager/tokenizer/pattern.h"

namespace quire {

// One step of the "decoder" of a tokenizer.json. The first steps see whole tokens. ByteLevel and Fuse join all tokens
// into one, so the steps after them see one growing text.
struct DecoderStep {
  enum class Kind { kByteLevel, kByteFallback, kFuse, kStrip, kReplace, kMetaspace, kJoinWithSpaces };

  Kind kind = Kind::kFuse;
  std::string content;                     // Strip: the character. Replace: the new text. Metaspace: the character.
  size_t num_start = 0;                    // Strip: limit of characters cut off the start of each token.
  size_t num_stop = 0;                     // Strip: limit of characters cut off the end of each token.
  bool drops_first = false;                // Metaspace: in the first token the character is dropped, not replaced.
  std::shared_ptr<const Pattern> pattern;  // Replace: the pattern that is replaced.
};

// The decoder of a tokenizer.json as a list of steps. Immutable once it is parsed.
struct Decoder {
  std::vector<DecoderStep> steps;

  // InvalidArgument, naming the JSON path, for an unknown type or a bad value. Without a decoder (null), tokens are
  // joined with spaces.
  static absl::StatusOr<Decoder> Parse(const JsonValue& json);

  // Returns the bytes of one token in the middle of a text. They may be a part of a character.
  std::string BytesOfToken(std::string_view token) const;
};

// Decodes a sequence of tokens one by one. Each step keeps back what it may still change: ByteLevel keeps an incomplete
// character, ByteFallback a run of byte tokens (which is valid or invalid as a whole), and Strip what may be the end. A
// DecodeStream is a value: copying it forks the stream. The Decoder must outlive it.
class DecoderStream {
 public:
  explicit DecoderStream(const Decoder* decoder);

  // Appends the text that is now final.
  void Push(std::string_view token, std::string* out);
  // Ends the sequence and appends the rest. Nothing may be pushed afterwards.
  void Finish(std::string* out);

 private:
  // What one step has kept back.
  struct Stage {
    std::string held;
    size_t num_stripped = 0;
    bool has_begun = false;  // Strip on a joined text: the start is done.
    bool has_token = false;  // A token has passed this step.
    Utf8Assembler assembler{Utf8Assembler::OnInvalid::kReplaceSubpart};
  };

  void PushToken(size_t step, std::string_view token, std::string* out);
  void FlushBytes(size_t step, std::string* out);
  void PushText(size_t step, std::string_view text, std::string* out);
  void FinishStep(size_t step, std::string* out);
  void StripText(size_t step, std::string_view text, std::string* out);
  void ReplaceText(size_t step, std::string_view text, std::string* out);

  const Decoder* decoder_;
  size_t num_token_steps_;  // The steps before this one see tokens. This step joins them, or it is the end of the list.
  std::vector<Stage> stages_;  // [steps.size()]
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_DECODER_H_
