// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_PRE_TOKENIZER_H_
#define QUIRE_KV_MANAGER_TOKENIZER_PRE_TOKENIZER_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv_manager/tokenizer/json_value.h"
#include "kv_manager/tokenizer/regex.h"
#include "kv_manager/tokenizer/text_piece.h"

namespace quire {

// What happens to a delimiter. Split on "-", the text "the-final--countdown" becomes:
enum class SplitBehavior {
  kRemoved,             // the final countdown
  kIsolated,            // the - final - - countdown
  kMergedWithPrevious,  // the- final- - countdown
  kMergedWithNext,      // the -final - -countdown
  kContiguous,          // the - final -- countdown
};

// Turns matches and gaps into the parts that remain, in order. Parts may be empty.
std::vector<TextSpan> SplitSpans(const std::vector<TextSpan>& spans, SplitBehavior behavior);

// The "pre_tokenizer" of a tokenizer.json. It cuts pieces of text into words, which the model encodes one by one.
// Thread-safe.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;

  // InvalidArgument, naming the JSON path, for an unknown type or a bad value.
  static absl::StatusOr<std::unique_ptr<PreTokenizer>> Parse(const JsonValue& json);

  // Replaces `*pieces` by the words and leaves out empty ones. Pieces that are tokens stay as they are. InvalidArgument
  // when the matching of a pattern gives up. In that case `*pieces` is unspecified.
  virtual absl::Status Split(std::vector<TextPiece>* pieces) const = 0;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_PRE_TOKENIZER_H_
