// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/hf_tokenizer.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "kv_manager/tokenizer/encode_stop.h"
#include "kv_manager/tokenizer/tokenizer_json.h"

namespace quire {
namespace {

class HfTokenizer : public Tokenizer {
 public:
  HfTokenizer(TokenizerJson parts, const TokenizerConfig& config) : parts_(std::move(parts)) {
    size_t size = parts_.model->vocabulary().size();
    for (const AddedToken& token : parts_.added.tokens()) {
      size = std::max(size, static_cast<size_t>(token.id) + 1);
      if (token.special) special_contents_.insert(token.content);
    }
    vocab_size_ = size;
    bos_id_ = FindSpecial(config.bos_token, {"<s>", "<|begin_of_text|>", "<bos>"});
    eos_id_ = FindSpecial(config.eos_token, {"</s>", "<|end_of_text|>", "<eos>", "<|endoftext|>"});
  }

  absl::StatusOr<std::vector<TokenId>> Encode(std::string_view text, const EncodeOptions& options) const override {
    const EncodeStop stop(options.has_left);
    QUIRE_RETURN_IF_ERROR(CheckUtf8(text, "text"));
    QUIRE_ASSIGN_OR_RETURN(
        std::vector<TextPiece> pieces,
        parts_.added.Extract(text, parts_.normalizer.get(), options.parse_special_tokens, options.user_ranges));
    if (parts_.pre_tokenizer != nullptr) QUIRE_RETURN_IF_ERROR(parts_.pre_tokenizer->Split(&pieces));
    std::vector<TokenId> tokens;
    const PostProcessor& around = parts_.post_processor;
    if (options.add_special_tokens) tokens = around.prefix;
    for (const TextPiece& piece : pieces) {
      if (EncodeStop::IsDue()) break;
      if (piece.token != kNoToken) {
        tokens.push_back(piece.token);
      } else if (options.user_ranges.empty()) {
        QUIRE_RETURN_IF_ERROR(parts_.model->Encode(piece.text, &tokens));
      } else {
        QUIRE_RETURN_IF_ERROR(EncodeWithoutControl(piece.text, &tokens));
      }
    }
    QUIRE_RETURN_IF_ERROR(stop.status());
    if (options.add_special_tokens) tokens.insert(tokens.end(), around.suffix.begin(), around.suffix.end());
    return tokens;
  }

  std::unique_ptr<DecodeStream> NewDecodeStream(bool skip_special_tokens) const override;

  absl::StatusOr<std::string_view> TokenPiece(TokenId id) const override {
    if (const AddedToken* added = parts_.added.Find(id)) return std::string_view(added->content);
    const Vocabulary& vocabulary = parts_.model->vocabulary();
    if (vocabulary.Contains(id)) return std::string_view(vocabulary.piece(id));
    return absl::NotFoundError(absl::StrCat("token ", id, " does not exist, the vocabulary has ", vocab_size_));
  }

  std::string TokenBytes(TokenId id) const override {
    if (const AddedToken* added = parts_.added.Find(id)) return added->content;
    const Vocabulary& vocabulary = parts_.model->vocabulary();
    return vocabulary.Contains(id) ? parts_.decoder.BytesOfToken(vocabulary.piece(id)) : std::string();
  }

  std::optional<TokenId> TokenToId(std::string_view piece) const override {
    for (const AddedToken& token : parts_.added.tokens()) {
      if (token.content == piece) return token.id;
    }
    const TokenId id = parts_.model->vocabulary().Find(piece);
    if (id == kNoToken) return std::nullopt;
    return id;
  }

  bool IsSpecial(TokenId id) const override {
    const AddedToken* added = parts_.added.Find(id);
    return added != nullptr && added->special;
  }

  // InvalidArgument if a token that Encode adds around the text does not exist.
  absl::Status CheckAddedAroundText() const {
    for (const std::vector<TokenId>* added : {&parts_.post_processor.prefix, &parts_.post_processor.suffix}) {
      for (const TokenId id : *added) {
        const absl::Status status = TokenPiece(id).status();
        if (!status.ok()) return absl::InvalidArgumentError(absl::StrCat("post_processor: ", status.message()));
      }
    }
    return absl::OkStatus();
  }

  size_t vocab_size() const override { return vocab_size_; }
  std::optional<TokenId> bos_id() const override { return bos_id_; }
  std::optional<TokenId> eos_id() const override { return eos_id_; }

  // Returns the text of a token that the decoder sees, or null when it sees nothing of the token.
  const std::string* DecodedPiece(TokenId id, bool skip_special_tokens) const {
    const Vocabulary& vocabulary = parts_.model->vocabulary();
    const std::string* piece = nullptr;
    if (parts_.added.Find(id) != nullptr) {
      piece = &parts_.added.DecodedContent(id);
    } else if (vocabulary.Contains(id)) {
      piece = &vocabulary.piece(id);
    }
    // As in the reference, the text makes a token special here, not its id.
    if (piece != nullptr && skip_special_tokens && special_contents_.contains(*piece)) return nullptr;
    return piece;
  }
  const Decoder& decoder() const { return parts_.decoder; }

 private:
  // Encodes a word so that no control token comes out of it. The vocabulary itself may have the pieces of control
  // tokens, and then the model finds them in ordinary text. Such a piece is encoded in two parts.
  absl::Status EncodeWithoutControl(std::string_view word, std::vector<TokenId>* tokens) const {
    const auto begin = static_cast<ptrdiff_t>(tokens->size());
    QUIRE_RETURN_IF_ERROR(parts_.model->Encode(word, tokens));
    const auto is_control = [this](TokenId token) {
      return token != parts_.model->unk() && parts_.added.IsControl(token);
    };
    if (std::none_of(tokens->begin() + begin, tokens->end(), is_control)) return absl::OkStatus();
    const std::vector<TokenId> found(tokens->begin() + begin, tokens->end());
    tokens->resize(begin);
    for (const TokenId token : found) {
      const std::string_view piece = parts_.model->vocabulary().piece(token);
      const size_t first = piece.empty() ? 0 : Utf8Length(piece.front());
      const bool is_character = first >= piece.size();
      if (!is_control(token) || (is_character && !IsSpecial(token))) {
        tokens->push_back(token);
        continue;
      }
      if (is_character) {
        return absl::InvalidArgumentError(absl::StrCat("the text of a user has \"", std::string(piece),
                                                       "\", which the vocabulary has only as a control token"));
      }
      QUIRE_RETURN_IF_ERROR(EncodeWithoutControl(piece.substr(0, first), tokens));
      QUIRE_RETURN_IF_ERROR(EncodeWithoutControl(piece.substr(first), tokens));
    }
    return absl::OkStatus();
  }

  // Returns the token that the config names, or else the first special token of `usual`.
  std::optional<TokenId> FindSpecial(const std::optional<std::string>& named,
                                     std::initializer_list<const char*> usual) const {
    if (named.has_value()) return TokenToId(*named);
    for (const char* content : usual) {
      const std::optional<TokenId> id = TokenToId(content);
      if (id.has_value() && IsSpecial(*id)) return id;
    }
    return std::nullopt;
  }

  TokenizerJson parts_;
  absl::flat_hash_set<std::string> special_contents_;
  size_t vocab_size_;
  std::optional<TokenId> bos_id_;
  std::optional<TokenId> eos_id_;
};

class HfDecodeStream : public DecodeStream {
 public:
  HfDecodeStream(const HfTokenizer* tokenizer, bool skip_special_tokens)
      : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens), stream_(&tokenizer->decoder()) {}

  void Push(TokenId token, std::string* out) override {
    const std::string* piece = tokenizer_->DecodedPiece(token, skip_special_tokens_);
    if (piece != nullptr) stream_.Push(*piece, out);
  }
  void Finish(std::string* out) override { stream_.Finish(out); }
  std::unique_ptr<DecodeStream> Clone() const override { return std::make_unique<HfDecodeStream>(*this); }

 private:
  const HfTokenizer* tokenizer_;
  bool skip_special_tokens_;
  DecoderStream stream_;
};

std::unique_ptr<DecodeStream> HfTokenizer::NewDecodeStream(bool skip_special_tokens) const {
  return std::make_unique<HfDecodeStream>(this, skip_special_tokens);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadHfTokenizer(std::string_view tokenizer_json,
                                                           const TokenizerConfig& config, SpacePrefix prefix) {
  QUIRE_ASSIGN_OR_RETURN(TokenizerJson parts, TokenizerJson::Parse(tokenizer_json, config, prefix));
  auto tokenizer = std::make_unique<HfTokenizer>(std::move(parts), config);
  QUIRE_RETURN_IF_ERROR(tokenizer->CheckAddedAroundText());
  return tokenizer;
}

}  // namespace quire
