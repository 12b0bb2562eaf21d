// SPDX-License-Identifier: Apache-2.0

// Tests security/tls_files.h and security/credentials.h with a real server that has only health checks.

#include <openssl/ssl.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "security/credentials.h"
#include "security/tls_files.h"
#include "serving/grpc_server.h"
#include "serving/process_metrics.h"
#include "tests/security/certificates.h"
#include "tests/serving/frames.h"
#include "tests/serving/sockets.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

constexpr GrpcServerLimits kLimits{
    .max_message_bytes = 1 << 20, .max_streams_per_connection = 8, .min_ping_interval_ms = 1000};

class TlsTest : public ::testing::Test {
 protected:
  std::string Error(const TlsFiles& files) {
    const absl::Status status = CheckTlsFiles(files, "--tls-");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

  std::unique_ptr<GrpcServer> Serve(const TlsFiles& files, const GrpcServerLimits& limits = kLimits) {
    const auto credentials = MakeServerCredentials({.tls = files}, "127.0.0.1:0", {});
    EXPECT_TRUE(credentials.ok()) << credentials.status();
    auto server = GrpcServer::Start("127.0.0.1:0", *credentials, limits, {});
    EXPECT_TRUE(server.ok()) << server.status();
    return *std::move(server);
  }

  static std::shared_ptr<grpc::Channel> Connect(const GrpcServer& server,
                                                std::shared_ptr<grpc::ChannelCredentials> credentials,
                                                const std::string& server_name = "server") {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetSslTargetNameOverride(server_name);
    return grpc::CreateCustomChannel(server.address(), credentials, arguments);
  }

  // Returns the status of a health check.
  static grpc::Status Check(const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    ::grpc::health::v1::HealthCheckRequest request;
    ::grpc::health::v1::HealthCheckResponse response;
    request.set_service("liveness");
    return ::grpc::health::v1::Health::NewStub(channel)->Check(&context, request, &response);
  }

  // Uses a new connection.
  static grpc::Status Check(const GrpcServer& server, std::shared_ptr<grpc::ChannelCredentials> credentials,
                            const std::string& server_name = "server") {
    return Check(Connect(server, std::move(credentials), server_name));
  }

  // Returns false when it takes more than ten seconds.
  template <typename Done>
  static bool WaitUntil(Done done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (std::chrono::steady_clock::now() < deadline) {
      if (done()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  }

  TemporaryDirectory directory_;
  TestAuthority authority_{directory_, "ca"};
  TestAuthority stranger_{directory_, "stranger"};
};

TEST_F(TlsTest, FilesThatCannotBeUsedAreNamed) {
  const TlsFiles good = authority_.Issue("server");
  const TlsFiles other = authority_.Issue("other");
  EXPECT_TRUE(CheckTlsFiles(good, "--tls-").ok());
  EXPECT_TRUE(CheckTlsFiles({}, "--tls-").ok());
  EXPECT_EQ(Error({.certificate = good.certificate}),
            "--tls-key is missing: a certificate and its key belong together");
  EXPECT_EQ(Error({.key = good.key}), "--tls-cert is missing: a certificate and its key belong together");
  EXPECT_EQ(Error({.certificate = good.certificate, .key = other.key}),
            "--tls-key: " + other.key + " is not the key of " + good.certificate);
  EXPECT_EQ(Error({.authority = directory_ / "nothing"}),
            "--tls-ca: cannot read " + (directory_ / "nothing") + ": No such file or directory");
  ReplaceFile(directory_ / "empty", "");
  EXPECT_EQ(Error({.authority = directory_ / "empty"}),
            "--tls-ca: " + (directory_ / "empty") + " holds no certificate in PEM format");
  EXPECT_EQ(Error({.authority = good.key}), "--tls-ca: " + good.key + " holds no certificate in PEM format");
  EXPECT_EQ(Error({.certificate = good.certificate, .key = good.certificate}),
            "--tls-key: " + good.certificate + " holds no private key in PEM format without a password");
  EXPECT_THAT(Error(authority_.Issue("old", "old", /*is_expired=*/true)), HasSubstr("/old.crt expired "));
}

TEST_F(TlsTest, MetricsShowWhenCertificatesExpire) {
  const TlsFiles files = authority_.Issue("server");
  const auto expiry_of = [](const std::string& path) {
    const std::vector<CertificateMetrics::File> certificates = {{"server", path}, {"worker client", ""}};
    const auto families = CertificateMetrics(certificates).Collect();
    EXPECT_EQ(families.at(0).metric.size(), 1u);
    return families.at(0).metric.at(0).gauge.value;
  };
  const double now = static_cast<double>(absl::ToUnixSeconds(absl::Now()));
  EXPECT_NEAR(expiry_of(files.certificate) - now, 86'400, 60);
  authority_.Issue("server", "server", /*is_expired=*/true);
  EXPECT_NEAR(expiry_of(files.certificate) - now, -86'400, 60);
  EXPECT_EQ(expiry_of(directory_ / "nothing"), 0);
  EXPECT_TRUE(CertificateMetrics({}).Collect().empty());
}

TEST_F(TlsTest, AServerWithAnAuthorityTakesOnlyThoseItVouchesFor) {
  const auto server = Serve(authority_.Issue("server"));
  const TlsFiles client = authority_.Issue("client");
  EXPECT_TRUE(Check(*server, TlsChannelCredentials(client)).ok());

  const TlsFiles anonymous{.authority = authority_.file()};
  TlsFiles stranger = stranger_.Issue("client2");
  stranger.authority = authority_.file();
  const TlsFiles expired = authority_.Issue("old", "client", /*is_expired=*/true);
  for (const TlsFiles& bad : {anonymous, stranger, expired}) {
    EXPECT_EQ(Check(*server, TlsChannelCredentials(bad)).error_code(), grpc::StatusCode::UNAVAILABLE)
        << bad.certificate;
  }
  EXPECT_EQ(Check(*server, grpc::InsecureChannelCredentials()).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(TlsTest, AServerWithoutOneTakesAnybodyWhoTrustsIt) {
  const TlsFiles files = authority_.Issue("server");
  const auto server = Serve({.certificate = files.certificate, .key = files.key});
  EXPECT_TRUE(Check(*server, TlsChannelCredentials({.authority = authority_.file()})).ok());
  EXPECT_EQ(Check(*server, TlsChannelCredentials({.authority = stranger_.file()})).error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

TEST_F(TlsTest, AClientWantsTheNameThatItAskedFor) {
  const auto server = Serve(authority_.Issue("server"));
  const auto credentials = TlsChannelCredentials(authority_.Issue("client"));
  EXPECT_TRUE(Check(*server, credentials, "server").ok());
  EXPECT_EQ(Check(*server, credentials, "worker").error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(TlsTest, RenewedFilesAreTakenUpByBothSides) {
  const auto server = Serve(authority_.Issue("server"));
  const auto credentials = TlsChannelCredentials(authority_.Issue("client"));
  const auto is_good = [&] { return Check(*server, credentials).ok(); };
  const auto is_bad = [&] { return !is_good(); };
  ASSERT_TRUE(is_good());
  authority_.Issue("server", "server", /*is_expired=*/true);
  EXPECT_TRUE(WaitUntil(is_bad)) << "the server still shows its old certificate";
  authority_.Issue("server");
  EXPECT_TRUE(WaitUntil(is_good)) << "the server does not show its new certificate";
  authority_.Issue("client", "client", /*is_expired=*/true);
  EXPECT_TRUE(WaitUntil(is_bad)) << "the client still shows its old certificate";
  authority_.Issue("client");
  EXPECT_TRUE(WaitUntil(is_good)) << "the client does not show its new certificate";
}

TEST_F(TlsTest, ANewAuthorityIsTakenUpByTheServer) {
  const auto server = Serve(authority_.Issue("server"));
  TlsFiles files = stranger_.Issue("client");
  files.authority = directory_ / "copy";
  std::filesystem::copy(authority_.file(), files.authority);
  const auto credentials = TlsChannelCredentials(files);
  ASSERT_FALSE(Check(*server, credentials).ok());
  std::filesystem::rename(stranger_.file(), authority_.file());
  EXPECT_TRUE(WaitUntil([&] { return Check(*server, credentials).ok(); }));
}

TEST_F(TlsTest, WhoIsConnectedStaysSoWhileThePairDoesNotMatch) {
  const auto server = Serve(authority_.Issue("server"));
  const auto credentials = TlsChannelCredentials(authority_.Issue("client"));
  const auto connected = Connect(*server, credentials);
  ASSERT_TRUE(Check(connected).ok());
  ReplaceFile(directory_ / "server.key", "not a key");
  EXPECT_TRUE(WaitUntil([&] { return !Check(*server, credentials).ok(); }));
  EXPECT_TRUE(Check(connected).ok());
  authority_.Issue("server");
  EXPECT_TRUE(WaitUntil([&] { return Check(*server, credentials).ok(); }));
}

// A client of HTTP/2 with TLS.
class Http2Client {
 public:
  explicit Http2Client(const GrpcServer& server)
      : context_(SSL_CTX_new(TLS_client_method()), &SSL_CTX_free), ssl_(SSL_new(context_.get()), &SSL_free) {
    EXPECT_TRUE(socket_.Connect(std::stoi(server.address().substr(server.address().rfind(':') + 1))));
    const timeval timeout{.tv_sec = 60, .tv_usec = 0};
    setsockopt(socket_.fd(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to a connection that may have been closed.
    constexpr unsigned char kHttp2[] = {2, 'h', '2'};
    SSL_set_alpn_protos(ssl_.get(), kHttp2, sizeof(kHttp2));
    SSL_set_fd(ssl_.get(), socket_.fd());
    EXPECT_EQ(SSL_connect(ssl_.get()), 1);
    Send(frames::Preface());
  }

  void Send(const std::string& bytes) { SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())); }

  // Begins calls that get no answer until they are complete.
  void Begin(uint32_t num_calls) {
    const std::string fields = frames::CallFields("/grpc.health.v1.Health/Watch");
    for (uint32_t i = 0; i < num_calls; ++i) {
      Send(frames::Frame(frames::kHeaders, frames::kEndHeaders, 2 * i + 1, fields));
    }
  }

  // Waits until the server closes the connection.
  bool IsClosed() {
    char buffer[4096];
    ssize_t size;
    while ((size = recv(socket_.fd(), buffer, sizeof(buffer), 0)) > 0) continue;
    return size == 0 || errno == ECONNRESET;
  }

 private:
  TestSocket socket_;
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context_;
  const std::unique_ptr<SSL, void (*)(SSL*)> ssl_;
};

// The limits of a connection hold for what is inside of TLS.
TEST_F(TlsTest, AClientThatFillsTheMemoryWithFramesIsDisconnected) {
  TlsFiles files = authority_.Issue("server");
  files.authority.clear();  // Everybody may connect.
  const auto server = Serve(files);
  Http2Client client(*server);
  const std::string block = frames::CallFields("/a") + frames::NewField("a", std::string(3900, 'a'));
  std::string bytes;
  for (uint32_t i = 0; i < 20; ++i) {
    bytes += frames::Frame(frames::kHeaders, frames::kEndHeaders, 2 * i + 1, block + frames::References(4000));
  }
  client.Send(bytes);
  EXPECT_TRUE(client.IsClosed());
  EXPECT_EQ(server->Ports()[0].ended, 1);
  EXPECT_TRUE(Check(*server, TlsChannelCredentials({.authority = authority_.file()})).ok());
}

TEST_F(TlsTest, AClientThatHoldsMostIsDisconnectedAlthoughItIsSilent) {
  TlsFiles files = authority_.Issue("server");
  files.authority.clear();
  GrpcServerLimits limits = kLimits;
  limits.max_held_bytes = 16 * (FrameGuard::kBytesPerStream + 6 * FrameGuard::kBytesPerField);
  const auto server = Serve(files, limits);
  Http2Client large(*server), medium(*server), small(*server);
  large.Begin(8);
  medium.Begin(7);
  small.Begin(2);
  EXPECT_TRUE(large.IsClosed());
  EXPECT_EQ(server->Ports()[0].ended, 1);
}

}  // namespace
}  // namespace quire
