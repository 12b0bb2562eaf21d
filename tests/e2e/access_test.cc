// SPDX-License-Identifier: Apache-2.0

// Calls every method of both ports as every kind of caller.

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "quire/v1/admin.pb.h"
#include "quire/v1/inference.pb.h"
#include "quire/v1/worker.pb.h"
#include "security/credentials.h"
#include "security/method_access.h"
#include "tests/e2e/cluster.h"
#include "tests/e2e/installation.h"

namespace quire {
namespace {

using Code = grpc::StatusCode;

constexpr char kReflection[] = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
constexpr char kHealth[] = "/grpc.health.v1.Health/Check";

std::vector<std::string> MethodsOf(const google::protobuf::ServiceDescriptor* service) {
  std::vector<std::string> methods;
  for (int i = 0; i < service->method_count(); ++i) {
    methods.push_back("/" + service->full_name() + "/" + service->method(i)->name());
  }
  return methods;
}

std::vector<std::string> ManagerMethods() {
  std::vector<std::string> methods = MethodsOf(v1::GenerateRequest::descriptor()->file()->service(0));
  for (const std::string& method : MethodsOf(v1::GetStatusRequest::descriptor()->file()->service(0))) {
    methods.push_back(method);
  }
  methods.insert(methods.end(), {kReflection, kHealth, "/quire.v1.InferenceService/NoSuchMethod"});
  return methods;
}

std::vector<std::string> WorkerMethods() {
  std::vector<std::string> methods = MethodsOf(v1::DescribeRequest::descriptor()->file()->service(0));
  methods.insert(methods.end(), {kReflection, kHealth});
  return methods;
}

// A caller: how it connects and what it sends.
struct Guest {
  std::string name;
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  std::string token = "";
};

std::shared_ptr<grpc::Channel> Connect(const std::string& address, const std::string& server_name, const Guest& guest) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetSslTargetNameOverride(server_name);
  return grpc::CreateCustomChannel(address, guest.credentials, arguments);
}

// Calls the method with an empty message and returns how the call ends. OK as soon as a response comes.
Code Call(const std::shared_ptr<grpc::Channel>& channel, const std::string& method, const std::string& token) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
  grpc::CompletionQueue queue;
  const auto wait = [&queue] {
    void* tag;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  const auto call = stub.PrepareCall(&context, method, &queue);
  call->StartCall(nullptr);
  wait();
  const grpc::Slice nothing;
  const grpc::ByteBuffer request(&nothing, 1);
  call->WriteLast(request, grpc::WriteOptions(), nullptr);
  wait();
  grpc::ByteBuffer response;
  call->Read(&response, nullptr);
  if (wait()) return Code::OK;
  grpc::Status status;
  call->Finish(&status, nullptr);
  wait();
  return status.error_code();
}

// True if the call was admitted. How the service answers an empty request does not matter.
bool IsLetIn(Code code) {
  const Code closed[] = {Code::UNAUTHENTICATED, Code::PERMISSION_DENIED, Code::UNAVAILABLE, Code::DEADLINE_EXCEEDED};
  return std::find(std::begin(closed), std::end(closed), code) == std::end(closed);
}

class AccessTest : public ::testing::Test {
 protected:
  AccessTest() { installation_.WriteTokens({"acme"}); }

  // Callers whose certificate is not accepted.
  std::vector<Guest> Outsiders() {
    TlsFiles strange = stranger_.Issue("strange", "quire-admin", /*is_expired=*/false);
    strange.authority = installation_.authority().file();
    const TlsFiles expired = installation_.authority().Issue("expired", "quire-admin", /*is_expired=*/true);
    const std::string token = Installation::TokenOf("ops");
    return {{"plain text", grpc::InsecureChannelCredentials(), token},
            {"no certificate", TlsChannelCredentials({.authority = installation_.authority().file()}), token},
            {"wrong authority", TlsChannelCredentials(strange), token},
            {"expired", TlsChannelCredentials(expired), token}};
  }
  Guest With(const std::string& certificate, const std::string& token = "") {
    return {certificate + " with token '" + token + "'", TlsChannelCredentials(installation_.Of(certificate)), token};
  }

  Installation installation_;
  TestAuthority stranger_{installation_.directory(), "stranger"};
};

// The code that the manager must answer with. OK means that the call is admitted.
Code Expected(const std::string& method, const std::string& certificate, const std::string& token) {
  const auto access = MethodAccess(method);
  if (!access.has_value()) return Code::PERMISSION_DENIED;
  if (*access == Access::kAnyone) return Code::OK;
  const bool is_admin = certificate == "quire-admin";
  if (!is_admin && (certificate != "quire-client" || *access == Access::kAdmin)) return Code::PERMISSION_DENIED;
  if (token != Installation::TokenOf("acme") && token != Installation::TokenOf("ops")) return Code::UNAUTHENTICATED;
  if (*access == Access::kAdmin && token != Installation::TokenOf("ops")) return Code::PERMISSION_DENIED;
  return Code::OK;
}

TEST_F(AccessTest, EveryMethodOfTheManagerWithEveryKindOfCaller) {
  ClusterOptions options = installation_.MutualTls();
  options.manager_flags.push_back("--tokens=" + installation_.tokens());
  options.client.token = Installation::TokenOf("ops");
  Cluster cluster(options);
  for (const Guest& guest : Outsiders()) {
    const auto channel = Connect(cluster.endpoint(), "quire-manager", guest);
    for (const std::string& method : ManagerMethods()) {
      EXPECT_EQ(Call(channel, method, guest.token), Code::UNAVAILABLE) << method << ", " << guest.name;
    }
  }
  for (const char* certificate : {"quire-client", "quire-admin", "quire-worker", "quire-manager"}) {
    for (const char* token : {"", "unknown", "token-of-acme", "token-of-ops"}) {
      const Guest guest = With(certificate, token);
      const auto channel = Connect(cluster.endpoint(), "quire-manager", guest);
      for (const std::string& method : ManagerMethods()) {
        const Code expected = Expected(method, certificate, token);
        const Code code = Call(channel, method, token);
        if (expected == Code::OK) {
          EXPECT_TRUE(IsLetIn(code)) << code << ": " << method << ", " << guest.name;
        } else {
          EXPECT_EQ(code, expected) << method << ", " << guest.name;
        }
      }
    }
  }
}

TEST_F(AccessTest, EveryMethodOfAWorkerWithEveryKindOfCaller) {
  Cluster cluster(installation_.MutualTls());
  const std::string address = cluster.worker_endpoint(0);
  for (const Guest& guest : Outsiders()) {
    const auto channel = Connect(address, "quire-worker", guest);
    for (const std::string& method : WorkerMethods()) {
      EXPECT_EQ(Call(channel, method, guest.token), Code::UNAVAILABLE) << method << ", " << guest.name;
    }
  }
  for (const char* certificate : {"quire-client", "quire-admin", "quire-worker", "quire-manager"}) {
    const auto channel = Connect(address, "quire-worker", With(certificate));
    for (const std::string& method : WorkerMethods()) {
      const Code code = Call(channel, method, "");
      const bool is_open = method == kHealth || (std::string(certificate) == "quire-manager" && method != kReflection);
      if (is_open) {
        EXPECT_TRUE(IsLetIn(code)) << code << ": " << method << ", " << certificate;
      } else {
        EXPECT_EQ(code, Code::PERMISSION_DENIED) << method << ", " << certificate;
      }
    }
  }
}

// A manager does not accept a client's certificate from a worker.
TEST_F(AccessTest, AManagerWantsTheNameOfItsWorkers) {
  ClusterOptions options = installation_.MutualTls();
  options.worker_flags = Installation::Flags(installation_.Of("quire-client"));
  options.waits_for_workers = false;
  Cluster cluster(options);
  std::string error;
  const absl::Time end = absl::Now() + absl::Minutes(1);
  while (!absl::StrContains(error, "Hostname Verification") && absl::Now() < end) {
    const auto status = cluster.client().GetStatus();
    ASSERT_TRUE(status.ok()) << status.status();
    ASSERT_EQ(status->workers(0).state(), v1::WORKER_STATE_CONNECTING);
    error = status->workers(0).last_error();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_TRUE(absl::StrContains(error, "Hostname Verification")) << error;
}

}  // namespace
}  // namespace quire
