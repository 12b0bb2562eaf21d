// SPDX-License-Identifier: Apache-2.0

#include "security/method_access.h"

#include "absl/container/flat_hash_map.h"

namespace quire {
namespace {

const absl::flat_hash_map<absl::string_view, Access>& Table() {
  static const auto* const table = new absl::flat_hash_map<absl::string_view, Access>{
      {"/grpc.health.v1.Health/Check", Access::kAnyone},
      {"/grpc.health.v1.Health/Watch", Access::kAnyone},
      {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Access::kTenant},

      {"/quire.v1.InferenceService/Generate", Access::kTenant},
      {"/quire.v1.InferenceService/GenerateBatch", Access::kTenant},
      {"/quire.v1.InferenceService/Resume", Access::kTenant},
      {"/quire.v1.InferenceService/Embed", Access::kTenant},
      {"/quire.v1.InferenceService/Tokenize", Access::kTenant},
      {"/quire.v1.InferenceService/Detokenize", Access::kTenant},
      {"/quire.v1.InferenceService/RenderChat", Access::kTenant},
      {"/quire.v1.InferenceService/GetModel", Access::kTenant},
      {"/quire.v1.InferenceService/Abort", Access::kTenant},

      {"/quire.v1.AdminService/GetStatus", Access::kAdmin},
      {"/quire.v1.AdminService/ExplainWait", Access::kTenant},
      {"/quire.v1.AdminService/PinPrefix", Access::kAdmin},
      {"/quire.v1.AdminService/UnpinPrefix", Access::kAdmin},
      {"/quire.v1.AdminService/WatchBlocks", Access::kAdmin},
      {"/quire.v1.AdminService/DescribeBlock", Access::kAdmin},
      {"/quire.v1.AdminService/ListRequests", Access::kAdmin},
      {"/quire.v1.AdminService/DescribeRequest", Access::kAdmin},
      {"/quire.v1.AdminService/Audit", Access::kAdmin},
      {"/quire.v1.AdminService/Drain", Access::kAdmin},
      {"/quire.v1.AdminService/Undrain", Access::kAdmin},
      {"/quire.v1.AdminService/FlushPrefixCache", Access::kAdmin},

      {"/quire.v1.WorkerService/Describe", Access::kManager},
      {"/quire.v1.WorkerService/Steps", Access::kManager},
      {"/quire.v1.WorkerService/Refuse", Access::kManager},
  };
  return *table;
}

}  // namespace

std::optional<Access> MethodAccess(absl::string_view path) {
  const auto entry = Table().find(path);
  return entry == Table().end() ? std::nullopt : std::optional(entry->second);
}

}  // namespace quire
