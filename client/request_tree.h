#ifndef QUIRE_CLIENT_REQUEST_TREE_H_
#define QUIRE_CLIENT_REQUEST_TREE_H_

#include <string>

#include "absl/status/statusor.h"
#include "quire/v1/inspect.pb.h"

namespace quire {

// The samples or beams of a request as lines: what forks share is a line, and below it, indented, what each has for
// itself. DATA_LOSS when a node names a sample, an entry of a table or a parent that is not there.
absl::StatusOr<std::string> DrawTree(const v1::DescribeRequestResponse& request);

}  // namespace quire

#endif  // QUIRE_CLIENT_REQUEST_TREE_H_
