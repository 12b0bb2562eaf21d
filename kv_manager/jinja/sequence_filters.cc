// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/jinja/sequence_filters.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "kv_manager/jinja/access.h"
#include "kv_manager/jinja/function.h"
#include "kv_manager/jinja/predicates.h"

namespace quire::jinja {
namespace {

using OrValue = absl::StatusOr<Value>;
using Bound = std::vector<std::optional<Value>>;

// Strings are sorted and compared without their case, unless a filter is told otherwise.
absl::StatusOr<Value> SortKey(const Value& value, bool is_case_sensitive, Budget* budget) {
  if (is_case_sensitive || value.as_text() == nullptr) return value;
  QUIRE_RETURN_IF_ERROR(budget->Build(value.as_text()->bytes.size()));
  return Value(ToLower(*value.as_text()));
}

// The attribute of `item` that the argument names, or `item` itself.
OrValue Attribute(const Value& item, const std::optional<Value>& attribute) {
  if (!attribute.has_value() || attribute->is_none()) return item;
  return GetPath(item, *attribute);
}

// The elements of `value` with their sort keys, in the order of the keys.
absl::StatusOr<std::vector<std::pair<Value, Value>>> Sorted(std::vector<std::pair<Value, Value>> keyed, bool is_reverse,
                                                            Budget* budget) {
  absl::Status status;
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    if (!status.ok()) return false;
    const absl::StatusOr<bool> is_less = is_reverse ? Less(b.first, a.first, budget) : Less(a.first, b.first, budget);
    if (!is_less.ok()) status = is_less.status();
    return is_less.ok() && *is_less;
  });
  QUIRE_RETURN_IF_ERROR(status);
  return keyed;
}

OrValue SortFilter(const Value& value, const Arguments& arguments, Budget* budget) {
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"reverse", "case_sensitive", "attribute"}));
  QUIRE_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(value, budget));
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : items) {
    // Several attributes with commas are compared one after the other.
    if (bound[2].has_value() && bound[2]->as_text() != nullptr &&
        bound[2]->as_text()->bytes.find(',') != std::string::npos) {
      return InvalidArgument("several attributes are not supported");
    }
    QUIRE_ASSIGN_OR_RETURN(const Value found, Attribute(item, bound[2]));
    QUIRE_ASSIGN_OR_RETURN(Value key, SortKey(found, BoolOr(bound[1], false), budget));
    keyed.emplace_back(std::move(key), item);
  }
  QUIRE_ASSIGN_OR_RETURN(keyed, Sorted(std::move(keyed), BoolOr(bound[0], false), budget));
  std::vector<Value> sorted;
  for (auto& entry : keyed) sorted.push_back(std::move(entry.second));
  return Value::MakeList(std::move(sorted));
}

OrValue DictSortFilter(const Value& value, const Arguments& arguments, Budget* budget) {
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"case_sensitive", "by", "reverse"}));
  const Dict* dict = value.as_dict();
  if (dict == nullptr)
    return InvalidArgument("needs a dictionary, not a value of type ", std::string(value.type_name()));
  const std::string by = bound[1].has_value() && bound[1]->as_text() != nullptr ? bound[1]->as_text()->bytes : "key";
  if (by != "key" && by != "value") return InvalidArgument("can sort by \"key\" or \"value\", not by \"", by, "\"");
  QUIRE_RETURN_IF_ERROR(budget->BuildList(2 * dict->entries.size()));
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, item] : dict->entries) {
    QUIRE_ASSIGN_OR_RETURN(Value sort_key, SortKey(by == "key" ? key : item, BoolOr(bound[0], false), budget));
    keyed.emplace_back(std::move(sort_key), Value::MakeTuple({key, item}));
  }
  QUIRE_ASSIGN_OR_RETURN(keyed, Sorted(std::move(keyed), BoolOr(bound[2], false), budget));
  std::vector<Value> sorted;
  for (auto& entry : keyed) sorted.push_back(std::move(entry.second));
  return Value::MakeList(std::move(sorted));
}

OrValue UniqueFilter(const Value& value, const Arguments& arguments, Budget* budget) {
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"case_sensitive", "attribute"}));
  QUIRE_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(value, budget));
  Dict seen;
  std::vector<Value> unique;
  for (const Value& item : items) {
    QUIRE_ASSIGN_OR_RETURN(const Value found, Attribute(item, bound[1]));
    QUIRE_ASSIGN_OR_RETURN(const Value key, SortKey(found, BoolOr(bound[0], false), budget));
    if (seen.Find(key) != nullptr) continue;
    QUIRE_RETURN_IF_ERROR(seen.Set(key, Value(None{})));
    unique.push_back(item);
  }
  return Value::MakeGenerator(std::move(unique));
}

template <bool is_max>
OrValue ExtremeFilter(const Value& value, const Arguments& arguments, Budget* budget) {
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"case_sensitive", "attribute"}));
  QUIRE_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(value, budget));
  if (items.empty()) return Value::MakeUndefined("no element, because the sequence is empty");
  size_t best = 0;
  Value best_key;
  for (size_t i = 0; i < items.size(); ++i) {
    QUIRE_ASSIGN_OR_RETURN(const Value found, Attribute(items[i], bound[1]));
    QUIRE_ASSIGN_OR_RETURN(const Value key, SortKey(found, BoolOr(bound[0], false), budget));
    bool is_better = i == 0;
    if (!is_better) {
      QUIRE_ASSIGN_OR_RETURN(is_better, is_max ? Less(best_key, key, budget) : Less(key, best_key, budget));
    }
    if (!is_better) continue;
    best = i;
    best_key = key;
  }
  return items[best];
}

// The arguments behind the first `count`.
Arguments Rest(const Arguments& arguments, size_t count) {
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + static_cast<ptrdiff_t>(count), arguments.positional.end());
  rest.named = arguments.named;
  return rest;
}

OrValue MapFilter(const Value& value, const Arguments& arguments, Budget* budget) {
  if (!value.IsTrue()) return Value::MakeGenerator({});  // None and what is undefined give it, too.
  QUIRE_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(value, budget));
  std::vector<Value> mapped;
  if (!arguments.positional.empty()) {
    const Text* name = arguments.positional.front().as_text();
    const Filter filter = name == nullptr ? nullptr : FindFilter(name->bytes);
    if (filter == nullptr) return InvalidArgument("there is no such filter to map with");
    const Arguments rest = Rest(arguments, 1);
    for (const Value& item : items) {
      QUIRE_ASSIGN_OR_RETURN(Value result, filter(item, rest, budget));
      mapped.push_back(std::move(result));
    }
    return Value::MakeGenerator(std::move(mapped));
  }
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"attribute", "default"}));
  if (!bound[0].has_value()) return InvalidArgument("needs a filter or an attribute");
  for (const Value& item : items) {
    QUIRE_ASSIGN_OR_RETURN(Value found, GetPath(item, *bound[0]));
    if (found.is_undefined() && bound[1].has_value()) found = *bound[1];
    mapped.push_back(std::move(found));
  }
  return Value::MakeGenerator(std::move(mapped));
}

template <bool selects, bool by_attribute>
OrValue SelectFilter(const Value& value, const Arguments& arguments, Budget* budget) {
  if (!value.IsTrue()) return Value::MakeGenerator({});
  QUIRE_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(value, budget));
  constexpr size_t kTestAt = by_attribute ? 1 : 0;
  const std::vector<Value>& given = arguments.positional;
  if (by_attribute && given.empty()) return InvalidArgument("needs the name of an attribute");
  Predicate predicate = nullptr;
  Arguments rest;
  if (given.size() > kTestAt) {
    const Text* name = given[kTestAt].as_text();
    predicate = name == nullptr ? nullptr : FindPredicate(name->bytes);
    if (predicate == nullptr) return InvalidArgument("there is no such test to select with");
    rest = Rest(arguments, kTestAt + 1);
  }
  std::vector<Value> selected;
  for (const Value& item : items) {
    Value tested = item;
    if (by_attribute) {
      QUIRE_ASSIGN_OR_RETURN(tested, GetPath(item, given.front()));
    }
    bool is_true = tested.IsTrue();
    if (predicate != nullptr) {
      QUIRE_ASSIGN_OR_RETURN(is_true, predicate(tested, rest, budget));
    }
    if (is_true == selects) selected.push_back(item);
  }
  return Value::MakeGenerator(std::move(selected));
}

OrValue LengthFilter(const Value& value, const Arguments& arguments, Budget*) {
  QUIRE_RETURN_IF_ERROR(arguments.Bind({}).status());
  QUIRE_ASSIGN_OR_RETURN(const int64_t length, Length(value));
  return Value(length);
}

OrValue ListFilter(const Value& value, const Arguments& arguments, Budget* budget) {
  QUIRE_RETURN_IF_ERROR(arguments.Bind({}).status());
  QUIRE_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(value, budget));
  return Value::MakeList(std::move(items));
}

OrValue FirstFilter(const Value& value, const Arguments& arguments, Budget* budget) {
  QUIRE_RETURN_IF_ERROR(arguments.Bind({}).status());
  if (List* list = value.as_list(); list != nullptr && !list->items.empty()) {
    Value first = list->items.front();
    if (list->kind == List::Kind::kGenerator) list->items.erase(list->items.begin());
    return first;
  }
  QUIRE_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(value, budget));
  return items.empty() ? Value::MakeUndefined("no first element, because the sequence is empty") : items.front();
}

OrValue LastFilter(const Value& value, const Arguments& arguments, Budget* budget) {
  QUIRE_RETURN_IF_ERROR(arguments.Bind({}).status());
  const List* list = value.as_list();
  if (list != nullptr && list->kind == List::Kind::kGenerator)
    return InvalidArgument("a generator has no last element");
  if (list != nullptr && !list->items.empty()) return list->items.back();
  QUIRE_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(value, budget));
  return items.empty() ? Value::MakeUndefined("no last element, because the sequence is empty") : items.back();
}

OrValue ReverseFilter(const Value& value, const Arguments& arguments, Budget* budget) {
  QUIRE_RETURN_IF_ERROR(arguments.Bind({}).status());
  if (value.as_text() != nullptr) return GetSlice(value, None{}, None{}, Value(int64_t{-1}), budget);
  QUIRE_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(value, budget));
  std::reverse(items.begin(), items.end());
  return Value::MakeGenerator(std::move(items));
}

OrValue ItemsFilter(const Value& value, const Arguments& arguments, Budget* budget) {
  QUIRE_RETURN_IF_ERROR(arguments.Bind({}).status());
  std::vector<Value> items;
  if (value.is_undefined()) return Value::MakeGenerator({});
  const Dict* dict = value.as_dict();
  if (dict == nullptr)
    return InvalidArgument("needs a dictionary, not a value of type ", std::string(value.type_name()));
  QUIRE_RETURN_IF_ERROR(budget->BuildList(2 * dict->entries.size()));
  for (const auto& [key, item] : dict->entries) items.push_back(Value::MakeTuple({key, item}));
  return Value::MakeGenerator(std::move(items));
}

OrValue JoinFilter(const Value& value, const Arguments& arguments, Budget* budget) {
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"d", "attribute"}));
  QUIRE_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(value, budget));
  TextBuilder out;
  for (size_t i = 0; i < items.size(); ++i) {
    QUIRE_ASSIGN_OR_RETURN(const Value item, Attribute(items[i], bound[1]));
    if (i > 0 && bound[0].has_value()) QUIRE_RETURN_IF_ERROR(AppendString(*bound[0], budget, &out));
    QUIRE_RETURN_IF_ERROR(AppendString(item, budget, &out));
  }
  return Value(out.Take());
}

OrValue SumFilter(const Value& value, const Arguments& arguments, Budget* budget) {
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"attribute", "start"}));
  QUIRE_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(value, budget));
  QUIRE_ASSIGN_OR_RETURN(int64_t integer, IntegerOr(bound[1], 0));
  double number = 0;
  bool is_float = false;
  for (const Value& item : items) {
    QUIRE_ASSIGN_OR_RETURN(const Value found, Attribute(item, bound[0]));
    int64_t i = 0;
    double f = 0;
    if (found.GetInteger(&i)) {
      if (__builtin_add_overflow(integer, i, &integer)) return InvalidArgument("the sum has more than 64 bits");
    } else if (found.GetNumber(&f)) {
      is_float = true;
      number += f;
    } else {
      return InvalidArgument("needs numbers, not a value of type ", std::string(found.type_name()));
    }
  }
  return is_float ? Value(number + static_cast<double>(integer)) : Value(integer);
}

OrValue BatchFilter(const Value& value, const Arguments& arguments, Budget* budget) {
  QUIRE_ASSIGN_OR_RETURN(const Bound bound, arguments.Bind({"linecount", "fill_with"}));
  QUIRE_ASSIGN_OR_RETURN(const int64_t count, IntegerOr(bound[0], 0));
  if (count < 1 || count > 100'000) return InvalidArgument("the size ", count, " is not in 1 .. 100000");
  QUIRE_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(value, budget));
  std::vector<Value> batches;
  for (size_t begin = 0; begin < items.size(); begin += static_cast<size_t>(count)) {
    const size_t end = std::min(items.size(), begin + static_cast<size_t>(count));
    std::vector<Value> batch(items.begin() + static_cast<ptrdiff_t>(begin),
                             items.begin() + static_cast<ptrdiff_t>(end));
    if (bound[1].has_value() && !bound[1]->is_none()) {
      QUIRE_RETURN_IF_ERROR(budget->BuildList(static_cast<size_t>(count)));
      batch.resize(static_cast<size_t>(count), *bound[1]);
    }
    batches.push_back(Value::MakeList(std::move(batch)));
  }
  return Value::MakeGenerator(std::move(batches));
}

}  // namespace

Filter FindSequenceFilter(std::string_view name) {
  static const auto* filters = new absl::flat_hash_map<std::string_view, Filter>{
      {"batch", BatchFilter},
      {"count", LengthFilter},
      {"dictsort", DictSortFilter},
      {"first", FirstFilter},
      {"items", ItemsFilter},
      {"join", JoinFilter},
      {"last", LastFilter},
      {"length", LengthFilter},
      {"list", ListFilter},
      {"map", MapFilter},
      {"max", ExtremeFilter<true>},
      {"min", ExtremeFilter<false>},
      {"reject", SelectFilter<false, false>},
      {"rejectattr", SelectFilter<false, true>},
      {"reverse", ReverseFilter},
      {"select", SelectFilter<true, false>},
      {"selectattr", SelectFilter<true, true>},
      {"sort", SortFilter},
      {"sum", SumFilter},
      {"unique", UniqueFilter},
  };
  const auto found = filters->find(name);
  return found == filters->end() ? nullptr : found->second;
}

}  // namespace quire::jinja
