// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/jinja/json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/json_reader.h"
#include "base/status.h"
#include "base/utf8.h"

namespace quire::jinja {
namespace {

// Builds a Value while the JSON is read, so that the order of the keys is kept.
class Builder final : public JsonEvents {
 public:
  Builder(bool from_user, int* num_values_left) : from_user_(from_user), num_values_left_(num_values_left) {}

  bool null() override { return Add(Value(None{})); }
  bool boolean(bool value) override { return Add(Value(value)); }
  bool number_integer(int64_t value) override { return Add(Value(value)); }
  bool number_unsigned(uint64_t value) override {
    if (value <= static_cast<uint64_t>(INT64_MAX)) return Add(Value(static_cast<int64_t>(value)));
    return AddInteger(absl::StrCat(value));
  }
  bool number_float(double value, const std::string& digits) override {
    // An integer that does not fit is given as a float, too.
    if (digits.find_first_of(".eE") != std::string::npos) return Add(Value(value));
    return AddInteger(digits);
  }
  bool string(std::string& value) override { return Add(MakeText(value)); }
  bool start_object(size_t) override { return Open(true); }
  bool start_array(size_t) override { return Open(false); }
  bool key(std::string& value) override {
    open_.back().keys.push_back(MakeText(value));
    return true;
  }
  bool end_object() override {
    auto dict = std::make_shared<Dict>();
    for (size_t i = 0; i < open_.back().values.size(); ++i) {
      if (!dict->Set(open_.back().keys[i], std::move(open_.back().values[i])).ok()) return false;
    }
    open_.pop_back();
    return Add(Value(std::shared_ptr<const Dict>(std::move(dict))));
  }
  bool end_array() override {
    std::vector<Value> items = std::move(open_.back().values);
    open_.pop_back();
    return Add(Value::MakeList(std::move(items)));
  }
  Value TakeResult() { return std::move(result_); }

 private:
  struct Container {
    bool is_object = false;
    std::vector<Value> keys;
    std::vector<Value> values;
  };

  Value MakeText(std::string_view bytes) const {
    TextBuilder builder;
    builder.Append(bytes, from_user_);
    return Value(builder.Take());
  }
  bool Open(bool is_object) {
    open_.emplace_back().is_object = is_object;
    return true;
  }
  bool AddInteger(const std::string& digits) {
    return Add(Value(BigInteger{std::make_shared<const std::string>(digits)}));
  }
  bool Add(Value value) {
    if (--*num_values_left_ < 0) {
      return Stop(absl::StrCat("has too many JSON values: at most ", kMaxJsonValues, " are allowed in all"));
    }
    if (open_.empty()) {
      result_ = std::move(value);
    } else {
      open_.back().values.push_back(std::move(value));
    }
    return true;
  }

  bool from_user_;
  int* const num_values_left_;
  std::vector<Container> open_;
  Value result_;
};

class Writer {
 public:
  Writer(const JsonStyle& style, Budget* budget) : style_(style), budget_(budget) {}

  absl::Status Write(const Value& value, int level) {
    QUIRE_RETURN_IF_ERROR(budget_->Step());
    if (out_.size() > budget_->limits().max_output_bytes) return budget_->Build(out_.size());
    const List* list = value.as_list();
    if (const Text* text = value.as_text()) {
      WriteText(*text);
    } else if (value.is_none()) {
      out_.Append("null", false);
    } else if (const bool* boolean = value.as_bool()) {
      out_.Append(*boolean ? "true" : "false", false);
    } else if (const int64_t* integer = value.as_int()) {
      out_.Append(absl::StrCat(*integer), false);
    } else if (const std::string* digits = value.as_big_integer()) {
      out_.Append(*digits, false);
    } else if (const double* number = value.as_float()) {
      out_.Append(Number(*number), false);
    } else if (list != nullptr && list->kind != List::Kind::kGenerator) {
      return WriteList(*list, level);
    } else if (const Dict* dict = value.as_dict()) {
      return WriteDict(*dict, level);
    } else if (value.is_undefined()) {
      return InvalidArgument(value.undefined_message());
    } else {
      return InvalidArgument("a value of type ", std::string(value.type_name()), " cannot be written as JSON");
    }
    return absl::OkStatus();
  }
  Text Take() { return out_.Take(); }

 private:
  static std::string Number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return FloatRepr(value);
  }

  void BeginLine(int level) {
    if (!style_.indent.has_value()) return;
    out_.Append("\n", false);
    for (int i = 0; i < level; ++i) out_.Append(*style_.indent);
  }

  absl::Status WriteList(const List& list, int level) {
    out_.Append("[", false);
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_.Append(style_.item_separator);
      BeginLine(level + 1);
      QUIRE_RETURN_IF_ERROR(Write(list.items[i], level + 1));
    }
    if (!list.items.empty()) BeginLine(level);
    out_.Append("]", false);
    return absl::OkStatus();
  }

  absl::Status WriteDict(const Dict& dict, int level) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      absl::Status status;
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        const absl::StatusOr<bool> is_less = Less(a->first, b->first, budget_);
        if (!is_less.ok()) status = is_less.status();
        return is_less.ok() && *is_less;
      });
      QUIRE_RETURN_IF_ERROR(status);
    }
    out_.Append("{", false);
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_.Append(style_.item_separator);
      BeginLine(level + 1);
      QUIRE_RETURN_IF_ERROR(WriteKey(entries[i]->first));
      out_.Append(style_.key_separator);
      QUIRE_RETURN_IF_ERROR(Write(entries[i]->second, level + 1));
    }
    if (!entries.empty()) BeginLine(level);
    out_.Append("}", false);
    return absl::OkStatus();
  }

  // A key that is not a string is written as JSON in quotes.
  absl::Status WriteKey(const Value& key) {
    if (key.as_text() != nullptr) return Write(key, 0);
    out_.Append("\"", false);
    QUIRE_RETURN_IF_ERROR(Write(key, 0));
    out_.Append("\"", false);
    return absl::OkStatus();
  }

  void WriteText(const Text& text) {
    out_.Append("\"", false);
    MarkCursor marks(text);
    std::string escaped;
    for (size_t pos = 0; pos < text.bytes.size();) {
      const bool is_user = marks.IsUser(pos);
      escaped.clear();
      AppendEscaped(DecodeUtf8(text.bytes, &pos), &escaped);
      out_.Append(escaped, is_user);
    }
    out_.Append("\"", false);
  }

  void AppendEscaped(char32_t c, std::string* out) const {
    switch (c) {
      case '"':
        out->append("\\\"");
        return;
      case '\\':
        out->append("\\\\");
        return;
      case '\n':
        out->append("\\n");
        return;
      case '\r':
        out->append("\\r");
        return;
      case '\t':
        out->append("\\t");
        return;
      case '\b':
        out->append("\\b");
        return;
      case '\f':
        out->append("\\f");
        return;
      default:
        break;
    }
    if (c >= 0x20 && (c < 0x7F || !style_.ensure_ascii)) {
      AppendUtf8(c, out);
    } else if (c < 0x10000) {
      absl::StrAppendFormat(out, "\\u%04x", static_cast<uint32_t>(c));
    } else {
      const uint32_t rest = static_cast<uint32_t>(c) - 0x10000;
      absl::StrAppendFormat(out, "\\u%04x\\u%04x", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    }
  }

  const JsonStyle& style_;
  Budget* budget_;
  TextBuilder out_;
};

}  // namespace

absl::StatusOr<Value> ParseJson(std::string_view json, bool from_user) {
  int num_values_left = kMaxJsonValues;
  return ParseJson(json, from_user, &num_values_left);
}

absl::StatusOr<Value> ParseJson(std::string_view json, bool from_user, int* num_values_left) {
  Builder builder(from_user, num_values_left);
  if (const auto fault = builder.Read(json, {})) return InvalidArgument(fault->reason);
  return builder.TakeResult();
}

absl::StatusOr<Text> ToJson(const Value& value, const JsonStyle& style, Budget* budget) {
  Writer writer(style, budget);
  QUIRE_RETURN_IF_ERROR(writer.Write(value, 0));
  Text text = writer.Take();
  QUIRE_RETURN_IF_ERROR(budget->Build(text.bytes.size()));
  return text;
}

}  // namespace quire::jinja
