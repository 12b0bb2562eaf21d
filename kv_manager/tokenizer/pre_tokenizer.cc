// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/pre_tokenizer.h"

#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "kv_manager/tokenizer/byte_level.h"
#include "kv_manager/tokenizer/encode_stop.h"
#include "kv_manager/tokenizer/pattern.h"
#include "kv_manager/tokenizer/unicode.h"

namespace quire {
namespace {

// Replaces each piece that is no token by what `split` appends for it.
absl::Status SplitEach(std::vector<TextPiece>* pieces,
                       const std::function<absl::Status(TextPiece, std::vector<TextPiece>*)>& split) {
  std::vector<TextPiece> out;
  out.reserve(pieces->size());
  for (TextPiece& piece : *pieces) {
    if (EncodeStop::IsDue()) break;
    if (piece.token != kNoToken) {
      out.push_back(std::move(piece));
    } else {
      QUIRE_RETURN_IF_ERROR(split(std::move(piece), &out));
    }
  }
  *pieces = std::move(out);
  return absl::OkStatus();
}

void AppendSlices(const TextPiece& piece, const std::vector<TextSpan>& spans, SplitBehavior behavior,
                  std::vector<TextPiece>* out) {
  for (const TextSpan& part : SplitSpans(spans, behavior)) {
    if (part.begin < part.end) out->push_back(piece.Slice(part.begin, part.end));
  }
}

// Every character that `is_match` accepts is a match of its own.
std::vector<TextSpan> FindCharacters(std::string_view text, bool (*is_match)(char32_t)) {
  std::vector<TextSpan> spans;
  size_t covered = 0;
  for (size_t pos = 0; pos < text.size();) {
    const size_t start = pos;
    if (!is_match(DecodeUtf8(text, &pos))) continue;
    if (covered < start) spans.push_back({covered, start, false});
    spans.push_back({start, pos, true});
    covered = pos;
  }
  if (covered < text.size()) spans.push_back({covered, text.size(), false});
  return spans;
}

class SequencePreTokenizer : public PreTokenizer {
 public:
  explicit SequencePreTokenizer(std::vector<std::unique_ptr<PreTokenizer>> steps) : steps_(std::move(steps)) {}

  absl::Status Split(std::vector<TextPiece>* pieces) const override {
    for (const auto& step : steps_) QUIRE_RETURN_IF_ERROR(step->Split(pieces));
    return absl::OkStatus();
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

class PatternPreTokenizer : public PreTokenizer {
 public:
  PatternPreTokenizer(Pattern pattern, SplitBehavior behavior, bool is_inverted)
      : pattern_(std::move(pattern)), behavior_(behavior), is_inverted_(is_inverted) {}

  absl::Status Split(std::vector<TextPiece>* pieces) const override {
    std::vector<TextSpan> spans;
    return SplitEach(pieces, [&](TextPiece piece, std::vector<TextPiece>* out) -> absl::Status {
      QUIRE_RETURN_IF_ERROR(pattern_.FindAll(piece.text, &spans));
      if (is_inverted_) {
        for (TextSpan& span : spans) span.is_match = !span.is_match;
      }
      AppendSlices(piece, spans, behavior_, out);
      return absl::OkStatus();
    });
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool is_inverted_;
};

// Splits on single characters of a kind.
class CharacterPreTokenizer : public PreTokenizer {
 public:
  CharacterPreTokenizer(bool (*is_match)(char32_t), SplitBehavior behavior)
      : is_match_(is_match), behavior_(behavior) {}

  absl::Status Split(std::vector<TextPiece>* pieces) const override {
    return SplitEach(pieces, [&](TextPiece piece, std::vector<TextPiece>* out) -> absl::Status {
      AppendSlices(piece, FindCharacters(piece.text, is_match_), behavior_, out);
      return absl::OkStatus();
    });
  }

 private:
  bool (*is_match_)(char32_t);
  SplitBehavior behavior_;
};

// "Whitespace": runs of word characters and runs of what is neither a word character nor whitespace.
class WordPreTokenizer : public PreTokenizer {
 public:
  absl::Status Split(std::vector<TextPiece>* pieces) const override {
    return SplitEach(pieces, [&](TextPiece piece, std::vector<TextPiece>* out) -> absl::Status {
      enum class Kind { kSpace, kWord, kOther };
      Kind last = Kind::kSpace;
      size_t begin = 0;
      for (size_t pos = 0; pos < piece.text.size();) {
        const size_t start = pos;
        const char32_t c = DecodeUtf8(piece.text, &pos);
        const Kind kind = IsWordCharacter(c) ? Kind::kWord : IsWhitespace(c) ? Kind::kSpace : Kind::kOther;
        if (kind == last) continue;
        if (last != Kind::kSpace) out->push_back(piece.Slice(begin, start));
        begin = start;
        last = kind;
      }
      if (last != Kind::kSpace) out->push_back(piece.Slice(begin, piece.text.size()));
      return absl::OkStatus();
    });
  }
};

class ByteLevelPreTokenizer : public PreTokenizer {
 public:
  // `regex` cuts a piece into words. When it is empty, the piece is one word.
  ByteLevelPreTokenizer(bool adds_prefix_space, std::optional<Regex> regex)
      : adds_prefix_space_(adds_prefix_space), regex_(std::move(regex)) {}

  absl::Status Split(std::vector<TextPiece>* pieces) const override {
    std::vector<TextSpan> spans;
    QUIRE_RETURN_IF_ERROR(SplitEach(pieces, [&](TextPiece piece, std::vector<TextPiece>* out) -> absl::Status {
      if (adds_prefix_space_ && piece.text.front() != ' ') piece.Prepend(" ");
      if (!regex_.has_value()) {
        out->push_back(std::move(piece));
        return absl::OkStatus();
      }
      QUIRE_RETURN_IF_ERROR(regex_->FindAll(piece.text, &spans));
      AppendSlices(piece, spans, SplitBehavior::kIsolated, out);
      return absl::OkStatus();
    }));
    for (TextPiece& piece : *pieces) {
      if (piece.token == kNoToken) WriteBytesAsCharacters(&piece);
    }
    return absl::OkStatus();
  }

 private:
  static void WriteBytesAsCharacters(TextPiece* piece) {
    std::string out;
    out.reserve(piece->text.size() * 2);
    size_t num_origin_bytes = 0;
    for (size_t i = 0; i < piece->text.size(); ++i) {
      out.append(ByteLevelCharacter(static_cast<unsigned char>(piece->text[i])));
      if (i < piece->num_origin_bytes) num_origin_bytes = out.size();
    }
    piece->text = std::move(out);
    piece->num_origin_bytes = num_origin_bytes;
  }

  bool adds_prefix_space_;
  std::optional<Regex> regex_;
};

class MetaspacePreTokenizer : public PreTokenizer {
 public:
  enum class PrependScheme { kAlways, kFirst, kNever };

  MetaspacePreTokenizer(std::string replacement, PrependScheme scheme, bool splits)
      : replacement_(std::move(replacement)), pattern_(replacement_), scheme_(scheme), splits_(splits) {}

  absl::Status Split(std::vector<TextPiece>* pieces) const override {
    std::vector<TextSpan> spans;
    return SplitEach(pieces, [&](TextPiece piece, std::vector<TextPiece>* out) -> absl::Status {
      ReplaceSpaces(&piece);
      const bool has_prefix = piece.text.compare(0, replacement_.size(), replacement_) == 0;
      const bool wants_prefix =
          scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && piece.starts_at_origin);
      if (wants_prefix && !has_prefix) piece.Prepend(replacement_);
      if (!splits_) {
        out->push_back(std::move(piece));
        return absl::OkStatus();
      }
      QUIRE_RETURN_IF_ERROR(pattern_.FindAll(piece.text, &spans));
      AppendSlices(piece, spans, SplitBehavior::kMergedWithNext, out);
      return absl::OkStatus();
    });
  }

 private:
  void ReplaceSpaces(TextPiece* piece) const {
    if (piece->text.find(' ') == std::string::npos) return;
    std::string out;
    size_t num_origin_bytes = 0;
    for (size_t i = 0; i < piece->text.size(); ++i) {
      if (piece->text[i] == ' ') {
        out.append(replacement_);
      } else {
        out.push_back(piece->text[i]);
      }
      if (i < piece->num_origin_bytes) num_origin_bytes = out.size();
    }
    piece->text = std::move(out);
    piece->num_origin_bytes = num_origin_bytes;
  }

  std::string replacement_;
  Pattern pattern_;
  PrependScheme scheme_;
  bool splits_;
};

template <typename T, typename... Args>
std::unique_ptr<PreTokenizer> MakePreTokenizer(Args&&... args) {
  return std::make_unique<T>(std::forward<Args>(args)...);
}

absl::StatusOr<SplitBehavior> ParseBehavior(const JsonValue& json) {
  QUIRE_ASSIGN_OR_RETURN(const std::string_view name, json.AsString());
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return json.Error(absl::StrCat("behavior \"", std::string(name), "\" is not supported"));
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> ParsePreTokenizerSequence(const JsonValue& json) {
  QUIRE_ASSIGN_OR_RETURN(const auto elements, json.Array("pretokenizers"));
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  int num_byte_levels = 0;
  for (const JsonValue& element : elements) {
    QUIRE_ASSIGN_OR_RETURN(const std::string_view type, element.String("type"));
    // Each ByteLevel doubles the length of a text that is not ASCII, so a chain of them could use up the memory.
    num_byte_levels += type == "ByteLevel" ? 1 : 0;
    if (type == "Sequence" || num_byte_levels > 1) {
      return element.Error("a Sequence holds no Sequence and at most one ByteLevel");
    }
    QUIRE_ASSIGN_OR_RETURN(auto step, PreTokenizer::Parse(element));
    steps.push_back(std::move(step));
  }
  return MakePreTokenizer<SequencePreTokenizer>(std::move(steps));
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> ParseSplit(const JsonValue& json) {
  QUIRE_ASSIGN_OR_RETURN(const JsonValue pattern_json, json.Member("pattern"));
  QUIRE_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Parse(pattern_json));
  QUIRE_ASSIGN_OR_RETURN(const JsonValue behavior_json, json.Member("behavior"));
  QUIRE_ASSIGN_OR_RETURN(const SplitBehavior behavior, ParseBehavior(behavior_json));
  QUIRE_ASSIGN_OR_RETURN(const bool is_inverted, json.Bool("invert"));
  return MakePreTokenizer<PatternPreTokenizer>(std::move(pattern), behavior, is_inverted);
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> ParseByteLevel(const JsonValue& json) {
  QUIRE_ASSIGN_OR_RETURN(const bool adds_prefix_space, json.Bool("add_prefix_space"));
  QUIRE_ASSIGN_OR_RETURN(const bool uses_regex, json.BoolOr("use_regex", true));
  if (!uses_regex) return MakePreTokenizer<ByteLevelPreTokenizer>(adds_prefix_space, std::nullopt);
  // This is GPT-2's pattern.
  QUIRE_ASSIGN_OR_RETURN(
      Regex regex,
      Regex::Compile("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"));
  return MakePreTokenizer<ByteLevelPreTokenizer>(adds_prefix_space, std::optional<Regex>(std::move(regex)));
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> ParseMetaspace(const JsonValue& json) {
  using Scheme = MetaspacePreTokenizer::PrependScheme;
  QUIRE_ASSIGN_OR_RETURN(const JsonValue replacement_json, json.Member("replacement"));
  QUIRE_ASSIGN_OR_RETURN(const std::string_view replacement, replacement_json.AsString());
  if (replacement.empty() || replacement.size() != Utf8Length(replacement.front())) {
    return replacement_json.Error("must be one character");
  }
  QUIRE_ASSIGN_OR_RETURN(const std::string_view name, json.StringOr("prepend_scheme", "always"));
  Scheme scheme = Scheme::kAlways;
  if (name == "first") {
    scheme = Scheme::kFirst;
  } else if (name == "never") {
    scheme = Scheme::kNever;
  } else if (name != "always") {
    return json.Error(absl::StrCat("prepend_scheme \"", std::string(name), "\" is not supported"));
  }
  QUIRE_ASSIGN_OR_RETURN(const bool adds_prefix_space, json.BoolOr("add_prefix_space", true));
  QUIRE_ASSIGN_OR_RETURN(const JsonValue declared, json.Find("prepend_scheme"));
  if (!adds_prefix_space) {
    if (scheme != Scheme::kNever && !declared.is_null()) {
      return json.Error(absl::StrCat("add_prefix_space is false, but prepend_scheme is \"", std::string(name), "\""));
    }
    scheme = Scheme::kNever;
  }
  QUIRE_ASSIGN_OR_RETURN(const bool splits, json.BoolOr("split", true));
  return MakePreTokenizer<MetaspacePreTokenizer>(std::string(replacement), scheme, splits);
}

}  // namespace

std::vector<TextSpan> SplitSpans(const std::vector<TextSpan>& spans, SplitBehavior behavior) {
  std::vector<TextSpan> parts;
  bool was_match = false;
  switch (behavior) {
    case SplitBehavior::kIsolated:
      return spans;
    case SplitBehavior::kRemoved:
      for (const TextSpan& span : spans) {
        if (!span.is_match) parts.push_back(span);
      }
      return parts;
    case SplitBehavior::kContiguous:
      for (const TextSpan& span : spans) {
        if (span.is_match == was_match && !parts.empty()) {
          parts.back().end = span.end;
        } else {
          parts.push_back(span);
        }
        was_match = span.is_match;
      }
      return parts;
    case SplitBehavior::kMergedWithPrevious:
      for (const TextSpan& span : spans) {
        if (span.is_match && !was_match && !parts.empty()) {
          parts.back().end = span.end;
        } else {
          parts.push_back(span);
        }
        was_match = span.is_match;
      }
      return parts;
    case SplitBehavior::kMergedWithNext:
      for (size_t i = spans.size(); i-- > 0;) {
        if (spans[i].is_match && !was_match && !parts.empty()) {
          parts.back().begin = spans[i].begin;
        } else {
          parts.push_back(spans[i]);
        }
        was_match = spans[i].is_match;
      }
      return {parts.rbegin(), parts.rend()};
  }
  return parts;
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> PreTokenizer::Parse(const JsonValue& json) {
  QUIRE_ASSIGN_OR_RETURN(const std::string_view type, json.String("type"));
  if (type == "Sequence") return ParsePreTokenizerSequence(json);
  if (type == "Split") return ParseSplit(json);
  if (type == "ByteLevel") return ParseByteLevel(json);
  if (type == "Metaspace") return ParseMetaspace(json);
  if (type == "Whitespace") return MakePreTokenizer<WordPreTokenizer>();
  if (type == "WhitespaceSplit") return MakePreTokenizer<CharacterPreTokenizer>(&IsWhitespace, SplitBehavior::kRemoved);
  if (type == "Digits") {
    QUIRE_ASSIGN_OR_RETURN(const bool is_individual, json.Bool("individual_digits"));
    return MakePreTokenizer<CharacterPreTokenizer>(
        &IsNumeric, is_individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
  }
  if (type == "Punctuation") {
    QUIRE_ASSIGN_OR_RETURN(const JsonValue behavior_json, json.Find("behavior"));
    if (behavior_json.is_null())
      return MakePreTokenizer<CharacterPreTokenizer>(&IsPunctuation, SplitBehavior::kIsolated);
    QUIRE_ASSIGN_OR_RETURN(const SplitBehavior behavior, ParseBehavior(behavior_json));
    return MakePreTokenizer<CharacterPreTokenizer>(&IsPunctuation, behavior);
  }
  return json.Error(absl::StrCat("pre-tokenizer type \"", std::string(type), "\" is not supported"));
}

}  // namespace quire
