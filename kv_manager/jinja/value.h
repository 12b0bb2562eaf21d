// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_JINJA_VALUE_H_
#define QUIRE_KV_MANAGER_JINJA_VALUE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv_manager/jinja/budget.h"
#include "kv_manager/jinja/text.h"

namespace quire::jinja {

struct List;
struct Dict;
struct Namespace;
struct Loop;
struct Function;

// A missing variable or attribute gives this. It prints as nothing and is false; nearly everything else that is done
// with it is an error, which says what is undefined.
struct Undefined {
  std::shared_ptr<const std::string> what;
};
struct None {};
// An integer of more than 64 bits in JSON. It is a number that can be written and compared for equality, but has no
// arithmetic.
struct BigInteger {
  std::shared_ptr<const std::string> digits;  // With the sign, if it is negative.
};

// A value of the template language, with Python's semantics. Lists and dictionaries are shared and do not change. Cheap
// to copy.
class Value {
 public:
  Value() : data_(Undefined{}) {}
  Value(None) : data_(None{}) {}  // NOLINT
  explicit Value(bool value) : data_(value) {}
  explicit Value(int64_t value) : data_(value) {}
  explicit Value(double value) : data_(value) {}
  explicit Value(BigInteger value) : data_(std::move(value)) {}
  explicit Value(Text text) : data_(std::make_shared<const Text>(std::move(text))) {}
  // A text that does not come from a user.
  explicit Value(std::string_view trusted);
  explicit Value(const char* trusted) : Value(std::string_view(trusted)) {}
  explicit Value(std::shared_ptr<const Dict> dict) : data_(std::move(dict)) {}
  explicit Value(std::shared_ptr<List> list) : data_(std::move(list)) {}
  explicit Value(std::shared_ptr<Namespace> value) : data_(std::move(value)) {}
  explicit Value(std::shared_ptr<Loop> value) : data_(std::move(value)) {}
  explicit Value(std::shared_ptr<const Function> value) : data_(std::move(value)) {}
  // `what` is the message of the errors that the value causes, for example "'x' is undefined".
  static Value MakeUndefined(std::string what);
  static Value MakeList(std::vector<Value> items);
  static Value MakeTuple(std::vector<Value> items);
  // Makes what filters such as `map` return: it can be iterated once and has no length.
  static Value MakeGenerator(std::vector<Value> items);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  const bool* as_bool() const { return std::get_if<bool>(&data_); }
  const int64_t* as_int() const { return std::get_if<int64_t>(&data_); }
  const double* as_float() const { return std::get_if<double>(&data_); }
  // These return null when the value has another type.
  const Text* as_text() const { return Pointer<const Text>(); }
  const Dict* as_dict() const { return Pointer<const Dict>(); }
  List* as_list() const { return Pointer<List>(); }
  Namespace* as_namespace() const { return Pointer<Namespace>(); }
  Loop* as_loop() const { return Pointer<Loop>(); }
  const Function* as_function() const { return Pointer<const Function>(); }
  // The digits of a BigInteger.
  const std::string* as_big_integer() const {
    const auto* value = std::get_if<BigInteger>(&data_);
    return value == nullptr ? nullptr : value->digits.get();
  }
  bool is_number() const {
    return as_bool() != nullptr || as_int() != nullptr || as_float() != nullptr || as_big_integer() != nullptr;
  }

  // The integer of an integer or boolean.
  bool GetInteger(int64_t* value) const;
  // The number of an integer, boolean or float.
  bool GetNumber(double* value) const;

  // The name of the type in error messages, for example "string".
  std::string_view type_name() const;
  // The message of the error that using this undefined value causes. REQUIRES: is_undefined().
  std::string undefined_message() const;
  bool IsTrue() const;
  // The nesting depth of lists and dictionaries. 0 for other values.
  int depth() const;

 private:
  template <typename T>
  T* Pointer() const {
    const auto* pointer = std::get_if<std::shared_ptr<T>>(&data_);
    return pointer == nullptr ? nullptr : pointer->get();
  }

  std::variant<Undefined, None, bool, int64_t, double, BigInteger, std::shared_ptr<const Text>, std::shared_ptr<List>,
               std::shared_ptr<const Dict>, std::shared_ptr<Namespace>, std::shared_ptr<Loop>,
               std::shared_ptr<const Function>>
      data_;
};

struct List {
  enum class Kind { kList, kTuple, kGenerator };
  Kind kind = Kind::kList;
  std::vector<Value> items;
  int depth = 1;
};

// A dictionary in the order of insertion. Keys are strings, numbers, booleans and none.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  absl::flat_hash_map<std::string, size_t> index;  // It maps HashOf(key) to an index into entries.
  int depth = 1;

  // INVALID_ARGUMENT when the key cannot be one. A new value of an existing key takes the place of the old one.
  absl::Status Set(const Value& key, Value value);
  // Returns null when there is none.
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
};

// namespace() returns this: the one thing that a template can change.
struct Namespace {
  Dict values;
};

// The variable `loop` of a for statement.
struct Loop {
  std::vector<Value> items;
  size_t index0 = 0;
  int depth0 = 0;
  std::vector<Value> last_changed;
  bool has_changed_before = false;
  const void* recursive_body = nullptr;  // The statement that loop(...) runs again, or null.
  std::shared_ptr<struct Scope> scope;   // That of the statement. Set with recursive_body only.
};

bool AreIdentical(const Value& a, const Value& b);
// Python's ==.
absl::StatusOr<bool> Equal(const Value& a, const Value& b, Budget* budget);
// Python's <. INVALID_ARGUMENT when the types have no order.
absl::StatusOr<bool> Less(const Value& a, const Value& b, Budget* budget);
// Python's `value in container`.
absl::StatusOr<bool> Contains(const Value& container, const Value& value, Budget* budget);

// The elements that iteration gives: of a list, the characters of a string, the keys of a dictionary. INVALID_ARGUMENT
// when the value cannot be iterated. A generator is empty afterwards.
absl::StatusOr<std::vector<Value>> Iterate(const Value& value, Budget* budget);
// len(). INVALID_ARGUMENT when there is none.
absl::StatusOr<int64_t> Length(const Value& value);

// Appends str(value), or repr(value).
absl::Status AppendString(const Value& value, Budget* budget, TextBuilder* out);
absl::Status AppendRepr(const Value& value, Budget* budget, TextBuilder* out);
absl::StatusOr<Text> ToText(const Value& value, Budget* budget);
std::string FloatRepr(double value);

}  // namespace quire::jinja

#endif  // QUIRE_KV_MANAGER_JINJA_VALUE_H_
