// SPDX-License-Identifier: Apache-2.0

#include "security/method_access.h"

#include <set>
#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "grpc/health/v1/health.pb.h"
#include "gtest/gtest.h"
#include "quire/v1/admin.pb.h"
#include "quire/v1/inference.pb.h"
#include "quire/v1/worker.pb.h"

namespace quire {
namespace {

// Returns every method in the proto files that have services.
std::vector<std::string> Methods() {
  const google::protobuf::FileDescriptor* const files[] = {
      v1::GenerateRequest::descriptor()->file(), v1::GetStatusRequest::descriptor()->file(),
      v1::DescribeRequest::descriptor()->file(), ::grpc::health::v1::HealthCheckRequest::descriptor()->file()};
  std::vector<std::string> methods;
  for (const auto* file : files) {
    for (int i = 0; i < file->service_count(); ++i) {
      const auto* service = file->service(i);
      for (int j = 0; j < service->method_count(); ++j) {
        methods.push_back("/" + service->full_name() + "/" + service->method(j)->name());
      }
    }
  }
  return methods;
}

TEST(MethodAccessTest, EveryMethodHasAnEntry) {
  EXPECT_GT(Methods().size(), 12u);
  for (const std::string& method : Methods()) {
    EXPECT_TRUE(MethodAccess(method).has_value()) << method << " has no entry in security/method_access.cc";
  }
}

TEST(MethodAccessTest, AServicesMethodsAreForThoseWhomItServes) {
  const std::set<std::string> of_tenants = {"/quire.v1.AdminService/ExplainWait"};
  for (const std::string& method : Methods()) {
    Access expected = Access::kAnyone;
    if (method.starts_with("/quire.v1.WorkerService/")) expected = Access::kManager;
    if (method.starts_with("/quire.v1.InferenceService/")) expected = Access::kTenant;
    if (method.starts_with("/quire.v1.AdminService/")) {
      expected = of_tenants.contains(method) ? Access::kTenant : Access::kAdmin;
    }
    EXPECT_EQ(MethodAccess(method), expected) << method;
  }
}

TEST(MethodAccessTest, WhatIsNotListedHasNone) {
  for (const char* path : {"", "/", "/quire.v1.InferenceService/Steal", "quire.v1.InferenceService/Generate",
                           "/quire.v1.InferenceService/generate", "/quire.v1.InferenceService/Generate/"}) {
    EXPECT_FALSE(MethodAccess(path).has_value()) << path;
  }
}

}  // namespace
}  // namespace quire
