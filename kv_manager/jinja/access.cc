// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/jinja/access.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/utf8.h"
#include "kv_manager/jinja/function.h"
#include "kv_manager/jinja/methods.h"

namespace quire::jinja {
namespace {

Value Missing(const Value& value, std::string_view name) {
  return Value::MakeUndefined(
      absl::StrCat("'", std::string(value.type_name()), "' has no attribute '", std::string(name), "'"));
}

Value MakeFunction(Function::Kind kind, std::string_view name, const Value& self) {
  auto function = std::make_shared<Function>();
  function->kind = kind;
  function->name = name;
  function->self = self;
  return Value(std::shared_ptr<const Function>(std::move(function)));
}

Value LoopAttribute(const Value& value, std::string_view name) {
  const Loop& loop = *value.as_loop();
  const auto length = static_cast<int64_t>(loop.items.size());
  const auto index0 = static_cast<int64_t>(loop.index0);
  if (name == "index") return Value(index0 + 1);
  if (name == "index0") return Value(index0);
  if (name == "revindex") return Value(length - index0);
  if (name == "revindex0") return Value(length - index0 - 1);
  if (name == "first") return Value(index0 == 0);
  if (name == "last") return Value(index0 + 1 == length);
  if (name == "length") return Value(length);
  if (name == "depth") return Value(static_cast<int64_t>(loop.depth0) + 1);
  if (name == "depth0") return Value(static_cast<int64_t>(loop.depth0));
  if (name == "previtem" && index0 > 0) return loop.items[loop.index0 - 1];
  if (name == "nextitem" && index0 + 1 < length) return loop.items[loop.index0 + 1];
  if (name == "previtem" || name == "nextitem")
    return Value::MakeUndefined(absl::StrCat("there is no loop.", std::string(name)));
  if (name == "cycle") return MakeFunction(Function::Kind::kCycle, name, value);
  if (name == "changed") return MakeFunction(Function::Kind::kChanged, name, value);
  return Missing(value, name);
}

// The element of a list or string, with Python's negative indices. Returns false when there is none.
bool FindElement(const Value& value, int64_t index, Value* element) {
  if (const List* list = value.as_list()) {
    if (list->kind == List::Kind::kGenerator) return false;
    const auto size = static_cast<int64_t>(list->items.size());
    if (index < -size || index >= size) return false;
    *element = list->items[static_cast<size_t>(index < 0 ? index + size : index)];
    return true;
  }
  const Text* text = value.as_text();
  if (text == nullptr) return false;
  if (index < 0) index += static_cast<int64_t>(NumCharacters(text->bytes));
  if (index < 0) return false;
  const size_t begin = ByteOfCharacter(text->bytes, static_cast<size_t>(index));
  if (begin >= text->bytes.size()) return false;
  *element = Value(Slice(*text, begin, begin + Utf8Length(text->bytes[begin])));
  return true;
}

// A bound that is none or an integer.
int64_t SliceBound(const Value& value, int64_t otherwise) {
  int64_t integer = otherwise;
  value.GetInteger(&integer);
  return integer;
}

// The indices that Python's slice(begin, end, step) selects of `size` elements.
absl::StatusOr<std::vector<size_t>> SliceIndices(int64_t size, const Value& begin, const Value& end, const Value& step,
                                                 Budget* budget) {
  const int64_t by = SliceBound(step, 1);
  if (by == 0) return InvalidArgument("the step of a slice cannot be zero");
  const int64_t lowest = by > 0 ? 0 : -1;
  const int64_t highest = by > 0 ? size : size - 1;
  const auto clamp = [&](int64_t index) {
    if (index < 0) index = index < -size ? lowest : index + size;
    return std::clamp(index, std::min(lowest, highest), highest);
  };
  int64_t from = SliceBound(begin, by > 0 ? 0 : INT64_MAX);
  int64_t to = SliceBound(end, by > 0 ? INT64_MAX : INT64_MIN);
  from = clamp(from);
  to = clamp(to);
  std::vector<size_t> indices;
  for (int64_t i = from; by > 0 ? i < to : i > to;) {
    indices.push_back(static_cast<size_t>(i));
    if (__builtin_add_overflow(i, by, &i)) break;
  }
  QUIRE_RETURN_IF_ERROR(budget->BuildList(indices.size()));
  return indices;
}

}  // namespace

absl::StatusOr<Value> GetAttribute(const Value& value, std::string_view name) {
  if (value.is_undefined()) return InvalidArgument(value.undefined_message());
  if (HasMethod(value, name)) return MakeFunction(Function::Kind::kMethod, name, value);
  if (value.as_loop() != nullptr) return LoopAttribute(value, name);
  const Value* member = nullptr;
  if (const Dict* dict = value.as_dict()) member = dict->Find(name);
  if (const Namespace* names = value.as_namespace()) member = names->values.Find(name);
  if (member != nullptr) return *member;
  return Missing(value, name);
}

absl::StatusOr<Value> GetItem(const Value& value, const Value& key) {
  if (value.is_undefined()) return InvalidArgument(value.undefined_message());
  if (const Dict* dict = value.as_dict()) {
    if (const Value* member = dict->Find(key)) return *member;
  } else if (int64_t index = 0; key.GetInteger(&index)) {
    Value element;
    if (FindElement(value, index, &element)) return element;
    return Value::MakeUndefined(absl::StrCat("'", std::string(value.type_name()), "' has no element ", index));
  }
  if (key.as_text() != nullptr) return GetAttribute(value, key.as_text()->bytes);
  return Missing(value, "the key");
}

absl::StatusOr<Value> GetSlice(const Value& value, const Value& begin, const Value& end, const Value& step,
                               Budget* budget) {
  for (const Value* bound : {&begin, &end, &step}) {
    int64_t integer = 0;
    if (bound->is_undefined()) return InvalidArgument(bound->undefined_message());
    if (!bound->is_none() && !bound->GetInteger(&integer)) {
      return Value::MakeUndefined("the bound of a slice is not an integer");
    }
  }
  if (value.is_undefined()) return InvalidArgument(value.undefined_message());
  if (const List* list = value.as_list(); list != nullptr && list->kind != List::Kind::kGenerator) {
    QUIRE_ASSIGN_OR_RETURN(const std::vector<size_t> indices,
                           SliceIndices(static_cast<int64_t>(list->items.size()), begin, end, step, budget));
    std::vector<Value> items;
    items.reserve(indices.size());
    for (const size_t index : indices) items.push_back(list->items[index]);
    return list->kind == List::Kind::kTuple ? Value::MakeTuple(std::move(items)) : Value::MakeList(std::move(items));
  }
  if (const Text* text = value.as_text()) {
    std::vector<size_t> starts;
    for (size_t pos = 0; pos < text->bytes.size(); pos += Utf8Length(text->bytes[pos])) starts.push_back(pos);
    starts.push_back(text->bytes.size());
    QUIRE_ASSIGN_OR_RETURN(const std::vector<size_t> indices,
                           SliceIndices(static_cast<int64_t>(starts.size()) - 1, begin, end, step, budget));
    TextBuilder out;
    for (const size_t index : indices) out.AppendSlice(*text, starts[index], starts[index + 1]);
    Text slice = out.Take();
    slice.is_markup = text->is_markup;
    return Value(std::move(slice));
  }
  return Value::MakeUndefined(absl::StrCat("a value of type ", std::string(value.type_name()), " has no slices"));
}

absl::StatusOr<Value> GetPath(const Value& value, const Value& path) {
  const Text* text = path.as_text();
  if (text == nullptr) return GetItem(value, path);
  Value found = value;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(text->bytes, '.'))) {
    int64_t index = 0;
    const bool is_number =
        !part.empty() && part.front() >= '0' && part.front() <= '9' && absl::SimpleAtoi(part, &index);
    QUIRE_ASSIGN_OR_RETURN(found, GetItem(found, is_number ? Value(index) : Value(std::string_view(part))));
  }
  return found;
}

}  // namespace quire::jinja
