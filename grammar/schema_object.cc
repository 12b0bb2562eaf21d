// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "grammar/regex_parser.h"
#include "grammar/schema_facets.h"
#include "grammar/schema_values.h"
#include "grammar/schema_writer.h"
#include "grammar/string_kinds.h"

namespace quire::grammar {
namespace {

constexpr int kMaxGraphNodes = 20'000;
constexpr size_t kMaxPatterns = 32;
constexpr size_t kMaxKeyClasses = 32;
constexpr int kMaxNameKinds = 700;  // Together behind all numbers of properties.

// Writes the properties of a shape in their order, and then the others.
class ObjectWriter {
 public:
  ObjectWriter(const Shape& shape, const SchemaJson& place, const SchemaContext& context)
      : shape_(shape), place_(place), context_(context), tree_(context.tree), is_open_(IsOpen(shape)) {}

  absl::StatusOr<ExprId> Write() {
    if (shape_.patterns.size() > kMaxPatterns) {
      return SchemaError(context_.document, place_, "the keyword \"patternProperties\" has ", shape_.patterns.size(),
                         " patterns, with those that are joined, at most ", kMaxPatterns, " are supported");
    }
    QUIRE_RETURN_IF_ERROR(FindEntries());
    QUIRE_ASSIGN_OR_RETURN(const std::vector<ExprId> others, Others());
    const int num_required = static_cast<int>(
        std::count_if(entries_.begin(), entries_.end(), [](const Entry& entry) { return entry.is_required; }));
    std::vector<ExprId> different;
    if (!others.empty() && shape_.min_properties > std::max(1, num_required)) {
      QUIRE_ASSIGN_OR_RETURN(different, OthersByName());
    }
    return Graph(others, different);
  }

 private:
  struct Entry {
    std::string name;
    bool is_required;
    ExprId value;
  };
  // Names that match the same patterns.
  struct KeyClass {
    CharacterDfa names;
    std::vector<size_t> patterns;  // Indices in shape_.patterns.
  };

  absl::StatusOr<std::vector<size_t>> PatternsOf(const std::string& name) {
    std::vector<size_t> matching;
    for (size_t i = 0; i < shape_.patterns.size(); ++i) {
      const Shape::Pattern& pattern = shape_.patterns[i];
      QUIRE_ASSIGN_OR_RETURN(const CharacterDfa* dfa, context_.texts.OfPropertyPattern(*pattern.schema, pattern.regex));
      if (dfa->Matches(name)) matching.push_back(i);
    }
    return matching;
  }

  // Adds what patterns and additionalProperties say about the value of a property. `name` is null for names that no
  // schema has.
  void AddDemands(const std::string* name, const std::vector<size_t>& patterns, Goal* goal) const {
    for (const size_t i : patterns) AddDemand(shape_.patterns[i].value, goal);
    for (const Shape::Rest& rest : shape_.rests) {
      const bool is_described =
          name != nullptr && std::find(rest.names.begin(), rest.names.end(), *name) != rest.names.end();
      const bool has_pattern = std::any_of(patterns.begin(), patterns.end(), [&](size_t i) {
        const std::pair pattern(shape_.patterns[i].schema, shape_.patterns[i].regex);
        return std::find(rest.patterns.begin(), rest.patterns.end(), pattern) != rest.patterns.end();
      });
      if (!is_described && !has_pattern) AddDemand({rest.value}, goal);
    }
  }

  absl::Status FindEntries() {
    for (const bool is_described : {true, false}) {
      for (const Shape::Property& property : shape_.properties) {
        if (property.is_described != is_described) continue;
        listed_.push_back(property.name);
        const bool may_come = is_open_ || property.is_named || property.is_allowed;
        if (property.is_forbidden || !may_come) continue;
        QUIRE_ASSIGN_OR_RETURN(const bool is_name,
                               MeetsGoal(SchemaJson(property.name), shape_.names, context_.document, &context_.texts));
        if (!is_name && !property.is_required) continue;
        QUIRE_RETURN_IF_ERROR(AddEntry(property, is_name));
      }
    }
    return absl::OkStatus();
  }

  absl::Status AddEntry(const Shape::Property& property, bool is_name) {
    QUIRE_ASSIGN_OR_RETURN(const std::vector<size_t> patterns, PatternsOf(property.name));
    Goal goal = property.value;
    AddDemands(&property.name, patterns, &goal);
    QUIRE_ASSIGN_OR_RETURN(const ExprId value, context_.use(goal));
    entries_.push_back({property.name, property.is_required, is_name ? value : tree_.Nothing()});
    return absl::OkStatus();
  }

  // The names that `propertyNames` allows, if they are listed.
  absl::StatusOr<std::optional<std::vector<std::string>>> ListedNames() {
    std::vector<std::string> names;
    if (shape_.names.empty()) return std::optional<std::vector<std::string>>();
    QUIRE_ASSIGN_OR_RETURN(const std::vector<Shape> shapes, context_.expand(ValueType::kString, shape_.names));
    for (const Shape& shape : shapes) {
      if (!shape.constants.has_value()) return std::optional<std::vector<std::string>>();
      for (const SchemaJson* value : *shape.constants) {
        QUIRE_ASSIGN_OR_RETURN(const bool fits, MeetsGoal(*value, shape_.names, context_.document, &context_.texts));
        const std::string name = value->get<std::string>();
        if (fits && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      }
    }
    return std::optional(std::move(names));
  }

  // Properties with other names, each with its key.
  absl::StatusOr<std::vector<ExprId>> Others() {
    std::vector<ExprId> others;
    if (!is_open_ && shape_.patterns.empty()) return others;
    QUIRE_ASSIGN_OR_RETURN(const auto names, ListedNames());
    if (names.has_value()) {
      for (const std::string& name : *names) {
        if (std::find(listed_.begin(), listed_.end(), name) != listed_.end()) continue;
        QUIRE_ASSIGN_OR_RETURN(const std::vector<size_t> patterns, PatternsOf(name));
        if (is_open_ || !patterns.empty()) {
          QUIRE_RETURN_IF_ERROR(AddEntry({.name = name}, /*is_name=*/true));
        }
      }
      return others;
    }
    if (shape_.names.empty() && shape_.patterns.empty()) {
      QUIRE_RETURN_IF_ERROR(AddOther(context_.json.KeyExcept(listed_), {}, &others));
      return others;
    }
    QUIRE_ASSIGN_OR_RETURN(const std::vector<KeyClass> classes, KeyClasses());
    for (const KeyClass& one : classes) {
      const ExprId body = one.names.AddTo(RegexText::kJsonString, &tree_);
      const ExprId key = tree_.Sequence({tree_.Bytes("\""), body, tree_.Bytes("\"")});
      QUIRE_RETURN_IF_ERROR(AddOther(key, one.patterns, &others));
    }
    return others;
  }

  absl::Status AddOther(ExprId key, const std::vector<size_t>& patterns, std::vector<ExprId>* others) {
    Goal goal;
    AddDemands(nullptr, patterns, &goal);
    QUIRE_ASSIGN_OR_RETURN(const ExprId value, context_.use(goal));
    const std::string name = absl::StrCat("keys of ", context_.document.PlaceOf(place_));
    const RuleId rule = tree_.AddRule(name, /*may_be_inlined=*/false);
    tree_.SetBody(rule, key);
    others->push_back(tree_.Sequence({tree_.Use(rule), tree_.Bytes(":"), context_.json.Space(), value}));
    return absl::OkStatus();
  }

  // Properties with other names and without the quotation mark with which they begin: one expression for each kind of
  // names, so that two kinds have different names.
  absl::StatusOr<std::vector<ExprId>> OthersByName() {
    QUIRE_ASSIGN_OR_RETURN(const std::vector<KeyClass> classes, KeyClasses());
    std::vector<StringKinds> names;
    for (const KeyClass& one : classes) {
      Goal goal;
      AddDemands(nullptr, one.patterns, &goal);
      QUIRE_ASSIGN_OR_RETURN(const ExprId value, context_.use(goal));
      names.emplace_back(one.names, tree_.Sequence({tree_.Bytes("\":"), context_.json.Space(), value}), &tree_);
    }
    std::vector<ExprId> kinds;
    std::vector<KindGroups> groups;
    for (const FirstCharacter& first : FirstCharacters()) {
      std::vector<ExprId> parts;
      for (const StringKinds& one : names) {
        if (const std::optional<ExprId> part = one.BeginningWith(first.characters)) parts.push_back(*part);
      }
      if (parts.empty()) continue;
      kinds.push_back(tree_.Choice(std::move(parts)));
      groups.push_back(first.groups);
    }
    for (size_t level = 0; level < KindGroups().size(); ++level) {
      if (static_cast<int>(kinds.size()) * (shape_.min_properties + 1) <= kMaxNameKinds) break;
      kinds = JoinGroups(kinds, level, &groups, &tree_);
    }
    const int most = std::min(static_cast<int>(kinds.size()), kMaxNameKinds / static_cast<int>(kinds.size() + 1));
    if (most >= shape_.min_properties) return kinds;
    return SchemaError(context_.document, place_, "the keyword \"minProperties\" is ", shape_.min_properties,
                       ", which is too many where other properties may come: at most ", most, " are supported");
  }

  absl::StatusOr<std::vector<KeyClass>> KeyClasses() {
    CharacterDfa all = CharacterDfa::Except(listed_);
    if (!shape_.names.empty()) {
      QUIRE_ASSIGN_OR_RETURN(const CharacterDfa names, StringsOf(shape_.names, place_, context_));
      QUIRE_ASSIGN_OR_RETURN(all, Joined(all, names));
    }
    std::vector<KeyClass> classes = {{std::move(all), {}}};
    for (size_t i = 0; i < shape_.patterns.size(); ++i) {
      const Shape::Pattern& pattern = shape_.patterns[i];
      QUIRE_ASSIGN_OR_RETURN(const CharacterDfa* dfa, context_.texts.OfPropertyPattern(*pattern.schema, pattern.regex));
      std::vector<KeyClass> split;
      for (const KeyClass& one : classes) {
        QUIRE_ASSIGN_OR_RETURN(CharacterDfa inside, Joined(one.names, *dfa));
        QUIRE_ASSIGN_OR_RETURN(CharacterDfa outside, Joined(one.names, dfa->Complement()));
        std::vector<size_t> patterns = one.patterns;
        if (!outside.empty()) split.push_back({std::move(outside), patterns});
        patterns.push_back(i);
        if (!inside.empty()) split.push_back({std::move(inside), std::move(patterns)});
      }
      classes = std::move(split);
      if (classes.size() <= kMaxKeyClasses) continue;
      return SchemaError(context_.document, place_, "names match the patterns of the keyword \"patternProperties\" in ",
                         "more than ", kMaxKeyClasses, " ways");
    }
    const auto may_come = [&](const KeyClass& one) { return is_open_ || !one.patterns.empty(); };
    std::erase_if(classes, [&](const KeyClass& one) { return !may_come(one) || one.names.empty(); });
    return classes;
  }

  absl::StatusOr<CharacterDfa> Joined(const CharacterDfa& a, const CharacterDfa& b) const {
    absl::StatusOr<CharacterDfa> both = a.Intersection(b, tree_.character_steps());
    if (both.ok()) return both;
    return SchemaError(context_.document, place_, "the keywords \"patternProperties\" and \"propertyNames\" are too ",
                       "large: ", both.status().message());
  }

  ExprId Separator(bool is_first) {
    const ExprId space = context_.json.Space();
    return is_first ? space : tree_.Sequence({tree_.Bytes(","), space});
  }

  // Node (i, c) of the graph stands behind entry i, when there are c properties, or at least c if c is the last one.
  // Until there are minProperties of them, other properties are `different`, if it is not empty.
  absl::StatusOr<ExprId> Graph(const std::vector<ExprId>& others, const std::vector<ExprId>& different) {
    const int num_entries = static_cast<int>(entries_.size());
    const bool is_limited =
        shape_.max_properties != kUnbounded && (!others.empty() || shape_.max_properties < num_entries);
    const int last = std::max({1, shape_.min_properties, is_limited ? shape_.max_properties : 0});
    const int64_t num_nodes = int64_t{num_entries + 1} * (last + 1);
    if (num_nodes > kMaxGraphNodes) {
      return SchemaError(context_.document, place_, num_entries, " properties and numbers of them up to ", last,
                         " need ", num_nodes, " nodes, at most ", kMaxGraphNodes, " are supported");
    }
    const auto node = [&](int entry, int count) { return entry * (last + 1) + count; };
    const auto may_add = [&](int count) { return !is_limited || count < shape_.max_properties; };
    std::vector<Expr::Edge> edges;
    for (int i = 0; i < num_entries; ++i) {
      const Entry& entry = entries_[static_cast<size_t>(i)];
      const ExprId key = tree_.Bytes(SchemaJson(entry.name).dump() + ":");
      for (int count = 0; count <= last; ++count) {
        if (!entry.is_required) edges.push_back({node(i, count), node(i + 1, count), tree_.Empty()});
        if (!may_add(count)) continue;
        const ExprId member = tree_.Sequence({Separator(count == 0), key, context_.json.Space(), entry.value});
        edges.push_back({node(i, count), node(i + 1, std::min(count + 1, last)), member});
      }
    }
    const int first_different = node(num_entries + 1, 0);
    const int end = AddDifferent(different, node(num_entries, 0), first_different, &edges);
    const ExprId close = tree_.Sequence({context_.json.Space(), tree_.Bytes("}")});
    for (int count = 0; count <= last; ++count) {
      const bool is_different = !different.empty() && count < shape_.min_properties;
      if (!others.empty() && may_add(count) && !is_different) {
        const ExprId member = tree_.Sequence({Separator(count == 0), tree_.Choice(others)});
        edges.push_back({node(num_entries, count), node(num_entries, std::min(count + 1, last)), member});
      }
      if (count >= shape_.min_properties) edges.push_back({node(num_entries, count), end, close});
    }
    return tree_.Sequence({tree_.Bytes("{"), tree_.Graph(end + 1, std::move(edges))});
  }

  // Adds the edges of properties that differ, which come in their order. Node `counted` + c stands behind the entries,
  // when there are c properties. Returns the number of the first node that is free.
  int AddDifferent(const std::vector<ExprId>& different, int counted, int first_free, std::vector<Expr::Edge>* edges) {
    const auto num_kinds = static_cast<int>(different.size());
    // Kinds from k on may follow, behind c properties, and behind the separator.
    const auto behind = [&](int k, int c) {
      return k == 0 || c == shape_.min_properties ? counted + c : first_free + 2 * (k * shape_.min_properties + c);
    };
    const auto before = [&](int k, int c) { return first_free + 2 * (k * shape_.min_properties + c) + 1; };
    for (int k = 0; k < num_kinds; ++k) {
      for (int c = 0; c < shape_.min_properties; ++c) {
        edges->push_back({behind(k, c), before(k, c), tree_.Sequence({Separator(c == 0), tree_.Bytes("\"")})});
        edges->push_back({before(k, c), behind(k + 1, c + 1), different[static_cast<size_t>(k)]});
        if (k + 1 < num_kinds) edges->push_back({before(k, c), before(k + 1, c), tree_.Empty()});
      }
    }
    return different.empty() ? first_free : first_free + 2 * (num_kinds + 1) * shape_.min_properties;
  }

  const Shape& shape_;
  const SchemaJson& place_;
  const SchemaContext& context_;
  SyntaxTree& tree_;
  const bool is_open_;
  std::vector<Entry> entries_;
  std::vector<std::string> listed_;  // The names that other properties do not have.
};

}  // namespace

absl::StatusOr<ExprId> AddObject(const Shape& shape, const SchemaJson& place, const SchemaContext& context) {
  return ObjectWriter(shape, place, context).Write();
}

}  // namespace quire::grammar
