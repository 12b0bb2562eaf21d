// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_SCHEMA_EXPANDER_H_
#define QUIRE_GRAMMAR_SCHEMA_EXPANDER_H_

#include <functional>
#include <map>
#include <set>
#include <vector>

#include "absl/status/statusor.h"
#include "grammar/schema_document.h"
#include "grammar/schema_shape.h"

namespace quire::grammar {

// Largest number of shapes of one type that a goal may have.
inline constexpr int kMaxShapes = 500;
inline constexpr size_t kMaxOneOf = 500;  // Schemas of one oneOf.

// A shape under construction.
struct Alternative {
  // One way to continue.
  using Branch = std::function<void(Alternative*)>;

  // What the parts of a schema with unevaluatedItems or unevaluatedProperties say about items and properties.
  struct Scope {
    const SchemaJson* schema;
    int outer;  // Its parts are parts of this one, too.
    size_t num_items = 0;
    std::vector<const SchemaJson*> contained = {};  // Items that fit one of them are evaluated, too.
    bool has_all_items = false;
    bool has_all_properties = false;
    Shape::Rest properties = {};
  };

  explicit Alternative(ValueType type) : shape(type) {}
  // Calls `visit` for a scope and those around it.
  template <typename Visit>
  void ForScopes(int scope, Visit visit) {
    for (; scope > 0; scope = scopes[static_cast<size_t>(scope)].outer) visit(&scopes[static_cast<size_t>(scope)]);
  }

  Shape shape;
  std::vector<Demand> pending = {};               // Demands that the shape does not have yet.
  std::set<Demand> met = {};                      // Demands that it has.
  std::vector<std::vector<Branch>> choices = {};  // Lists from each of which one branch has to be taken.
  std::vector<Scope> scopes = {{nullptr, 0}};     // Scope 0 is none.
  bool is_dead = false;                           // No value fits.
};

// Turns goals into shapes: one schema for each way to meet anyOf, oneOf, not, if and the like.
class SchemaExpander {
 public:
  explicit SchemaExpander(SchemaDocument* document) : document_(*document) {}

  // The shapes describe the values of this type that meet the goal; they may overlap. INVALID_ARGUMENT, with the
  // place and the keyword, when a schema is wrong or has what is not supported, and when there are too many shapes.
  absl::StatusOr<std::vector<Shape>> Expand(ValueType type, const Goal& goal);

 private:
  using Branches = std::vector<Alternative::Branch>;

  absl::Status Meet(const Demand& demand, Alternative* to);
  // A schema that values must fit.
  absl::Status Assert(const SchemaJson& schema, int scope, Alternative* to);
  absl::Status AssertJoined(const SchemaJson& schema, const std::string& keyword, int scope, Alternative* to);
  absl::Status AssertAnyOf(const SchemaJson& schema, int scope, Alternative* to);
  absl::Status AssertOneOf(const SchemaJson& schema, int scope, Alternative* to);
  absl::Status AssertConstants(const SchemaJson& schema, const std::string& keyword, Alternative* to);
  // A schema that they must not fit: one of its keywords does not hold.
  absl::Status Deny(const SchemaJson& schema, Alternative* to);
  absl::Status DenyJoined(const SchemaJson& schema, const std::string& keyword, const Alternative& to,
                          Branches* branches);
  absl::Status DenyConstants(const SchemaJson& schema, const std::string& keyword, const Alternative& to,
                             Branches* branches);
  absl::StatusOr<Branches> BranchesOfExtra(const SchemaJson& schema, Alternative* to);

  void CloseScopes(Alternative* to);

  SchemaDocument& document_;
  std::map<const SchemaJson*, const SchemaJson*> schemas_of_constants_;
  std::map<std::vector<const SchemaJson*>, const SchemaJson*> schemas_of_items_;
  int64_t work_ = 0;  // The sizes of all alternatives together.
};

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_SCHEMA_EXPANDER_H_
