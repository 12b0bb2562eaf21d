// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KV_MANAGER_REQUESTS_TOY_TOKENIZER_H_
#define QUIRE_TESTS_KV_MANAGER_REQUESTS_TOY_TOKENIZER_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "kv_manager/tokenizer/tokenizer.h"
#include "kv_manager/tokenizer/user_text.h"

namespace quire {

// A tokenizer that is easy to understand: token 0 is "<s>" and 1 is "</s>", both special; token 2 + b is the byte b;
// from 258 on come the given pieces. Encoding takes the longest piece that fits, else a byte. With
// parse_special_tokens, text that spells a special token becomes that token, unless it touches the text of a user.
class ToyTokenizer : public Tokenizer {
 public:
  static constexpr TokenId kBos = 0;
  static constexpr TokenId kEos = 1;
  static constexpr TokenId Byte(char c) { return 2 + static_cast<unsigned char>(c); }

  explicit ToyTokenizer(std::vector<std::string> more_pieces = {}) : pieces_{"<s>", "</s>"} {
    for (int b = 0; b < 256; ++b) pieces_.push_back(std::string(1, static_cast<char>(b)));
    for (std::string& piece : more_pieces) pieces_.push_back(std::move(piece));
  }

  absl::StatusOr<std::vector<TokenId>> Encode(std::string_view text, const EncodeOptions& options) const override {
    if (absl::Status status = CheckUtf8(text, "text"); !status.ok()) return status;
    std::vector<TokenId> tokens;
    if (options.add_special_tokens) tokens.push_back(kBos);
    const size_t num_bytes = text.size();
    while (!text.empty()) {
      const size_t pos = num_bytes - text.size();
      TokenId best = Byte(text[0]);
      for (const TokenId special : {kBos, kEos}) {
        const size_t size = pieces_[special].size();
        if (!options.parse_special_tokens || Overlaps(options.user_ranges, pos, pos + size)) continue;
        if (text.substr(0, size) == pieces_[special]) best = special;
      }
      for (TokenId id = 258; id < static_cast<TokenId>(pieces_.size()); ++id) {
        if (text.substr(0, pieces_[id].size()) == pieces_[id] && pieces_[id].size() > pieces_[best].size()) best = id;
      }
      tokens.push_back(best);
      text.remove_prefix(pieces_[best].size());
    }
    return tokens;
  }

  std::unique_ptr<DecodeStream> NewDecodeStream(bool skip_special_tokens) const override {
    return std::make_unique<Stream>(this, skip_special_tokens);
  }

  absl::StatusOr<std::string_view> TokenPiece(TokenId id) const override {
    if (id < 0 || id >= static_cast<TokenId>(pieces_.size())) return absl::NotFoundError("no such token");
    return std::string_view(pieces_[id]);
  }
  std::string TokenBytes(TokenId id) const override { return pieces_[id]; }
  std::optional<TokenId> TokenToId(std::string_view) const override { return std::nullopt; }
  bool IsSpecial(TokenId id) const override { return id == kBos || id == kEos; }
  size_t vocab_size() const override { return pieces_.size(); }
  std::optional<TokenId> bos_id() const override { return kBos; }
  std::optional<TokenId> eos_id() const override { return kEos; }

 private:
  class Stream : public DecodeStream {
   public:
    Stream(const ToyTokenizer* tokenizer, bool skip_special_tokens)
        : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}

    void Push(TokenId token, std::string* out) override {
      if (skip_special_tokens_ && tokenizer_->IsSpecial(token)) return;
      if (token < static_cast<TokenId>(tokenizer_->pieces_.size())) assembler_.Append(tokenizer_->pieces_[token], out);
    }
    void Finish(std::string* out) override { assembler_.Finish(out); }
    std::unique_ptr<DecodeStream> Clone() const override { return std::make_unique<Stream>(*this); }

   private:
    const ToyTokenizer* tokenizer_;
    bool skip_special_tokens_;
    Utf8Assembler assembler_{Utf8Assembler::OnInvalid::kReplaceSubpart};
  };

  std::vector<std::string> pieces_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_KV_MANAGER_REQUESTS_TOY_TOKENIZER_H_
