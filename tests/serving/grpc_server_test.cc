// SPDX-License-Identifier: Apache-2.0

#include "serving/grpc_server.h"

#include <arpa/inet.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/process_usage.h"
#include "gmock/gmock.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "quire/v1/admin.grpc.pb.h"
#include "serving/frame_guard.h"
#include "serving/read_budget.h"
#include "serving/turn_queue.h"
#include "tests/serving/frames.h"
#include "tests/serving/half_sent_message.h"
#include "tests/serving/sockets.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

using Health = ::grpc::health::v1::Health;
using HealthResponse = ::grpc::health::v1::HealthCheckResponse;

constexpr GrpcServerLimits kLimits{
    .max_message_bytes = 1 << 20, .max_streams_per_connection = 8, .min_ping_interval_ms = 1000};

class GrpcServerTest : public ::testing::Test {
 protected:
  void Start(const GrpcServerLimits& limits = kLimits, const std::string& address = "127.0.0.1:0") {
    auto server = GrpcServer::Start(address, grpc::InsecureServerCredentials(), limits,
                                    {{v1::AdminService::service_full_name(), &admin_}});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
  }

  HealthResponse::ServingStatus Check(const std::string& service) {
    grpc::ClientContext context;
    ::grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    HealthResponse response;
    const grpc::Status status = Health::NewStub(channel_)->Check(&context, request, &response);
    return status.ok() ? response.status() : HealthResponse::SERVICE_UNKNOWN;
  }

  void Reconnect() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channel_ = grpc::CreateCustomChannel(server_->address(), grpc::InsecureChannelCredentials(), arguments);
  }

  int port() const { return std::stoi(server_->address().substr(server_->address().rfind(':') + 1)); }

  using ReflectionStream = grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>;
  // Begins a call of reflection.
  std::unique_ptr<ReflectionStream> OpenReflection(grpc::ClientContext* context) {
    grpc::internal::RpcMethod method("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                                     grpc::internal::RpcMethod::BIDI_STREAMING);
    return std::unique_ptr<ReflectionStream>(
        grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(channel_.get(), method,
                                                                                              context));
  }

  // Returns the status of a call of reflection without a request.
  grpc::StatusCode Reflect() {
    grpc::ClientContext context;
    const std::unique_ptr<ReflectionStream> stream = OpenReflection(&context);
    stream->WritesDone();
    return stream->Finish().error_code();
  }

  // Returns the error of a server that cannot listen at `address`.
  std::string Error(const std::string& address) {
    v1::AdminService::Service other;
    const absl::Status status = GrpcServer::Start(address, grpc::InsecureServerCredentials(), kLimits,
                                                  {{v1::AdminService::service_full_name(), &other}})
                                    .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    return std::string(status.message());
  }

  // Returns the answer to a health check that waits for the connection.
  HealthResponse::ServingStatus WaitForReady() {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(60)));
    ::grpc::health::v1::HealthCheckRequest request;
    request.set_service("liveness");
    HealthResponse response;
    const grpc::Status status = Health::NewStub(channel_)->Check(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.status();
  }

  v1::AdminService::Service admin_;
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(GrpcServerTest, PortZeroBecomesTheOneThatWasTaken) {
  Start();
  EXPECT_THAT(server_->address(), HasSubstr("127.0.0.1:"));
  EXPECT_NE(server_->address(), "127.0.0.1:0");
}

TEST_F(GrpcServerTest, HealthFollowsReadinessExceptForLiveness) {
  Start();
  for (const bool is_ready : {false, true, false}) {
    server_->SetReady(is_ready);
    const auto expected = is_ready ? HealthResponse::SERVING : HealthResponse::NOT_SERVING;
    EXPECT_EQ(Check(""), expected);
    EXPECT_EQ(Check("readiness"), expected);
    EXPECT_EQ(Check("quire.v1.AdminService"), expected);
    EXPECT_EQ(Check("liveness"), HealthResponse::SERVING);
  }
  EXPECT_EQ(Check("quire.v1.Unknown"), HealthResponse::SERVICE_UNKNOWN);
}

// Several clients may share the connection of a proxy.
TEST_F(GrpcServerTest, LongHeadersOfACallLeaveTheOthersOfItsConnectionAlone) {
  Start();
  grpc::ClientContext context;
  const std::unique_ptr<ReflectionStream> open = OpenReflection(&context);
  grpc::ClientContext other;
  other.AddMetadata("authorization", "Bearer " + std::string(FrameGuard::kMaxHeaderBytes - 500, 'a'));
  ::grpc::health::v1::HealthCheckRequest request;
  request.set_service("liveness");
  HealthResponse response;
  EXPECT_TRUE(Health::NewStub(channel_)->Check(&other, request, &response).ok());
  open->WritesDone();
  EXPECT_TRUE(open->Finish().ok());
}

TEST_F(GrpcServerTest, AConnectionIsChargedByItsPeer) {
  Start();
  TestSocket client;
  ASSERT_TRUE(client.Connect(port()));
  ASSERT_TRUE(client.SendAll(frames::Preface() + frames::Frame(frames::kSettings, 0, 0, "")));
  EXPECT_FALSE(client.IsClosed());
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  ASSERT_EQ(getsockname(client.fd(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string peer = absl::StrCat("ipv4:127.0.0.1:", ntohs(address.sin_port));
  EXPECT_TRUE(server_->Charge(peer, 1));
  EXPECT_FALSE(server_->Charge("ipv4:127.0.0.1:1", 1));
  EXPECT_FALSE(server_->Charge("unix:", 1));
}

TEST_F(GrpcServerTest, ProbesAskElsewhereAndFindHealthAlone) {
  Start();
  EXPECT_EQ(server_->health_address(), "");
  EXPECT_EQ(server_->ServeHealthAt(server_->address()).code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(server_->ServeHealthAt("127.0.0.1:0").ok());
  ASSERT_NE(server_->health_address(), server_->address());
  channel_ = grpc::CreateChannel(server_->health_address(), grpc::InsecureChannelCredentials());
  for (const bool is_ready : {false, true, false}) {
    server_->SetReady(is_ready);
    const auto expected = is_ready ? HealthResponse::SERVING : HealthResponse::NOT_SERVING;
    EXPECT_EQ(Check("readiness"), expected);
    EXPECT_EQ(Check("quire.v1.AdminService"), expected);
    EXPECT_EQ(Check("liveness"), HealthResponse::SERVING);
  }
  grpc::ClientContext context;
  v1::GetStatusResponse response;
  const grpc::Status status =
      v1::AdminService::NewStub(channel_)->GetStatus(&context, v1::GetStatusRequest(), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(Reflect(), grpc::StatusCode::UNIMPLEMENTED);
  channel_ = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
  EXPECT_EQ(Reflect(), grpc::StatusCode::OK);
}

TEST_F(GrpcServerTest, ConnectionsBeyondTheLimitAreRefusedUntilOthersEnd) {
  GrpcServerLimits limits = kLimits;
  limits.max_connections = 1;
  Start(limits);
  ASSERT_EQ(Check("liveness"), HealthResponse::SERVING);
  TestSocket refused;
  refused.Connect(port());
  EXPECT_TRUE(refused.IsClosed());
  EXPECT_EQ(server_->Ports()[0].refused_at_limit, 1);
  channel_.reset();
  Reconnect();
  EXPECT_EQ(WaitForReady(), HealthResponse::SERVING);
}

TEST_F(GrpcServerTest, AnAddressWithManyConnectionsLeavesRoomForOthers) {
  GrpcServerLimits limits = kLimits;
  limits.max_connections = 8;
  Start(limits);
  channel_.reset();
  std::vector<TestSocket> sockets(7);
  for (TestSocket& socket : sockets) ASSERT_TRUE(socket.Connect(port()));
  TestSocket refused, other;
  refused.Connect(port());
  EXPECT_TRUE(refused.IsClosed());
  ASSERT_TRUE(other.Connect(port(), 2));
  EXPECT_FALSE(other.IsClosed());
}

TEST_F(GrpcServerTest, AnAddressWithManyConnectionsLeavesRoomForProbesOfOthers) {
  Start();
  ASSERT_TRUE(server_->ServeHealthAt("127.0.0.1:0").ok());
  const int port = std::stoi(server_->health_address().substr(server_->health_address().rfind(':') + 1));
  std::vector<TestSocket> sockets(16);
  for (TestSocket& socket : sockets) ASSERT_TRUE(socket.Connect(port));
  TestSocket refused, other;
  refused.Connect(port);
  EXPECT_TRUE(refused.IsClosed());
  EXPECT_EQ(server_->Ports()[1].refused_at_limit, 1);
  ASSERT_TRUE(other.Connect(port, 2));
  EXPECT_FALSE(other.IsClosed());
}

// gRPC's own port would take no connection after it ran out of file descriptors once.
TEST_F(GrpcServerTest, ServesAgainAfterTheFilesRanOut) {
  Start();
  constexpr int kNumConnections = 40;
  std::vector<TestSocket> sockets(kNumConnections);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit few{.rlim_cur = static_cast<rlim_t>(sockets.back().fd() + 10), .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  for (TestSocket& socket : sockets) EXPECT_TRUE(socket.Connect(port()));
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  while (server_->Ports()[0].refused_for_files == 0 && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_GT(server_->Ports()[0].refused_for_files, 0);
  sockets.clear();
  Reconnect();
  EXPECT_EQ(WaitForReady(), HealthResponse::SERVING);
  setrlimit(RLIMIT_NOFILE, &limit);
}

// 24 clients send all but the last bytes of a message of 16 MiB.
TEST_F(GrpcServerTest, HalfSentMessagesHoldLittleMemory) {
  constexpr int64_t kMiB = 1 << 20;
  const auto held_mib = [this](int64_t max_receiving_bytes) {
    GrpcServerLimits limits = kLimits;
    limits.max_message_bytes = 16 * kMiB;
    limits.max_receiving_bytes = max_receiving_bytes;
    Start(limits);
    const int64_t before = ReadProcessUsage().resident_bytes;
    std::vector<std::unique_ptr<HalfSentMessage>> messages;
    for (int i = 0; i < 24; ++i) {
      messages.push_back(std::make_unique<HalfSentMessage>(port(), 16 * kMiB - 100));
      messages.back()->SendAllBut(1000);
    }
    const int64_t held = ReadProcessUsage().resident_bytes - before;
    messages.clear();
    Reconnect();
    EXPECT_EQ(WaitForReady(), HealthResponse::SERVING);
    return held / kMiB;
  };
  EXPECT_LT(held_mib(64 * kMiB), 160);
  EXPECT_GT(held_mib(1024 * kMiB), 200) << "the clients do not send what this test is about";
}

// Connects to `address` and sends `make(i)` for i = 0, 1, ..., 2 MiB in all, and does not read. Returns whether the
// server has closed the connection before.
template <typename Make>
bool IsClosedWhileSending(const std::string& address, Make make) {
  TestSocket socket;
  const size_t colon = address.find(':');
  const bool is_unix = address.substr(0, colon) == "unix";
  EXPECT_TRUE(is_unix ? socket.Connect(address.substr(colon + 1))
                      : socket.Connect(std::stoi(address.substr(colon + 1))));
  const timeval send_timeout{.tv_sec = 5, .tv_usec = 0};
  setsockopt(socket.fd(), SOL_SOCKET, SO_SNDTIMEO, &send_timeout, sizeof(send_timeout));
  bool is_open = socket.SendAll(frames::Preface());
  size_t num_sent = 0;
  for (uint32_t i = 0; is_open && num_sent < 2 << 20; ++i) {
    const std::string bytes = make(i);
    is_open = socket.SendAll(bytes);
    num_sent += bytes.size();
  }
  // The server may not have handled the last bytes yet. An open connection is silent after its settings.
  const timeval timeout{.tv_sec = is_open ? 5 : 60, .tv_usec = 0};
  setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  char buffer[4096];
  ssize_t size;
  while ((size = recv(socket.fd(), buffer, sizeof(buffer), 0)) > 0) continue;
  return size == 0 || errno == ECONNRESET;
}

std::string CallOf(uint32_t i, const std::string& more_fields = "") {
  return frames::Frame(frames::kHeaders, frames::kEndHeaders | frames::kEndStream, 2 * i + 1,
                       frames::CallFields("/quire.v1.AdminService/GetStatus") + more_fields);
}

TEST_F(GrpcServerTest, ClientsThatFillTheMemoryWithFramesAreDisconnected) {
  const std::string path = absl::StrCat("unix:", testing::TempDir(), "/quire_grpc_server_test.", getpid());
  const std::string new_field = frames::NewField("a-bin", std::string(3900, 'A'));
  const std::function<std::string(uint32_t)> attacks[] = {
      [&](uint32_t i) { return CallOf(i, (i == 0 ? new_field : "") + frames::References(4000)); },
      [](uint32_t i) { return CallOf(i); },
      [](uint32_t i) {
        return i == 0 ? frames::Frame(frames::kHeaders, 0, 1, frames::CallFields("/a"))
                      : frames::Frame(frames::kContinuation, 0, 1, std::string(16'000, '\x90'));
      },
      [](uint32_t i) { return CallOf(i) + frames::Frame(frames::kReset, 0, 2 * i + 1, frames::BigEndian(8, 4)); },
      [](uint32_t /*i*/) { return frames::Frame(frames::kSettings, 0, 0, ""); }};
  for (const std::string& address : {std::string("127.0.0.1:0"), path}) {
    Start(kLimits, address);
    const int64_t before = ReadProcessUsage().resident_bytes;
    int64_t num_ended = 0;
    for (const auto& attack : attacks) {
      EXPECT_TRUE(IsClosedWhileSending(server_->address(), attack)) << address << ", attack " << num_ended;
      EXPECT_EQ(server_->Ports()[0].ended, ++num_ended);
    }
    EXPECT_LT(ReadProcessUsage().resident_bytes - before, 64 << 20);
    EXPECT_EQ(Check("liveness"), HealthResponse::SERVING);
  }
}

// The server answers a ping when it has read everything before it.
TEST_F(GrpcServerTest, CallsThatAreResetComeNoFasterThanTheirPrice) {
  Start();
  TestSocket socket;
  ASSERT_TRUE(socket.Connect(port()));
  ASSERT_TRUE(socket.SendAll(frames::Preface()));
  ASSERT_FALSE(socket.IsClosed()) << "these are the settings of the server";
  constexpr uint32_t kNumCalls = 1000;
  std::string bytes = frames::Frame(frames::kSettings, frames::kAck, 0, "");
  for (uint32_t i = 0; i < kNumCalls; ++i) {
    bytes += CallOf(i) + frames::Frame(frames::kReset, 0, 2 * i + 1, frames::BigEndian(8, 4));
  }
  const int64_t before_us = SteadyClock().NowMicros();
  ASSERT_TRUE(socket.SendAll(bytes + frames::Frame(frames::kPing, 0, 0, "12345678")));
  std::string received;
  char buffer[4096];
  while (!absl::StrContains(received, frames::Frame(frames::kPing, frames::kAck, 0, "12345678"))) {
    const ssize_t size = recv(socket.fd(), buffer, sizeof(buffer), 0);
    ASSERT_GT(size, 0);
    received.append(buffer, static_cast<size_t>(size));
  }
  const int64_t num_lanes = std::max<int64_t>(1, std::thread::hardware_concurrency() / 2);
  const int64_t price_us = kNumCalls * (FrameGuard::kMicrosPerCall + FrameGuard::kMicrosPerLostCall);
  // Some of it needs no turn.
  const int64_t least_us = price_us / num_lanes * 9 / 10 - TurnQueue::kBurstUs - ReadBudget::kFreeUs;
  if (least_us <= 0) GTEST_SKIP() << "too many processors";
  EXPECT_GE(SteadyClock().NowMicros() - before_us, least_us);
  EXPECT_EQ(server_->Ports()[0].ended, 0);
}

TEST_F(GrpcServerTest, ManyCallsOneAfterTheOtherAreNoAttack) {
  Start();
  for (int i = 0; i < 1500; ++i) ASSERT_EQ(Check("liveness"), HealthResponse::SERVING) << i;
  EXPECT_EQ(server_->Ports()[0].ended, 0);
}

TEST_F(GrpcServerTest, CompressedMessagesAreRefused) {
  Start();
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    grpc::ClientContext context;
    context.set_compression_algorithm(algorithm);
    ::grpc::health::v1::HealthCheckRequest request;
    request.set_service(std::string(100'000, 'a'));
    HealthResponse response;
    const grpc::Status status = Health::NewStub(channel_)->Check(&context, request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
    EXPECT_THAT(status.error_message(), HasSubstr("is disabled"));
  }
}

TEST_F(GrpcServerTest, AnAddressInUseAndABadAddressAreToldApart) {
  Start();
  EXPECT_EQ(Error(server_->address()), absl::StrCat("cannot listen on ", server_->address(), ": it is in use"));
  // 192.0.2.0/24 is reserved for documentation, so no machine has such an address.
  EXPECT_EQ(Error("192.0.2.1:50051"), "cannot listen on 192.0.2.1:50051: 192.0.2.1 is not an address of this machine");
}

TEST_F(GrpcServerTest, AUnixSocketInUseIsNotReplaced) {
  const std::string address = absl::StrCat("unix:", testing::TempDir(), "/quire_grpc_server_test.", getpid());
  const auto first = GrpcServer::Start(address, grpc::InsecureServerCredentials(), kLimits,
                                       {{v1::AdminService::service_full_name(), &admin_}});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ((*first)->address(), address);
  EXPECT_EQ(Error(address), absl::StrCat("cannot listen on ", address, ": it is in use"));
  EXPECT_EQ(Error("unix:/nonexistent/socket"), "cannot listen on unix:/nonexistent/socket: No such file or directory");
}

}  // namespace
}  // namespace quire
