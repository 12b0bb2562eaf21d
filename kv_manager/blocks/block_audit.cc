// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/blocks/block_audit.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

using Kind = CountDifference::Kind;

std::string Describe(const CountDifference& difference) {
  const auto text = [&](const char* what, const char* of) {
    return absl::StrCat(what, " ", Value(difference.block), " counts ", difference.counted, " ", of, " and has ",
                        difference.recomputed);
  };
  switch (difference.kind) {
    case Kind::kReferences:
      return text("block", "references");
    case Kind::kCopies:
      return text("block", "copies");
    case Kind::kHostReferences:
      return text("host block", "references");
    case Kind::kCached:
      return text("block", "caches");
  }
  return "";
}

}  // namespace

absl::Status BlockAudit::ToStatus() const {
  if (!contradiction.ok()) return contradiction;
  if (differences.empty()) return absl::OkStatus();
  return absl::InternalError(Describe(differences.front()));
}

}  // namespace quire
