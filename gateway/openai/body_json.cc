// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/body_json.h"

#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace quire {
namespace {

constexpr size_t kMaxDepth = 100;
constexpr size_t kMaxMembers = 2048;
constexpr size_t kMaxAllMembers = 65536;
constexpr size_t kMaxNumbers = size_t{1} << 22;
constexpr size_t kMaxOthers = size_t{1} << 18;
// Members of a smaller object are found faster one after the other.
constexpr size_t kMinIndexed = 32;

// The structure of a text, if it is JSON.
struct Outline {
  std::string reason;           // Why the text must not be parsed, or "".
  std::vector<uint32_t> sizes;  // The number of values in each list and object, in the order of their beginnings.
};

// Looks at the brackets, commas and colons of a text, which need not be JSON.
Outline OutlineOf(const std::string& text) {
  Outline outline;
  std::vector<size_t> open;  // Indices of `sizes`.
  std::vector<size_t> members;
  size_t num_values = 1;
  size_t num_members = 0;
  for (size_t i = 0; i < text.size() && outline.reason.empty(); ++i) {
    const char c = text[i];
    if (c == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i) {
        if (text[i] == '\\') ++i;
      }
    } else if (c == '{' || c == '[') {
      if (open.size() == kMaxDepth) outline.reason = absl::StrCat("is nested more than ", kMaxDepth, " deep");
      open.push_back(outline.sizes.size());
      members.push_back(0);
      outline.sizes.push_back(1);
      ++num_values;
    } else if (c == '}' || c == ']') {
      if (!open.empty()) {
        open.pop_back();
        members.pop_back();
      }
    } else if (c == ',' && !open.empty()) {
      ++outline.sizes[open.back()];
      ++num_values;
    } else if (c == ':' && !open.empty()) {
      if (++members.back() > kMaxMembers) {
        outline.reason = absl::StrCat("has an object with more than ", kMaxMembers, " members");
      } else if (++num_members > kMaxAllMembers) {
        outline.reason = absl::StrCat("has more than ", kMaxAllMembers, " members of objects");
      }
    }
    if (outline.sizes.size() > kMaxOthers) {
      outline.reason = absl::StrCat("has more than ", kMaxOthers, " values that are no numbers");
    } else if (num_values > kMaxNumbers + kMaxOthers) {
      outline.reason = absl::StrCat("has more than ", kMaxNumbers, " numbers");
    }
  }
  return outline;
}

// Makes values while a text is parsed. A list or an object gets its memory at its beginning, so it is not copied while
// it grows. Where an object has a name twice, the last value counts.
class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(const std::vector<uint32_t>& sizes) : sizes_(sizes) {}

  bool null() override { return AddOther(nullptr); }
  bool boolean(bool value) override { return AddOther(value); }
  bool number_integer(int64_t value) override { return AddNumber(value); }
  bool number_unsigned(uint64_t value) override { return AddNumber(value); }
  bool number_float(double value, const std::string& /*text*/) override { return AddNumber(value); }
  bool string(std::string& text) override { return AddOther(std::move(text)); }
  bool binary(Json::binary_t& /*bytes*/) override { return false; }  // Texts have none.
  bool start_object(size_t /*num_members*/) override { return Open(Json::object()); }
  bool start_array(size_t /*size*/) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(std::string& text) override;
  bool parse_error(size_t num_read, const std::string& /*token*/, const nlohmann::detail::exception& error) override {
    num_read_ = num_read;
    const std::string_view what = error.what();
    if (dynamic_cast<const Json::out_of_range*>(&error) != nullptr) {
      reason_ = "has a number that is too large for a double";
    } else if (what.find("surrogate") != what.npos) {
      reason_ = "has one half of a surrogate pair alone (\\ud800 to \\udfff), which is no character";
    }
    if (!reason_.empty()) absl::StrAppend(&reason_, ", before byte ", num_read);
    return false;
  }

  Json& root() { return root_; }
  // The number of bytes up to the wrong one, which is included.
  size_t num_read() const { return num_read_; }
  // Why the parsing was stopped, or "".
  const std::string& reason() const { return reason_; }

 private:
  // An open list or object.
  struct Level {
    Json* value;
    Json* member = nullptr;                                      // The next value of an object.
    absl::flat_hash_map<std::string_view, size_t> indices = {};  // The members of a large object.
  };

  template <typename Value>
  bool AddNumber(Value value) {
    if (++num_numbers_ > kMaxNumbers) return Stop(absl::StrCat("has more than ", kMaxNumbers, " numbers"));
    Place(Json(value));
    return true;
  }
  template <typename Value>
  bool AddOther(Value&& value) {
    return CountOther() && Place(Json(std::forward<Value>(value))) != nullptr;
  }
  bool CountOther() {
    return ++num_others_ <= kMaxOthers ||
           Stop(absl::StrCat("has more than ", kMaxOthers, " values that are no numbers"));
  }
  bool Stop(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }
  // Puts the value where it belongs.
  Json* Place(Json value);
  bool Open(Json value);
  bool Close() {
    levels_.pop_back();
    return true;
  }

  const std::vector<uint32_t>& sizes_;
  size_t num_opened_ = 0;
  size_t num_numbers_ = 0;
  size_t num_others_ = 0;
  size_t num_read_ = 0;
  std::string reason_;
  Json root_;
  std::vector<Level> levels_;
};

Json* Builder::Place(Json value) {
  if (levels_.empty()) {
    root_ = std::move(value);
    return &root_;
  }
  const Level& level = levels_.back();
  if (level.value->is_array()) return &level.value->get_ref<Json::array_t&>().emplace_back(std::move(value));
  *level.member = std::move(value);
  return level.member;
}

bool Builder::Open(Json value) {
  if (!CountOther()) return false;
  const uint32_t size = num_opened_ < sizes_.size() ? sizes_[num_opened_] : 0;
  ++num_opened_;
  Json* const place = Place(std::move(value));
  // An empty one gets its memory as well, because commas do not tell it from one with one value.
  if (size > 1 && place->is_array()) place->get_ref<Json::array_t&>().reserve(size);
  if (size > 1 && place->is_object()) place->get_ref<Json::object_t&>().reserve(size);
  levels_.push_back({place});
  return true;
}

bool Builder::key(std::string& text) {
  Level& level = levels_.back();
  // The base class does not look for the name among all others.
  auto& members = static_cast<Json::object_t::Container&>(level.value->get_ref<Json::object_t&>());
  if (members.capacity() < kMinIndexed) {
    level.member = &(*level.value)[text];
    return true;
  }
  if (const auto it = level.indices.find(text); it != level.indices.end()) {
    level.member = &members[it->second].second;
    return true;
  }
  // The members do not move, because there is memory for all of them.
  level.member = &members.emplace_back(std::move(text), nullptr).second;
  level.indices.emplace(members.back().first, members.size() - 1);
  return true;
}

}  // namespace

absl::StatusOr<Json> ParseBody(const std::string& body) {
  const Outline outline = OutlineOf(body);
  if (!outline.reason.empty()) return absl::InvalidArgumentError(absl::StrCat("the body ", outline.reason));
  Builder builder(outline.sizes);
  if (!Json::sax_parse(body, &builder)) {
    if (!builder.reason().empty()) return absl::InvalidArgumentError(absl::StrCat("the body ", builder.reason()));
    const bool has_place = builder.num_read() > 0 && builder.num_read() <= body.size();
    return absl::InvalidArgumentError(
        absl::StrCat("the body is not JSON in UTF-8: ",
                     has_place ? absl::StrCat("byte ", builder.num_read() - 1, " of ", body.size(), " is wrong")
                               : "it ends too early"));
  }
  if (!builder.root().is_object()) return absl::InvalidArgumentError("the body is not a JSON object");
  return std::move(builder.root());
}

}  // namespace quire
