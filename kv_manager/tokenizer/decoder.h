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

// One step of the "decoder" of a tokenizer.json. The first steps see whole tokens; ByteLevel and Fuse join all tokens
// to one, so what follows them sees one growing text.
struct DecoderStep {
  enum class Kind { kByteLevel, kByteFallback, kFuse, kStrip, kReplace, kMetaspace, kJoinWithSpaces };

  Kind kind = Kind::kFuse;
  std::string content;                     // Strip: the character; Replace: the new text; Metaspace: the character
  size_t num_start = 0;                    // Strip: how many at most are cut off the start of each token
  size_t num_stop = 0;                     // and off its end
  bool drops_first = false;                // Metaspace: the character is dropped, not replaced, in the first token
  std::shared_ptr<const Pattern> pattern;  // Replace
};

// The decoder of a tokenizer.json as a list of steps. Immutable once it is parsed.
struct Decoder {
  std::vector<DecoderStep> steps;

  // InvalidArgument, naming the JSON path, for an unknown type or a bad value. No decoder (null): tokens are joined
  // with spaces.
  static absl::StatusOr<Decoder> Parse(const JsonValue& json);

  // The bytes that one token stands for in the middle of a text; they may be part of a character.
  std::string BytesOfToken(std::string_view token) const;
};

// Decodes a sequence of tokens as they come. Each step keeps what it may still change: ByteLevel an incomplete
// character, ByteFallback a run of byte tokens (which stands or falls as a whole), Strip what may be the end. A value:
// copying it forks the stream. The Decoder must outlive it.
class DecoderStream {
 public:
  explicit DecoderStream(const Decoder* decoder);

  // Appends the text that is now final.
  void Push(std::string_view token, std::string* out);
  // Ends the sequence and appends the rest; nothing may be pushed afterwards.
  void Finish(std::string* out);

 private:
  // What one step has kept back.
  struct Stage {
    std::string held;
    size_t num_stripped = 0;
    bool has_begun = false;  // Strip on a joined text: the start is done
    bool has_token = false;  // a token has passed
    Utf8Assembler assembler{Utf8Assembler::OnInvalid::kReplaceSubpart};
  };

  void PushToken(size_t step, std::string_view token, std::string* out);
  void FlushBytes(size_t step, std::string* out);
  void PushText(size_t step, std::string_view text, std::string* out);
  void FinishStep(size_t step, std::string* out);
  void StripText(size_t step, std::string_view text, std::string* out);
  void ReplaceText(size_t step, std::string_view text, std::string* out);

  const Decoder* decoder_;
  size_t num_token_steps_;     // the steps before this one see tokens; it joins them (or is the end of the list)
  std::vector<Stage> stages_;  // [steps.size()]
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_DECODER_H_
