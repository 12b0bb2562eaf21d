// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/sentencepiece_tokenizer.h"

#include <algorithm>
#include <cfloat>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "base/utf8.h"
#include "kv_manager/tokenizer/encode_stop.h"
#include "kv_manager/tokenizer/sentencepiece_bpe.h"
#include "kv_manager/tokenizer/sentencepiece_model.h"
#include "kv_manager/tokenizer/sentencepiece_normalizer.h"
#include "kv_manager/tokenizer/sentencepiece_vocabulary.h"
#include "kv_manager/tokenizer/unigram_lattice.h"
#include "kv_manager/tokenizer/user_text.h"

namespace quire {
namespace {

using Type = SentencePieceModel::Type;

constexpr float kUnkPenalty = 10.0f;  // below the worst score of the vocabulary

UnigramLattice MakeLattice(const SentencePieceVocabulary& vocabulary) {
  float min_score = FLT_MAX;
  for (size_t id = 0; id < vocabulary.size(); ++id) {
    const auto& piece = vocabulary.piece(static_cast<TokenId>(id));
    if (piece.type != Type::kNormal) continue;
    min_score = std::min(min_score, piece.score);
  }
  std::vector<UnigramLattice::Piece> pieces;
  for (size_t id = 0; id < vocabulary.size(); ++id) {
    const auto& piece = vocabulary.piece(static_cast<TokenId>(id));
    double score = piece.score;
    if (piece.type == Type::kUserDefined) {
      // It is chosen for being better than any other piece, and a longer one before a shorter one.
      score = static_cast<float>(0.1 * (static_cast<double>(piece.text.size()) - 1));
    } else if (piece.type != Type::kNormal) {
      continue;
    }
    pieces.push_back({piece.text, static_cast<TokenId>(id), score});
  }
  return UnigramLattice(pieces, vocabulary.unk(), min_score - kUnkPenalty, UnigramLattice::Arithmetic::kSingle);
}

SentencePieceBpe MakeBpe(const SentencePieceVocabulary* vocabulary) {
  const auto lookup = [vocabulary](std::string_view text) -> SentencePieceBpe::Merged {
    const TokenId id = vocabulary->FindText(text);
    if (id < 0) return {-1, 0, false};
    return {id, vocabulary->piece(id).score, vocabulary->type(id) == Type::kUnused};
  };
  return SentencePieceBpe(lookup, &vocabulary->user_defined());
}

std::string TextOfPiece(std::string_view piece) {
  return absl::StrReplaceAll(absl::string_view(piece.data(), piece.size()),
                             {{absl::string_view(kSpaceSymbol.data(), kSpaceSymbol.size()), " "}});
}

class SentencePieceTokenizer : public Tokenizer {
 public:
  // `plain` is the normalizer of parts that get no space in front.
  SentencePieceTokenizer(SentencePieceModel model, std::unique_ptr<SentencePieceVocabulary> vocabulary,
                         SentencePieceNormalizer normalizer, SentencePieceNormalizer plain,
                         const TokenizerConfig& config, SpacePrefix prefix)
      : model_(std::move(model)),
        vocabulary_(std::move(vocabulary)),
        normalizer_(std::move(normalizer)),
        plain_normalizer_(std::move(plain)),
        prefix_(prefix) {
    if (model_.algorithm == SentencePieceModel::Algorithm::kBpe) {
      segmenter_.emplace<SentencePieceBpe>(MakeBpe(vocabulary_.get()));
    } else {
      segmenter_.emplace<UnigramLattice>(MakeLattice(*vocabulary_));
    }
    bos_id_ = FindControl(config.bos_token.value_or(model_.bos_piece));
    eos_id_ = FindControl(config.eos_token.value_or(model_.eos_piece));
    adds_bos_ = config.add_bos_token.value_or(true);
    adds_eos_ = config.add_eos_token.value_or(false);
  }

  absl::StatusOr<std::vector<TokenId>> Encode(std::string_view text, const EncodeOptions& options) const override {
    const EncodeStop stop(options.has_left);
    QUIRE_RETURN_IF_ERROR(CheckUtf8(text, "text"));
    std::vector<TokenId> tokens;
    if (options.add_special_tokens && adds_bos_ && bos_id_.has_value()) tokens.push_back(*bos_id_);
    size_t covered = 0;
    for (size_t pos = 0; options.parse_special_tokens && pos < text.size();) {
      const auto [num_bytes, id] = FindSpecial(text, pos, options.user_ranges);
      if (num_bytes == 0) {
        pos += Utf8Length(text[pos]);
        continue;
      }
      QUIRE_RETURN_IF_ERROR(EncodePlain(text, {covered, pos}, options.user_ranges, &tokens));
      tokens.push_back(id);
      covered = pos += num_bytes;
    }
    QUIRE_RETURN_IF_ERROR(EncodePlain(text, {covered, text.size()}, options.user_ranges, &tokens));
    QUIRE_RETURN_IF_ERROR(stop.status());
    if (options.add_special_tokens && adds_eos_ && eos_id_.has_value()) tokens.push_back(*eos_id_);
    return tokens;
  }

  std::unique_ptr<DecodeStream> NewDecodeStream(bool skip_special_tokens) const override;

  absl::StatusOr<std::string_view> TokenPiece(TokenId id) const override {
    if (Contains(id)) return std::string_view(vocabulary_->piece(id).text);
    return absl::NotFoundError(absl::StrCat("token ", id, " does not exist, the vocabulary has ", vocab_size()));
  }

  std::string TokenBytes(TokenId id) const override {
    if (!Contains(id)) return "";
    if (vocabulary_->type(id) == Type::kByte) return std::string(1, vocabulary_->byte(id));
    const std::string& piece = vocabulary_->piece(id).text;
    return IsSpecial(id) ? piece : TextOfPiece(piece);
  }

  std::optional<TokenId> TokenToId(std::string_view piece) const override {
    const TokenId id = vocabulary_->FindAny(piece);
    if (id < 0) return std::nullopt;
    return id;
  }

  bool IsSpecial(TokenId id) const override {
    return Contains(id) && (vocabulary_->type(id) == Type::kControl || vocabulary_->type(id) == Type::kUnknown);
  }

  size_t vocab_size() const override { return vocabulary_->size(); }
  std::optional<TokenId> bos_id() const override { return bos_id_; }
  std::optional<TokenId> eos_id() const override { return eos_id_; }

  bool Contains(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < vocabulary_->size(); }
  const SentencePieceModel& model() const { return model_; }
  const SentencePieceVocabulary& vocabulary() const { return *vocabulary_; }
  // Returns whether a text may begin with a space that nobody has written.
  bool has_prefix() const { return prefix_ != SpacePrefix::kNone; }

 private:
  std::optional<TokenId> FindControl(std::string_view piece) const {
    const TokenId id = vocabulary_->FindAny(piece);
    if (id < 0 || vocabulary_->type(id) != Type::kControl) return std::nullopt;
    return id;
  }

  // Returns (num_bytes, id) of the longest special piece at `pos` that does not touch the text of a user.
  std::pair<size_t, TokenId> FindSpecial(std::string_view text, size_t pos, absl::Span<const ByteRange> user) const {
    std::pair<size_t, TokenId> longest = {0, -1};
    vocabulary_->special().ForEachPrefix(text.substr(pos), [&](size_t num_bytes, TokenId id) {
      if (!Overlaps(user, pos, pos + num_bytes)) longest = {num_bytes, id};
    });
    return longest;
  }

  // Encodes a part of `text` that has no special pieces.
  absl::Status EncodePlain(std::string_view text, ByteRange part, absl::Span<const ByteRange> user,
                           std::vector<TokenId>* tokens) const {
    text = text.substr(part.begin, part.end - part.begin);
    const SentencePieceNormalizer& normalizer = GetsSpace(text, part.begin) ? normalizer_ : plain_normalizer_;
    const auto normalize = [&](std::string_view raw) { return normalizer.Normalize(raw, vocabulary_->user_defined()); };
    QUIRE_ASSIGN_OR_RETURN(const std::string normalized, normalize(text));
    std::vector<ByteRange> normalized_user;
    if (!user.empty()) {
      QUIRE_ASSIGN_OR_RETURN(normalized_user,
                             AlignUserRanges(text, Clip(user, part.begin, part.end), normalized, normalize));
    }
    bool is_after_unk = false;
    AppendPieces(normalized, normalized_user, &is_after_unk, tokens);
    return absl::OkStatus();
  }

  // Returns whether a part of a text at `begin` gets a space in front.
  bool GetsSpace(std::string_view part, size_t begin) const {
    if (prefix_ == SpacePrefix::kAsInFile) return true;  // The normalizer knows whether there is one.
    const bool has_space = part.substr(0, 1) == " " || part.substr(0, kSpaceSymbol.size()) == kSpaceSymbol;
    return prefix_ != SpacePrefix::kNone && !has_space && (begin == 0 || prefix_ == SpacePrefix::kEveryPart);
  }

  // Appends the pieces of a normalised text. Where users have written a user-defined piece, it is encoded in two parts,
  // and where they have written a control piece, it is ordinary text.
  void AppendPieces(std::string_view text, absl::Span<const ByteRange> user, bool* is_after_unk,
                    std::vector<TokenId>* tokens) const {
    for (const UnigramLattice::Segment& segment : Segments(text)) {
      const std::string_view piece = text.substr(segment.begin, segment.end - segment.begin);
      const size_t first = Utf8Length(piece.front());
      if (vocabulary_->type(segment.id) == Type::kUserDefined && first < piece.size() && !IsOnlySpace(piece) &&
          Overlaps(user, segment.begin, segment.end)) {
        const ByteRange whole{0, piece.size()};
        AppendPieces(piece.substr(0, first), {&whole, 1}, is_after_unk, tokens);
        AppendPieces(piece.substr(first), {&whole, 1}, is_after_unk, tokens);
      } else if (vocabulary_->type(segment.id) == Type::kControl && Overlaps(user, segment.begin, segment.end)) {
        const TokenId text_id = vocabulary_->FindText(piece);
        AppendToken(piece, text_id >= 0 ? text_id : vocabulary_->unk(), is_after_unk, tokens);
      } else {
        AppendToken(piece, segment.id, is_after_unk, tokens);
      }
    }
  }

  void AppendToken(std::string_view piece, TokenId id, bool* is_after_unk, std::vector<TokenId>* tokens) const {
    const bool is_unk = id == vocabulary_->unk();
    if (is_unk && vocabulary_->has_bytes()) {
      for (const char c : piece) tokens->push_back(vocabulary_->byte_token(static_cast<unsigned char>(c)));
    } else if (!is_unk || !*is_after_unk) {
      tokens->push_back(id);
    }
    *is_after_unk = is_unk;
  }

  std::vector<UnigramLattice::Segment> Segments(std::string_view text) const {
    if (const auto* lattice = std::get_if<UnigramLattice>(&segmenter_)) return lattice->FindBest(text);
    std::vector<UnigramLattice::Segment> segments;
    if (const auto* bpe = std::get_if<SentencePieceBpe>(&segmenter_)) {
      for (const std::string_view piece : bpe->Segment(text)) {
        const TokenId id = vocabulary_->FindAny(piece);
        const size_t begin = piece.data() - text.data();
        // A piece that is still unused is a single character, which counts as unknown.
        const bool is_unknown = id < 0 || vocabulary_->type(id) == Type::kUnused;
        segments.push_back({begin, begin + piece.size(), is_unknown ? vocabulary_->unk() : id});
      }
    }
    return segments;
  }

  SentencePieceModel model_;
  std::unique_ptr<SentencePieceVocabulary> vocabulary_;
  SentencePieceNormalizer normalizer_;
  SentencePieceNormalizer plain_normalizer_;
  SpacePrefix prefix_;
  std::variant<std::monostate, UnigramLattice, SentencePieceBpe> segmenter_;
  std::optional<TokenId> bos_id_;
  std::optional<TokenId> eos_id_;
  bool adds_bos_;
  bool adds_eos_;
};

class SentencePieceDecodeStream : public DecodeStream {
 public:
  SentencePieceDecodeStream(const SentencePieceTokenizer* tokenizer, bool skip_special_tokens)
      : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}

  void Push(TokenId token, std::string* out) override {
    if (!tokenizer_->Contains(token)) return;
    const SentencePieceVocabulary& vocabulary = tokenizer_->vocabulary();
    std::string text;
    if (vocabulary.type(token) == Type::kByte) {
      assembler_.Append(std::string_view(&(byte_ = vocabulary.byte(token)), 1), &text);
    } else {
      assembler_.Finish(&text);
      Emit(&text, out);
      // The space of the dummy prefix is dropped once, and only when nothing has been written before.
      if (has_dropped_space_ || has_text_) is_at_start_ = false;
      text = DecodePiece(token);
    }
    Emit(&text, out);
  }

  void Finish(std::string* out) override {
    std::string text;
    assembler_.Finish(&text);
    Emit(&text, out);
  }

  std::unique_ptr<DecodeStream> Clone() const override { return std::make_unique<SentencePieceDecodeStream>(*this); }

 private:
  void Emit(std::string* text, std::string* out) {
    has_text_ = has_text_ || !text->empty();
    out->append(*text);
    text->clear();
  }

  std::string DecodePiece(TokenId token) {
    const SentencePieceModel& model = tokenizer_->model();
    const auto& piece = tokenizer_->vocabulary().piece(token);
    has_dropped_space_ = false;
    if (piece.type == Type::kControl) return skip_special_tokens_ ? "" : piece.text;
    if (piece.type == Type::kUnknown) return model.unk_surface;
    std::string_view text = piece.text;
    if (is_at_start_ && tokenizer_->has_prefix() && (model.add_dummy_prefix || model.remove_extra_whitespaces) &&
        text.substr(0, kSpaceSymbol.size()) == kSpaceSymbol) {
      text.remove_prefix(kSpaceSymbol.size());
      // When the model removes extra spaces, all leading spaces are dropped.
      has_dropped_space_ = !model.remove_extra_whitespaces;
    }
    return TextOfPiece(text);
  }

  const SentencePieceTokenizer* tokenizer_;
  bool skip_special_tokens_;
  Utf8Assembler assembler_{Utf8Assembler::OnInvalid::kReplaceByte};
  char byte_ = 0;
  bool is_at_start_ = true;         // The dummy prefix may still come.
  bool has_dropped_space_ = false;  // The last piece has dropped a space.
  bool has_text_ = false;
};

std::unique_ptr<DecodeStream> SentencePieceTokenizer::NewDecodeStream(bool skip_special_tokens) const {
  return std::make_unique<SentencePieceDecodeStream>(this, skip_special_tokens);
}

// Adds the tokens that other files have in addition to the pieces. Special ones become control pieces, and the others
// user-defined ones.
absl::Status AddTokens(const TokenizerConfig& config, SentencePieceModel* model) {
  for (const AddedToken& token : config.added_tokens) {
    const auto bad = [&](std::string_view what) {
      return absl::InvalidArgumentError(absl::StrCat(
          config.is_legacy ? "added_tokens.json" : "tokenizer_config.json: added_tokens_decoder", ": token ", token.id,
          " is \"", token.content, "\", ", absl::string_view(what.data(), what.size())));
    };
    const auto id = static_cast<size_t>(token.id);
    if (id < model->pieces.size()) {
      SentencePieceModel::Piece& piece = model->pieces[id];
      const bool is_text = piece.type == Type::kNormal || piece.type == Type::kUserDefined;
      if (piece.text == token.content && is_text && token.special) piece.type = Type::kControl;
      if (piece.text != token.content && TextOfPiece(piece.text) != token.content) {
        return bad(absl::StrCat("but tokenizer.model has \"", piece.text, "\" there"));
      }
      continue;
    }
    if (id > model->pieces.size()) return bad(absl::StrCat("but there is no token ", model->pieces.size()));
    if (token.lstrip || token.rstrip || token.single_word) {
      return bad("and has lstrip, rstrip or single_word, which need a tokenizer.json");
    }
    model->pieces.push_back({token.content, 0, token.special ? Type::kControl : Type::kUserDefined});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadSentencePieceTokenizer(std::string_view tokenizer_model,
                                                                      const TokenizerConfig& config,
                                                                      SpacePrefix prefix) {
  QUIRE_ASSIGN_OR_RETURN(SentencePieceModel model, SentencePieceModel::Parse(tokenizer_model));
  QUIRE_RETURN_IF_ERROR(AddTokens(config, &model));
  QUIRE_ASSIGN_OR_RETURN(auto vocabulary, SentencePieceVocabulary::Create(model));
  QUIRE_ASSIGN_OR_RETURN(SentencePieceNormalizer normalizer,
                         SentencePieceNormalizer::Create(model, model.add_dummy_prefix));
  QUIRE_ASSIGN_OR_RETURN(SentencePieceNormalizer plain, SentencePieceNormalizer::Create(model, false));
  return std::make_unique<SentencePieceTokenizer>(std::move(model), std::move(vocabulary), std::move(normalizer),
                                                  std::move(plain), config, prefix);
}

}  // namespace quire
