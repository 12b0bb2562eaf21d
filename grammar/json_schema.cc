// SPDX-License-Identifier: Apache-2.0

#include "grammar/json_schema.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/status.h"
#include "grammar/schema_cycles.h"
#include "grammar/schema_document.h"
#include "grammar/schema_expander.h"
#include "grammar/schema_facets.h"
#include "grammar/schema_shape.h"
#include "grammar/schema_texts.h"
#include "grammar/schema_values.h"
#include "grammar/schema_writer.h"

namespace quire::grammar {
namespace {

constexpr int kMaxSchemas = 2000;
constexpr int kMaxExprs = 250'000;
constexpr size_t kMaxShownKeywords = 10;

// Writes each goal as a rule. Goals wait in a queue, so that references may form circles.
class SchemaCompiler {
 public:
  SchemaCompiler(SyntaxTree* tree, JsonText* json) : tree_(*tree), json_(*json) {}

  absl::StatusOr<ExprId> Run(std::string_view text) {
    QUIRE_ASSIGN_OR_RETURN(document_, SchemaDocument::Parse(text));
    SchemaTexts texts(*document_, &tree_);
    SchemaExpander expander(document_.get());
    SchemaCycles cycles(*document_);
    context_ = std::make_unique<SchemaContext>(
        SchemaContext{tree_, json_, *document_, texts, [this](const Goal& goal) { return Use(goal); },
                      [&expander](ValueType type, const Goal& goal) { return expander.Expand(type, goal); }});
    cycles_ = &cycles;
    QUIRE_ASSIGN_OR_RETURN(const ExprId root, Use({{&document_->root()}}));
    while (!queue_.empty()) {
      const Pending next = std::move(queue_.front());
      queue_.pop_front();
      const SchemaJson& place = *next.goal.front().schema;
      if (tree_.num_rules() > kMaxSchemas) {
        return SchemaError(*document_, place, "there are more than ", kMaxSchemas, " schemas");
      }
      QUIRE_ASSIGN_OR_RETURN(const ExprId body, Body(next.goal, place));
      tree_.SetBody(next.rule, body);
      if (tree_.num_exprs() > kMaxExprs) {
        return SchemaError(*document_, place, "with this schema there are more than ", kMaxExprs,
                           " parts of texts; the ",
                           "most costly keywords are \"multipleOf\", \"contains\" and \"uniqueItems\"");
      }
    }
    return root;
  }

 private:
  struct Pending {
    Goal goal;
    RuleId rule;
  };

  absl::StatusOr<ExprId> Use(const Goal& goal) {
    if (goal.empty()) return json_.AnyValue();
    // If no text matches, the error names the schema that needs a value here, which says more than "false".
    if (goal.size() == 1 && !rules_.empty() && *goal[0].schema == goal[0].is_negated) return tree_.Nothing();
    const auto [entry, is_new] = rules_.try_emplace(goal, -1);
    if (is_new) {
      for (const Demand& demand : goal) QUIRE_RETURN_IF_ERROR(cycles_->Check(*demand.schema));
      entry->second = tree_.AddRule(document_->PlaceOf(*goal.front().schema), /*may_be_inlined=*/false);
      tree_.SetDemands(entry->second, ShownGoal(goal));
      queue_.push_back({goal, entry->second});
    }
    return tree_.Use(entry->second);
  }

  // The keywords of a goal with their values, without those that are long.
  static std::string ShownGoal(const Goal& goal) {
    std::vector<std::string> parts;
    for (const auto& [schema, is_negated, scope] : goal) {
      if (schema->is_boolean()) parts.push_back(absl::StrCat("the schema is ", Shown(*schema)));
      if (!schema->is_object()) continue;
      for (const auto& [keyword, value] : schema->items()) {
        if (parts.size() >= kMaxShownKeywords) return absl::StrJoin(parts, ", ");
        if (IsAnnotation(keyword)) continue;
        parts.push_back(absl::StrCat(is_negated ? "in \"not\", " : "", "\"", keyword, "\"",
                                     value.is_structured() ? " is there" : absl::StrCat(" is ", Shown(value))));
      }
    }
    return absl::StrJoin(parts, ", ");
  }

  absl::StatusOr<ExprId> Body(const Goal& goal, const SchemaJson& place) {
    if (goal.size() == 1 && !goal[0].is_negated) {
      QUIRE_RETURN_IF_ERROR(CheckKeywords(*document_, place));
      if (AcceptsAll(place)) return json_.AnyValue();
      if (const std::string keyword = OnlyJoin(place); !keyword.empty()) return Joined(place, keyword);
    }
    std::vector<ExprId> parts;
    std::vector<const SchemaJson*> constants;
    bool lacks_values = false, accepts_all = true;
    for (const ValueType type : kValueTypes) {
      QUIRE_ASSIGN_OR_RETURN(std::vector<Shape> shapes, context_->expand(type, goal));
      const size_t num_shapes = shapes.size();
      std::erase_if(shapes, [](const Shape& shape) { return !IsWritten(shape); });
      lacks_values |= shapes.size() < num_shapes;
      accepts_all &= std::any_of(shapes.begin(), shapes.end(), [](const Shape& s) { return !s.is_constrained; });
      for (const Shape& shape : shapes) {
        QUIRE_RETURN_IF_ERROR(AddShape(shape, place, &parts, &constants));
      }
    }
    if (accepts_all) return json_.AnyValue();
    QUIRE_RETURN_IF_ERROR(AddConstants(constants, goal, &parts));
    if (parts.empty() && lacks_values) {
      return SchemaError(*document_, place, "values that fit are not written, because ", WhyNotWritten(place));
    }
    return tree_.Choice(std::move(parts));
  }

  // Names a keyword, as all errors do.
  static std::string WhyNotWritten(const SchemaJson& schema) {
    const std::string keyword = schema.is_object() && !schema.empty() ? schema.begin().key() : "type";
    return absl::StrCat("beside the keyword \"", keyword, "\" they need \"type\", or have properties that no schema ",
                        "names and \"additionalProperties\" does not allow");
  }

  // The keyword that refers to other schemas, if a schema has no other.
  std::string OnlyJoin(const SchemaJson& schema) const {
    std::string only;
    for (const auto& [keyword, value] : schema.items()) {
      if (IsAnnotation(keyword)) continue;
      if (!only.empty()) return "";
      only = keyword;
    }
    if (only == "$ref" || only == "anyOf") return only;
    if (only != "oneOf" || !schema[only].is_array()) return "";
    const SchemaJson& members = schema[only];
    if (members.size() > kMaxOneOf) return "";
    for (size_t i = 0; i < members.size(); ++i) {
      for (size_t k = 0; k < i; ++k) {
        if (!AreDisjoint(*document_, members[k], members[i])) return "";
      }
    }
    return only;
  }

  absl::StatusOr<ExprId> Joined(const SchemaJson& schema, const std::string& keyword) {
    if (keyword == "$ref") {
      QUIRE_ASSIGN_OR_RETURN(const SchemaJson* target, document_->Resolve(schema, keyword));
      return Use({{target}});
    }
    QUIRE_RETURN_IF_ERROR(CheckList(*document_, schema, keyword));
    std::vector<ExprId> parts;
    for (const SchemaJson& member : schema[keyword]) {
      QUIRE_ASSIGN_OR_RETURN(const ExprId part, Use({{&member}}));
      parts.push_back(part);
    }
    return tree_.Choice(std::move(parts));
  }

  // Appends the texts of a shape, or its constants.
  absl::Status AddShape(const Shape& shape, const SchemaJson& place, std::vector<ExprId>* parts,
                        std::vector<const SchemaJson*>* constants) {
    if (shape.constants.has_value()) {
      constants->insert(constants->end(), shape.constants->begin(), shape.constants->end());
      return absl::OkStatus();
    }
    absl::StatusOr<ExprId> part;
    switch (shape.type) {
      case ValueType::kNull:
        constants->push_back(&null_);
        return absl::OkStatus();
      case ValueType::kBoolean:
        constants->insert(constants->end(), {&true_, &false_});
        return absl::OkStatus();
      case ValueType::kNumber:
        part = AddNumber(shape, place, *context_);
        break;
      case ValueType::kString:
        part = AddString(shape, place, *context_);
        break;
      case ValueType::kArray:
        part = AddArray(shape, place, *context_);
        break;
      case ValueType::kObject:
        part = AddObject(shape, place, *context_);
        break;
    }
    if (part.ok()) parts->push_back(*part);
    return part.status();
  }

  absl::Status AddConstants(const std::vector<const SchemaJson*>& constants, const Goal& goal,
                            std::vector<ExprId>* parts) {
    std::set<std::string> texts;
    for (const SchemaJson* value : constants) {
      QUIRE_ASSIGN_OR_RETURN(const bool fits, MeetsGoal(*value, goal, *document_, &context_->texts));
      if (fits && texts.insert(value->dump()).second) parts->push_back(tree_.Bytes(value->dump()));
    }
    return absl::OkStatus();
  }

  const SchemaJson null_ = nullptr, true_ = true, false_ = false;
  SyntaxTree& tree_;
  JsonText& json_;
  std::unique_ptr<SchemaDocument> document_;
  std::unique_ptr<SchemaContext> context_;
  SchemaCycles* cycles_ = nullptr;
  std::deque<Pending> queue_;
  std::map<Goal, RuleId> rules_;
};

}  // namespace

absl::StatusOr<SyntaxTree> ParseJsonSchema(std::string_view text) {
  SyntaxTree tree;
  JsonText json(&tree);
  QUIRE_RETURN_IF_ERROR(AddJsonSchema(text, &tree, &json).status());  // Its first rule is rule 0.
  return tree;
}

absl::StatusOr<ExprId> AddJsonSchema(std::string_view text, SyntaxTree* tree, JsonText* json) {
  return SchemaCompiler(tree, json).Run(text);
}

}  // namespace quire::grammar
