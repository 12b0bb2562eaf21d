// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/normalizer.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "kv_manager/tokenizer/charsmap.h"
#include "kv_manager/tokenizer/pattern.h"
#include "kv_manager/tokenizer/unicode.h"

namespace quire {

namespace {

absl::Status CheckGrowth(size_t num_bytes, const TextPiece& piece) {
  if (num_bytes <= piece.max_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("normalized text has ", num_bytes, " bytes, the limit for this text is ", piece.max_bytes));
}

class SequenceNormalizer : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<std::unique_ptr<Normalizer>> steps) : steps_(std::move(steps)) {}

  absl::Status Normalize(TextPiece* piece) const override {
    for (const auto& step : steps_) QUIRE_RETURN_IF_ERROR(step->Normalize(piece));
    return absl::OkStatus();
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

class PrependNormalizer : public Normalizer {
 public:
  explicit PrependNormalizer(std::string prefix) : prefix_(std::move(prefix)) {}

  absl::Status Normalize(TextPiece* piece) const override {
    if (piece->text.empty()) return absl::OkStatus();
    QUIRE_RETURN_IF_ERROR(CheckGrowth(piece->text.size() + prefix_.size(), *piece));
    piece->Prepend(prefix_);
    return absl::OkStatus();
  }

 private:
  std::string prefix_;
};

class ReplaceNormalizer : public Normalizer {
 public:
  ReplaceNormalizer(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  absl::Status Normalize(TextPiece* piece) const override {
    std::vector<TextSpan> spans;
    QUIRE_RETURN_IF_ERROR(pattern_.FindAll(piece->text, &spans));
    std::string out;
    size_t num_origin_bytes = 0;
    for (const TextSpan& span : spans) {
      // A replacement belongs to the last byte that it replaces.
      const bool is_at_origin = span.is_match && span.end <= piece->num_origin_bytes;
      const std::string_view text = std::string_view(piece->text).substr(span.begin, span.end - span.begin);
      out.append(span.is_match ? std::string_view(content_) : text);
      QUIRE_RETURN_IF_ERROR(CheckGrowth(out.size(), *piece));
      if (is_at_origin) num_origin_bytes = out.size();
      if (!span.is_match && span.begin < piece->num_origin_bytes) {
        num_origin_bytes = out.size() - text.size() + std::min(piece->num_origin_bytes - span.begin, text.size());
      }
    }
    piece->text = std::move(out);
    piece->num_origin_bytes = num_origin_bytes;
    return absl::OkStatus();
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class NormalFormNormalizer : public Normalizer {
 public:
  explicit NormalFormNormalizer(NormalForm form) : form_(form) {}

  absl::Status Normalize(TextPiece* piece) const override {
    const std::string_view origin = std::string_view(piece->text).substr(0, piece->num_origin_bytes);
    const size_t num_origin_bytes = ToNormalForm(form_, origin).size();
    piece->text = ToNormalForm(form_, piece->text);
    piece->num_origin_bytes = std::min(num_origin_bytes, piece->text.size());
    return absl::OkStatus();
  }

 private:
  NormalForm form_;
};

class StripNormalizer : public Normalizer {
 public:
  StripNormalizer(bool strips_left, bool strips_right) : strips_left_(strips_left), strips_right_(strips_right) {}

  absl::Status Normalize(TextPiece* piece) const override {
    const std::string_view text = piece->text;
    size_t begin = text.size();  // The first character that is no whitespace starts here.
    size_t end = 0;              // The position after the last such character.
    for (size_t pos = 0; pos < text.size();) {
      const size_t start = pos;
      if (IsWhitespace(DecodeUtf8(text, &pos))) continue;
      begin = std::min(begin, start);
      end = pos;
    }
    if (!strips_left_) begin = 0;
    if (!strips_right_) end = text.size();
    end = std::max(begin, end);
    piece->text = piece->text.substr(begin, end - begin);
    piece->num_origin_bytes = std::min(piece->num_origin_bytes - std::min(begin, piece->num_origin_bytes), end - begin);
    return absl::OkStatus();
  }

 private:
  bool strips_left_;
  bool strips_right_;
};

class LowercaseNormalizer : public Normalizer {
 public:
  absl::Status Normalize(TextPiece* piece) const override {
    std::string out;
    size_t num_origin_bytes = 0;
    for (size_t pos = 0; pos < piece->text.size();) {
      const bool is_at_origin = pos < piece->num_origin_bytes;
      AppendLowercase(DecodeUtf8(piece->text, &pos), &out);
      if (is_at_origin) num_origin_bytes = out.size();
    }
    piece->text = std::move(out);
    piece->num_origin_bytes = num_origin_bytes;
    return absl::OkStatus();
  }
};

// SentencePiece's rules, applied as in the reference: a short grapheme cluster is looked up as a whole, and a rule for
// its beginning replaces all of it. Everything else is looked up character by character.
class PrecompiledNormalizer : public Normalizer {
 public:
  explicit PrecompiledNormalizer(Charsmap charsmap) : charsmap_(std::move(charsmap)) {}

  absl::Status Normalize(TextPiece* piece) const override {
    const std::string_view text = piece->text;
    std::string out;
    size_t num_origin_bytes = 0;
    for (size_t pos = 0; pos < text.size();) {
      const size_t start = pos;
      pos = NextGraphemeBoundary(text, pos);
      AppendCluster(text.substr(start, pos - start), &out);
      QUIRE_RETURN_IF_ERROR(CheckGrowth(out.size(), *piece));
      if (start < piece->num_origin_bytes) num_origin_bytes = out.size();
    }
    piece->text = std::move(out);
    piece->num_origin_bytes = num_origin_bytes;
    return absl::OkStatus();
  }

 private:
  static constexpr size_t kMaxClusterBytes = 5;

  void AppendCluster(std::string_view cluster, std::string* out) const {
    if (cluster.size() <= kMaxClusterBytes) {
      if (const auto match = charsmap_.FindShortest(cluster)) {
        out->append(match->replacement);
        return;
      }
    }
    for (size_t pos = 0; pos < cluster.size();) {
      const std::string_view character = cluster.substr(pos, Utf8Length(cluster[pos]));
      const auto match = charsmap_.FindShortest(character);
      out->append(match.has_value() ? match->replacement : character);
      pos += character.size();
    }
  }

  Charsmap charsmap_;
};

template <typename T, typename... Args>
std::unique_ptr<Normalizer> MakeNormalizer(Args&&... args) {
  return std::make_unique<T>(std::forward<Args>(args)...);
}

absl::StatusOr<std::unique_ptr<Normalizer>> ParseNormalizerSequence(const JsonValue& json) {
  QUIRE_ASSIGN_OR_RETURN(const auto elements, json.Array("normalizers"));
  std::vector<std::unique_ptr<Normalizer>> steps;
  for (const JsonValue& element : elements) {
    QUIRE_ASSIGN_OR_RETURN(auto step, Normalizer::Parse(element));
    steps.push_back(std::move(step));
  }
  return MakeNormalizer<SequenceNormalizer>(std::move(steps));
}

absl::StatusOr<std::unique_ptr<Normalizer>> ParseReplace(const JsonValue& json) {
  QUIRE_ASSIGN_OR_RETURN(const JsonValue pattern_json, json.Member("pattern"));
  QUIRE_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Parse(pattern_json));
  QUIRE_ASSIGN_OR_RETURN(const std::string_view content, json.String("content"));
  return MakeNormalizer<ReplaceNormalizer>(std::move(pattern), std::string(content));
}

absl::StatusOr<std::unique_ptr<Normalizer>> ParsePrecompiled(const JsonValue& json) {
  QUIRE_ASSIGN_OR_RETURN(const JsonValue encoded, json.Member("precompiled_charsmap"));
  QUIRE_ASSIGN_OR_RETURN(const std::string_view base64, encoded.AsString());
  std::string blob;
  if (!absl::Base64Unescape(absl::string_view(base64.data(), base64.size()), &blob))
    return encoded.Error("is not base64");
  absl::StatusOr<Charsmap> charsmap = Charsmap::Parse(blob);
  if (!charsmap.ok()) return encoded.Error(std::string(charsmap.status().message()));
  return MakeNormalizer<PrecompiledNormalizer>(*std::move(charsmap));
}

absl::StatusOr<std::unique_ptr<Normalizer>> ParseStrip(const JsonValue& json) {
  QUIRE_ASSIGN_OR_RETURN(const bool strips_left, json.Bool("strip_left"));
  QUIRE_ASSIGN_OR_RETURN(const bool strips_right, json.Bool("strip_right"));
  return MakeNormalizer<StripNormalizer>(strips_left, strips_right);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Normalizer>> Normalizer::Parse(const JsonValue& json) {
  QUIRE_ASSIGN_OR_RETURN(const std::string_view type, json.String("type"));
  if (type == "Sequence") return ParseNormalizerSequence(json);
  if (type == "Replace") return ParseReplace(json);
  if (type == "Precompiled") return ParsePrecompiled(json);
  if (type == "Strip") return ParseStrip(json);
  if (type == "NFC") return MakeNormalizer<NormalFormNormalizer>(NormalForm::kNfc);
  if (type == "NFD") return MakeNormalizer<NormalFormNormalizer>(NormalForm::kNfd);
  if (type == "NFKC") return MakeNormalizer<NormalFormNormalizer>(NormalForm::kNfkc);
  if (type == "NFKD") return MakeNormalizer<NormalFormNormalizer>(NormalForm::kNfkd);
  if (type == "Lowercase") return MakeNormalizer<LowercaseNormalizer>();
  if (type == "Prepend") {
    QUIRE_ASSIGN_OR_RETURN(const std::string_view prefix, json.String("prepend"));
    return MakeNormalizer<PrependNormalizer>(std::string(prefix));
  }
  return json.Error(absl::StrCat("normalizer type \"", std::string(type), "\" is not supported"));
}

}  // namespace quire
