// SPDX-License-Identifier: Apache-2.0

#include "base/json_reader.h"

#include <type_traits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace quire {
namespace {

constexpr size_t kMaxShown = 80;
// Members of a smaller object are found faster one after the other.
constexpr size_t kMinIndexed = 32;

std::string TooManyNumbers(const JsonLimits& limits) {
  return absl::StrCat("has more than ", limits.max_numbers, " numbers");
}

std::string TooManyOthers(const JsonLimits& limits) {
  return absl::StrCat("has more than ", limits.max_others, " values that are no numbers");
}

// Looks at the brackets, commas and colons of a text, which need not be JSON. Returns why it must not be parsed, or "".
// `sizes` gets the number of values in each list and object.
std::string Outline(std::string_view text, const JsonLimits& limits, std::vector<uint32_t>* sizes) {
  const size_t max_values =
      limits.max_others < SIZE_MAX - limits.max_numbers ? limits.max_others + limits.max_numbers : SIZE_MAX;
  std::vector<size_t> open;  // Indices of `sizes`.
  std::vector<size_t> members;
  size_t num_values = 1;
  size_t num_members = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i) {
        if (text[i] == '\\') ++i;
      }
    } else if (c == '{' || c == '[') {
      if (open.size() == limits.max_depth) return absl::StrCat("is nested deeper than ", limits.max_depth, " levels");
      open.push_back(sizes->size());
      members.push_back(0);
      sizes->push_back(1);
      ++num_values;
    } else if (c == '}' || c == ']') {
      if (!open.empty()) {
        open.pop_back();
        members.pop_back();
      }
    } else if (c == ',' && !open.empty()) {
      ++(*sizes)[open.back()];
      ++num_values;
    } else if (c == ':' && !open.empty()) {
      if (++members.back() > limits.max_members) {
        return absl::StrCat("has an object with more than ", limits.max_members, " members");
      }
      if (++num_members > limits.max_all_members) {
        return absl::StrCat("has more than ", limits.max_all_members, " members of objects");
      }
    }
    if (sizes->size() > limits.max_others) return TooManyOthers(limits);
    if (num_values > max_values) return TooManyNumbers(limits);
  }
  return "";
}

// Makes a tree of values. A list, and an object that keeps the order of its members, gets its memory at its beginning,
// so it is not copied while it grows.
template <typename Json>
class Builder final : public JsonEvents {
 public:
  Builder(const JsonLimits& limits, Json* root) : limits_(limits), root_(root) {}

  bool null() override { return AddOther(nullptr); }
  bool boolean(bool value) override { return AddOther(value); }
  bool number_integer(int64_t value) override { return AddNumber(value); }
  bool number_unsigned(uint64_t value) override { return AddNumber(value); }
  bool number_float(double value, const std::string& /*text*/) override { return AddNumber(value); }
  bool string(std::string& text) override { return AddOther(std::move(text)); }
  bool start_object(size_t /*num_members*/) override { return Open(Json::object()); }
  bool start_array(size_t /*size*/) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(std::string& text) override;

 private:
  static constexpr bool kIsOrdered = std::is_same_v<Json, nlohmann::ordered_json>;

  // An open list or object.
  struct Level {
    Json* value;
    Json* member = nullptr;  // The next value of an object.
    // Of the members of a large object that keeps their order.
    absl::flat_hash_map<std::string_view, size_t> indices = {};
  };

  template <typename Value>
  bool AddNumber(Value value) {
    if (++num_numbers_ > limits_.max_numbers) return Stop(TooManyNumbers(limits_));
    Place(Json(value));
    return true;
  }
  template <typename Value>
  bool AddOther(Value&& value) {
    return CountOther() && Place(Json(std::forward<Value>(value))) != nullptr;
  }
  bool CountOther() { return ++num_others_ <= limits_.max_others || Stop(TooManyOthers(limits_)); }
  // Puts the value where it belongs.
  Json* Place(Json value);
  bool Open(Json value);
  bool Close() {
    levels_.pop_back();
    return true;
  }
  // Sets `level`'s next member, and returns whether the object had none of this name.
  bool FindMember(std::string* name, Level* level);

  const JsonLimits& limits_;
  size_t num_numbers_ = 0;
  size_t num_others_ = 0;
  Json* const root_;
  std::vector<Level> levels_;
};

template <typename Json>
Json* Builder<Json>::Place(Json value) {
  if (levels_.empty()) {
    *root_ = std::move(value);
    return root_;
  }
  const Level& level = levels_.back();
  if (level.value->is_array()) {
    return &level.value->template get_ref<typename Json::array_t&>().emplace_back(std::move(value));
  }
  *level.member = std::move(value);
  return level.member;
}

template <typename Json>
bool Builder<Json>::Open(Json value) {
  if (!CountOther()) return false;
  Json* const place = Place(std::move(value));
  // With one value it may as well be empty, which commas do not tell. Then it gets no memory.
  if (const size_t size = TakeSize(); size > 1) {
    if (place->is_array()) place->template get_ref<typename Json::array_t&>().reserve(size);
    if constexpr (kIsOrdered) {
      if (place->is_object()) place->template get_ref<typename Json::object_t&>().reserve(size);
    }
  }
  levels_.push_back({place});
  return true;
}

template <typename Json>
bool Builder<Json>::key(std::string& text) {
  Level& level = levels_.back();
  if (limits_.allows_repeated_keys) {
    FindMember(&text, &level);
    return true;
  }
  const std::string name = text;
  return FindMember(&text, &level) || Stop(absl::StrCat("has the key ", Shown(name), " twice in one object"));
}

template <typename Json>
bool Builder<Json>::FindMember(std::string* name, Level* level) {
  auto& object = level->value->template get_ref<typename Json::object_t&>();
  const size_t num_before = object.size();
  if constexpr (kIsOrdered) {
    // The base class does not look for the name among all others.
    auto& members = static_cast<typename Json::object_t::Container&>(object);
    if (members.capacity() >= kMinIndexed) {
      if (const auto it = level->indices.find(*name); it != level->indices.end()) {
        level->member = &members[it->second].second;
        return false;
      }
      // The members do not move, because there is memory for all of them.
      level->member = &members.emplace_back(std::move(*name), nullptr).second;
      level->indices.emplace(members.back().first, members.size() - 1);
      return true;
    }
  }
  level->member = &object.emplace(std::move(*name), nullptr).first->second;
  return object.size() > num_before;
}

}  // namespace

std::optional<JsonFault> JsonEvents::Read(std::string_view text, const JsonLimits& limits) {
  text_size_ = text.size();
  fault_.reason = Outline(text, limits, &sizes_);
  if (fault_.reason.empty() &&
      nlohmann::json::sax_parse(text.begin(), text.end(), static_cast<nlohmann::json_sax<nlohmann::json>*>(this)))
    return std::nullopt;
  return std::move(fault_);
}

bool JsonEvents::Stop(std::string reason) {
  fault_.reason = std::move(reason);
  return false;
}

size_t JsonEvents::TakeSize() {
  return num_opened_ < sizes_.size() ? sizes_[num_opened_++] : 1;
}

bool JsonEvents::binary(nlohmann::json::binary_t& /*bytes*/) {
  return false;  // Texts have none.
}

bool JsonEvents::parse_error(size_t num_read, const std::string& /*token*/, const nlohmann::detail::exception& error) {
  const std::string_view what = error.what();
  if (dynamic_cast<const nlohmann::json::out_of_range*>(&error) != nullptr) {
    return Stop(absl::StrCat("has a number that is too large for a double, before byte ", num_read));
  }
  const bool is_whole = num_read > 0 && num_read <= text_size_;
  fault_.wrong_byte = is_whole ? num_read - 1 : text_size_;
  if (what.find("surrogate") != what.npos) {
    return Stop(
        absl::StrCat("has one half of a surrogate pair alone (\\ud800 to \\udfff), which is no character, "
                     "before byte ",
                     num_read));
  }
  return Stop(absl::StrCat(
      "is not JSON in UTF-8: ",
      is_whole ? absl::StrCat("byte ", num_read - 1, " of ", text_size_, " is wrong") : "it ends too early"));
}

template <typename Json>
std::optional<JsonFault> ReadJson(std::string_view text, const JsonLimits& limits, Json* value) {
  return Builder<Json>(limits, value).Read(text, limits);
}

template <typename Json>
absl::StatusOr<Json> ReadJson(std::string_view text, std::string_view name, const JsonLimits& limits) {
  Json value;
  const std::optional<JsonFault> fault = ReadJson(text, limits, &value);
  if (!fault.has_value()) return value;
  return absl::InvalidArgumentError(absl::StrCat(std::string(name), " ", fault->reason));
}

template std::optional<JsonFault> ReadJson(std::string_view, const JsonLimits&, nlohmann::json*);
template std::optional<JsonFault> ReadJson(std::string_view, const JsonLimits&, nlohmann::ordered_json*);
template absl::StatusOr<nlohmann::json> ReadJson(std::string_view, std::string_view, const JsonLimits&);
template absl::StatusOr<nlohmann::ordered_json> ReadJson(std::string_view, std::string_view, const JsonLimits&);

std::string Shown(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown - 3) + "...";
  return text;
}

}  // namespace quire
