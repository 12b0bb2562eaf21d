// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_VIEWS_REQUEST_TREE_H_
#define QUIRE_CLIENT_VIEWS_REQUEST_TREE_H_

#include <string>

#include "absl/status/statusor.h"
#include "quire/v1/inspect.pb.h"

namespace quire {

// The samples or beams of a request as lines. Block table entries that several share are one line, and the entries of
// each sample or beam are indented below it. Beams are numbered by their place in `sequences`. DATA_LOSS when a node
// names a sequence, a table entry or a parent that does not exist.
absl::StatusOr<std::string> DrawTree(const v1::DescribeRequestResponse& request);

}  // namespace quire

#endif  // QUIRE_CLIENT_VIEWS_REQUEST_TREE_H_
