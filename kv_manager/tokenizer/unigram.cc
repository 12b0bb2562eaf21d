// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/unigram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace quire {
namespace {

constexpr double kUnkPenalty = 10.0;  // below the worst score of the vocabulary

}  // namespace

absl::StatusOr<std::unique_ptr<Unigram>> Unigram::Create(Vocabulary vocabulary, const std::vector<double>& scores,
                                                         Options options) {
  if (options.unk != kNoToken && !vocabulary.Contains(options.unk)) {
    return absl::InvalidArgumentError(
        absl::StrCat("unk_id is ", options.unk, ", the vocabulary has ", vocabulary.size(), " tokens"));
  }
  double min_score = std::numeric_limits<double>::infinity();
  std::vector<UnigramLattice::Piece> pieces;
  for (size_t id = 0; id < vocabulary.size(); ++id) {
    const TokenId token = static_cast<TokenId>(id);
    if (!std::isfinite(scores[id])) {
      return absl::InvalidArgumentError(absl::StrCat("token ", id, " has score ", scores[id]));
    }
    min_score = std::min(min_score, scores[id]);
    pieces.push_back({vocabulary.piece(token), token, scores[id]});
  }
  return std::unique_ptr<Unigram>(new Unigram(std::move(vocabulary), pieces, min_score - kUnkPenalty, options));
}

Unigram::Unigram(Vocabulary vocabulary, const std::vector<UnigramLattice::Piece>& pieces, double unk_score,
                 Options options)
    : vocabulary_(std::move(vocabulary)),
      lattice_(pieces, options.unk, unk_score, UnigramLattice::Arithmetic::kDouble),
      options_(options) {
  for (int byte = 0; byte < 256; ++byte) {
    byte_tokens_.push_back(vocabulary_.Find(absl::StrFormat("<0x%02X>", byte)));
  }
}

absl::Status Unigram::Encode(std::string_view word, std::vector<TokenId>* tokens) const {
  size_t unk_begin = word.size();
  for (const UnigramLattice::Segment& segment : lattice_.FindBest(word)) {
    if (segment.id == options_.unk) {
      unk_begin = std::min(unk_begin, segment.begin);
      continue;
    }
    if (unk_begin < segment.begin) {
      QUIRE_RETURN_IF_ERROR(AppendPiece(word.substr(unk_begin, segment.begin - unk_begin), tokens));
    }
    unk_begin = word.size();
    tokens->push_back(segment.id);
  }
  if (unk_begin < word.size()) return AppendPiece(word.substr(unk_begin), tokens);
  return absl::OkStatus();
}

// Handles a run of unknown characters. The text may spell the unknown token itself.
absl::Status Unigram::AppendPiece(std::string_view piece, std::vector<TokenId>* tokens) const {
  const TokenId id = vocabulary_.Find(piece);
  if (id != kNoToken) {
    tokens->push_back(id);
    return absl::OkStatus();
  }
  const auto token_of = [this](char c) { return byte_tokens_[static_cast<unsigned char>(c)]; };
  const bool has_bytes = std::all_of(piece.begin(), piece.end(), [&](char c) { return token_of(c) != kNoToken; });
  if (options_.byte_fallback && has_bytes) {
    for (const char c : piece) tokens->push_back(token_of(c));
    return absl::OkStatus();
  }
  if (options_.unk == kNoToken) {
    return absl::InvalidArgumentError(
        absl::StrCat(piece.size(), " bytes of text have no token and the model has no unk_id"));
  }
  tokens->push_back(options_.unk);
  return absl::OkStatus();
}

}  // namespace quire
