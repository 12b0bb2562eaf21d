// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/jinja/value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "kv_manager/jinja/function.h"

namespace quire::jinja {
namespace {

// Equal keys have equal texts: 1, 1.0 and true are the same key in Python.
bool HashOf(const Value& key, std::string* hash) {
  int64_t integer = 0;
  if (const Text* text = key.as_text()) {
    *hash = absl::StrCat("s", text->bytes);
  } else if (key.GetInteger(&integer)) {
    *hash = absl::StrCat("i", integer);
  } else if (const double* number = key.as_float()) {
    const bool is_integer = *number == std::trunc(*number) && std::abs(*number) < 9e15;
    *hash = is_integer ? absl::StrCat("i", static_cast<int64_t>(*number)) : absl::StrCat("f", FloatRepr(*number));
  } else if (const std::string* digits = key.as_big_integer()) {
    *hash = absl::StrCat("i", *digits);
  } else if (key.is_none()) {
    *hash = "n";
  } else {
    return false;
  }
  return true;
}

int DepthOver(int depth, const Value& element) {
  return std::max(depth, element.depth() + 1);
}

std::shared_ptr<List> NewList(List::Kind kind, std::vector<Value> items) {
  auto list = std::make_shared<List>();
  list->kind = kind;
  list->items = std::move(items);
  for (const Value& item : list->items) list->depth = DepthOver(list->depth, item);
  return list;
}

absl::Status NotComparable(const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) return InvalidArgument(value->undefined_message());
  }
  return InvalidArgument("a value of type ", std::string(a.type_name()), " cannot be compared with one of type ",
                         std::string(b.type_name()));
}

absl::Status AppendItems(const std::vector<Value>& items, Budget* budget, TextBuilder* out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out->Append(", ", false);
    QUIRE_RETURN_IF_ERROR(AppendRepr(items[i], budget, out));
  }
  return absl::OkStatus();
}

void AppendTextRepr(const Text& text, TextBuilder* out) {
  const bool has_single = text.bytes.find('\'') != std::string::npos;
  const bool has_double = text.bytes.find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  if (text.is_markup) out->Append("Markup(", false);
  out->Append(std::string_view(&quote, 1), false);
  MarkCursor marks(text);
  std::string shown;
  for (size_t pos = 0; pos < text.bytes.size();) {
    const bool is_user = marks.IsUser(pos);
    shown.clear();
    AppendReprCharacter(DecodeUtf8(text.bytes, &pos), quote, &shown);
    out->Append(shown, is_user);
  }
  out->Append(std::string_view(&quote, 1), false);
  if (text.is_markup) out->Append(")", false);
}

}  // namespace

Value::Value(std::string_view trusted) {
  Text text;
  text.bytes = trusted;
  data_ = std::make_shared<const Text>(std::move(text));
}

Value Value::MakeUndefined(std::string what) {
  // A template can keep many of these values, and the names in them can be long.
  constexpr size_t kMaxBytes = 200;
  if (what.size() > kMaxBytes) {
    size_t end = kMaxBytes;
    while (end > 0 && (static_cast<unsigned char>(what[end]) & 0xC0) == 0x80) --end;
    what = what.substr(0, end) + "...";
  }
  Value value;
  value.data_ = Undefined{std::make_shared<const std::string>(std::move(what))};
  return value;
}

Value Value::MakeList(std::vector<Value> items) {
  return Value(NewList(List::Kind::kList, std::move(items)));
}
Value Value::MakeTuple(std::vector<Value> items) {
  return Value(NewList(List::Kind::kTuple, std::move(items)));
}
Value Value::MakeGenerator(std::vector<Value> items) {
  return Value(NewList(List::Kind::kGenerator, std::move(items)));
}

bool Value::GetInteger(int64_t* value) const {
  if (const bool* boolean = as_bool()) {
    *value = *boolean ? 1 : 0;
    return true;
  }
  if (as_int() == nullptr) return false;
  *value = *as_int();
  return true;
}

bool Value::GetNumber(double* value) const {
  int64_t integer = 0;
  if (GetInteger(&integer)) {
    *value = static_cast<double>(integer);
    return true;
  }
  if (as_float() == nullptr) return false;
  *value = *as_float();
  return true;
}

std::string_view Value::type_name() const {
  if (is_undefined()) return "undefined";
  if (is_none()) return "none";
  if (as_bool() != nullptr) return "boolean";
  if (as_int() != nullptr || as_big_integer() != nullptr) return "integer";
  if (as_float() != nullptr) return "float";
  if (as_text() != nullptr) return "string";
  if (as_dict() != nullptr) return "dictionary";
  if (const List* list = as_list()) {
    return list->kind == List::Kind::kList ? "list" : list->kind == List::Kind::kTuple ? "tuple" : "generator";
  }
  if (as_namespace() != nullptr) return "namespace";
  if (as_loop() != nullptr) return "loop";
  return "function";
}

std::string Value::undefined_message() const {
  const auto* undefined = std::get_if<Undefined>(&data_);
  if (undefined == nullptr || undefined->what == nullptr) return "a value is undefined";
  return *undefined->what;
}

bool Value::IsTrue() const {
  double number = 0;
  if (GetNumber(&number)) return number != 0;
  if (is_undefined() || is_none()) return false;
  if (const Text* text = as_text()) return !text->bytes.empty();
  if (const Dict* dict = as_dict()) return !dict->entries.empty();
  if (const List* list = as_list()) return list->kind == List::Kind::kGenerator || !list->items.empty();
  return true;
}

int Value::depth() const {
  if (const List* list = as_list()) return list->depth;
  if (const Dict* dict = as_dict()) return dict->depth;
  return 0;
}

absl::Status Dict::Set(const Value& key, Value value) {
  std::string hash;
  if (!HashOf(key, &hash)) {
    return InvalidArgument("a value of type ", std::string(key.type_name()), " cannot be the key of a dictionary");
  }
  depth = DepthOver(depth, value);
  const auto [it, is_new] = index.emplace(std::move(hash), entries.size());
  if (is_new) {
    entries.emplace_back(key, std::move(value));
  } else {
    entries[it->second].second = std::move(value);
  }
  return absl::OkStatus();
}

const Value* Dict::Find(const Value& key) const {
  std::string hash;
  if (!HashOf(key, &hash)) return nullptr;
  const auto it = index.find(hash);
  return it == index.end() ? nullptr : &entries[it->second].second;
}

const Value* Dict::Find(std::string_view key) const {
  const auto it = index.find(absl::StrCat("s", std::string(key)));
  return it == index.end() ? nullptr : &entries[it->second].second;
}

bool AreIdentical(const Value& a, const Value& b) {
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.as_bool() != nullptr && b.as_bool() != nullptr) return *a.as_bool() == *b.as_bool();
  if (a.as_int() != nullptr && b.as_int() != nullptr) return *a.as_int() == *b.as_int();
  if (a.as_text() != nullptr) return b.as_text() != nullptr && a.as_text()->bytes == b.as_text()->bytes;
  const std::string* digits[2] = {a.as_big_integer(), b.as_big_integer()};
  if (digits[0] != nullptr) return digits[1] != nullptr && *digits[0] == *digits[1];
  const auto same = [](const void* x, const void* y) { return x != nullptr && x == y; };
  return same(a.as_list(), b.as_list()) || same(a.as_dict(), b.as_dict()) || same(a.as_namespace(), b.as_namespace()) ||
         same(a.as_loop(), b.as_loop()) || same(a.as_function(), b.as_function());
}

absl::StatusOr<bool> Equal(const Value& a, const Value& b, Budget* budget) {
  QUIRE_RETURN_IF_ERROR(budget->Step());
  int64_t integers[2];
  if (a.GetInteger(&integers[0]) && b.GetInteger(&integers[1])) return integers[0] == integers[1];
  double numbers[2];
  if (a.GetNumber(&numbers[0]) && b.GetNumber(&numbers[1])) return numbers[0] == numbers[1];
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  if (a.as_text() != nullptr && b.as_text() != nullptr) return a.as_text()->bytes == b.as_text()->bytes;
  if (const List* x = a.as_list(), *y = b.as_list(); x != nullptr && y != nullptr) {
    if (x->kind == List::Kind::kGenerator || y->kind == List::Kind::kGenerator) return x == y;
    if (x->kind != y->kind || x->items.size() != y->items.size()) return false;
    for (size_t i = 0; i < x->items.size(); ++i) {
      QUIRE_ASSIGN_OR_RETURN(const bool is_equal, Equal(x->items[i], y->items[i], budget));
      if (!is_equal) return false;
    }
    return true;
  }
  if (const Dict* x = a.as_dict(), *y = b.as_dict(); x != nullptr && y != nullptr) {
    if (x->entries.size() != y->entries.size()) return false;
    for (const auto& [key, value] : x->entries) {
      const Value* other = y->Find(key);
      if (other == nullptr) return false;
      QUIRE_ASSIGN_OR_RETURN(const bool is_equal, Equal(value, *other, budget));
      if (!is_equal) return false;
    }
    return true;
  }
  return AreIdentical(a, b);
}

absl::StatusOr<bool> Less(const Value& a, const Value& b, Budget* budget) {
  QUIRE_RETURN_IF_ERROR(budget->Step());
  int64_t integers[2];
  if (a.GetInteger(&integers[0]) && b.GetInteger(&integers[1])) return integers[0] < integers[1];
  double numbers[2];
  if (a.GetNumber(&numbers[0]) && b.GetNumber(&numbers[1])) return numbers[0] < numbers[1];
  if (a.as_text() != nullptr && b.as_text() != nullptr) return a.as_text()->bytes < b.as_text()->bytes;
  const List* x = a.as_list();
  const List* y = b.as_list();
  if (x == nullptr || y == nullptr || x->kind != y->kind || x->kind == List::Kind::kGenerator) {
    return NotComparable(a, b);
  }
  for (size_t i = 0; i < std::min(x->items.size(), y->items.size()); ++i) {
    QUIRE_ASSIGN_OR_RETURN(const bool is_equal, Equal(x->items[i], y->items[i], budget));
    if (!is_equal) return Less(x->items[i], y->items[i], budget);
  }
  return x->items.size() < y->items.size();
}

absl::StatusOr<bool> Contains(const Value& container, const Value& value, Budget* budget) {
  if (const Text* text = container.as_text()) {
    const Text* part = value.as_text();
    if (part == nullptr) {
      if (value.is_undefined()) return InvalidArgument(value.undefined_message());
      return InvalidArgument("`in` needs a string on the left of a string, not a value of type ",
                             std::string(value.type_name()));
    }
    QUIRE_RETURN_IF_ERROR(budget->Step(static_cast<int64_t>(text->bytes.size() / 64)));
    return Find(text->bytes, part->bytes) != std::string::npos;
  }
  if (const Dict* dict = container.as_dict()) return dict->Find(value) != nullptr;
  if (const Namespace* names = container.as_namespace()) return names->values.Find(value) != nullptr;
  if (container.is_undefined()) return false;
  if (List* list = container.as_list()) {
    for (const Value& item : list->items) {
      QUIRE_ASSIGN_OR_RETURN(const bool is_equal, Equal(item, value, budget));
      if (is_equal) return true;
    }
    return false;
  }
  return InvalidArgument("a value of type ", std::string(container.type_name()), " cannot be searched with `in`");
}

absl::StatusOr<std::vector<Value>> Iterate(const Value& value, Budget* budget) {
  std::vector<Value> items;
  if (List* list = value.as_list()) {
    QUIRE_RETURN_IF_ERROR(budget->BuildList(list->items.size()));
    if (list->kind != List::Kind::kGenerator) return list->items;
    items.swap(list->items);
    return items;
  }
  if (const Text* text = value.as_text()) {
    // A text for each character takes about 128 bytes, which counts as four elements.
    QUIRE_RETURN_IF_ERROR(budget->BuildList(4 * NumCharacters(text->bytes)));
    for (size_t pos = 0; pos < text->bytes.size();) {
      const size_t end = pos + Utf8Length(text->bytes[pos]);
      items.push_back(Value(Slice(*text, pos, end)));
      pos = end;
    }
    return items;
  }
  if (const Dict* dict = value.as_dict()) {
    QUIRE_RETURN_IF_ERROR(budget->BuildList(dict->entries.size()));
    for (const auto& entry : dict->entries) items.push_back(entry.first);
    return items;
  }
  if (value.is_undefined()) return items;
  return InvalidArgument("a value of type ", std::string(value.type_name()), " cannot be iterated");
}

absl::StatusOr<int64_t> Length(const Value& value) {
  if (const Text* text = value.as_text()) return static_cast<int64_t>(NumCharacters(text->bytes));
  if (const Dict* dict = value.as_dict()) return static_cast<int64_t>(dict->entries.size());
  if (const List* list = value.as_list(); list != nullptr && list->kind != List::Kind::kGenerator) {
    return static_cast<int64_t>(list->items.size());
  }
  if (value.is_undefined()) return 0;
  return InvalidArgument("a value of type ", std::string(value.type_name()), " has no length");
}

absl::Status AppendString(const Value& value, Budget* budget, TextBuilder* out) {
  if (value.is_undefined()) return absl::OkStatus();
  const Text* text = value.as_text();
  if (text == nullptr) return AppendRepr(value, budget, out);
  QUIRE_RETURN_IF_ERROR(budget->Build(out->size() + text->bytes.size() <= budget->limits().max_output_bytes
                                          ? text->bytes.size()
                                          : budget->limits().max_output_bytes + 1));
  out->Append(*text);
  return absl::OkStatus();
}

absl::Status AppendRepr(const Value& value, Budget* budget, TextBuilder* out) {
  QUIRE_RETURN_IF_ERROR(budget->Step());
  const size_t begin = out->size();
  const List* list = value.as_list();
  if (value.is_undefined()) {
    out->Append("Undefined", false);
  } else if (value.is_none()) {
    out->Append("None", false);
  } else if (const bool* boolean = value.as_bool()) {
    out->Append(*boolean ? "True" : "False", false);
  } else if (const int64_t* integer = value.as_int()) {
    out->Append(absl::StrCat(*integer), false);
  } else if (const std::string* digits = value.as_big_integer()) {
    out->Append(*digits, false);
  } else if (const double* number = value.as_float()) {
    out->Append(FloatRepr(*number), false);
  } else if (const Text* text = value.as_text()) {
    AppendTextRepr(*text, out);
  } else if (list != nullptr && list->kind == List::Kind::kList) {
    out->Append("[", false);
    QUIRE_RETURN_IF_ERROR(AppendItems(list->items, budget, out));
    out->Append("]", false);
  } else if (list != nullptr && list->kind == List::Kind::kTuple) {
    out->Append("(", false);
    QUIRE_RETURN_IF_ERROR(AppendItems(list->items, budget, out));
    out->Append(list->items.size() == 1 ? ",)" : ")", false);
  } else if (const Dict* dict = value.as_dict()) {
    out->Append("{", false);
    for (size_t i = 0; i < dict->entries.size(); ++i) {
      if (i > 0) out->Append(", ", false);
      QUIRE_RETURN_IF_ERROR(AppendRepr(dict->entries[i].first, budget, out));
      out->Append(": ", false);
      QUIRE_RETURN_IF_ERROR(AppendRepr(dict->entries[i].second, budget, out));
    }
    out->Append("}", false);
  } else {
    // Python would print an address here, so no template prints such a value on purpose.
    return InvalidArgument("a value of type ", std::string(value.type_name()), " cannot be printed");
  }
  // Inner values have counted their bytes already, so that nested values count several times.
  if (out->size() > budget->limits().max_output_bytes) return budget->Build(out->size());
  return budget->Build(out->size() - begin);
}

absl::StatusOr<Text> ToText(const Value& value, Budget* budget) {
  if (const Text* text = value.as_text()) return *text;
  TextBuilder out;
  QUIRE_RETURN_IF_ERROR(AppendString(value, budget, &out));
  return out.Take();
}

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // The shortest digits that read back as the value, in scientific form: "-1.25e+02".
  std::array<char, 64> buffer;
  const auto written =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific);
  const std::string_view scientific(buffer.data(), static_cast<size_t>(written.ptr - buffer.data()));
  const size_t e = scientific.find('e');
  int exponent = 0;
  const std::string_view sign_and_digits = scientific.substr(e + 1);
  const size_t skip = sign_and_digits.front() == '+' ? 1 : 0;
  std::from_chars(sign_and_digits.data() + skip, sign_and_digits.data() + sign_and_digits.size(), exponent);
  if (exponent < -4 || exponent >= 16) return std::string(scientific);
  std::string digits;
  for (const char c : scientific.substr(0, e)) {
    if (c != '.' && c != '-') digits.push_back(c);
  }
  std::string text = std::signbit(value) ? "-" : "";
  if (exponent < 0) {
    absl::StrAppend(&text, "0.", std::string(static_cast<size_t>(-exponent - 1), '0'), digits);
    return text;
  }
  const size_t num_whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() < num_whole) digits.resize(num_whole, '0');
  absl::StrAppend(&text, digits.substr(0, num_whole), ".", digits.size() > num_whole ? digits.substr(num_whole) : "0");
  return text;
}

}  // namespace quire::jinja
