// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_SCHEMA_DOCUMENT_H_
#define QUIRE_GATEWAY_OPENAI_SCHEMA_DOCUMENT_H_

#include <cstddef>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "gateway/openai/body_json.h"

namespace quire {

// A JSON schema whose references are followed. The members of a large object are indexed once, so all references
// together take time that is proportional to their number and to the size of the schema. Not thread-safe.
class SchemaDocument {
 public:
  // REQUIRES: `root` outlives the document and does not change.
  explicit SchemaDocument(const Json& root) : root_(root) {}

  const Json& root() const { return root_; }

  // Returns what a reference within the document means, such as "#/$defs/a". Null if it means nothing there.
  const Json* TargetOf(const Json& reference);

  // Returns the member of an object of the document; null if there is none.
  const Json* MemberOf(const Json& object, absl::string_view name);

  // Returns the schema that has the properties of an object, which is the document or what it refers to; null if there
  // are none.
  const Json* SchemaWithProperties();

  // The number of names that were read to find members.
  size_t num_names_read() const { return num_names_read_; }

 private:
  using Index = absl::flat_hash_map<absl::string_view, const Json*>;

  // Returns an entry of a list or a member of an object.
  const Json* PartOf(const Json& whole, absl::string_view name);

  const Json& root_;
  absl::flat_hash_map<const Json*, Index> indices_;  // The keys are large objects.
  size_t num_names_read_ = 0;
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_SCHEMA_DOCUMENT_H_
