// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_SENTENCEPIECE_TOKENIZER_H_
#define QUIRE_KV_MANAGER_TOKENIZER_SENTENCEPIECE_TOKENIZER_H_

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "kv_manager/tokenizer/tokenizer.h"
#include "kv_manager/tokenizer/tokenizer_config.h"

namespace quire {

// The tokenizer of a tokenizer.model (BPE or unigram). Its results equal the results of the `sentencepiece` library,
// except that the library never parses special tokens. With parse_special_tokens, text that spells a control or unknown
// piece is cut out, and the text on both sides is encoded separately, as a converted tokenizer.json does it. BOS is
// added unless add_bos_token of the config is false, and EOS when add_eos_token is true. Without skip_special_tokens a
// control piece decodes to itself.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadSentencePieceTokenizer(std::string_view tokenizer_model,
                                                                      const TokenizerConfig& config,
                                                                      SpacePrefix prefix);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_SENTENCEPIECE_TOKENIZER_H_
