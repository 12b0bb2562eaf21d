// SPDX-License-Identifier: Apache-2.0

// Tests base/local_address.h and security/transport_flags.h.

#include "security/transport_flags.h"

#include <string>
#include <vector>

#include "base/command_line.h"
#include "base/local_address.h"
#include "base/status.h"
#include "gtest/gtest.h"
#include "security/tls_mismatch.h"

namespace quire {
namespace {

TEST(LocalAddressTest, OnlyWhatCannotLeaveTheMachineIsLocal) {
  for (const char* local : {"unix:/a", "unix:a", "unix-abstract:a", "127.0.0.1:1", "127.8.8.8:1", "localhost:1",
                            "[::1]:1", "dns:///localhost:1", "ipv4:127.0.0.1:1", "ipv6:[::1]:1"}) {
    EXPECT_TRUE(IsLocalAddress(local)) << local;
  }
  for (const char* remote :
       {"", "0.0.0.0:1", "[::]:1", "10.0.0.1:1", "127.evil.example:1", "localhost.evil.example:1", "node1:1",
        "dns:///node1:1", "dns://8.8.8.8/localhost:1", "ipv4:127.0.0.1:1,10.0.0.1:1", "128.0.0.1:1", "Unix:/a"}) {
    EXPECT_FALSE(IsLocalAddress(remote)) << remote;
  }
}

// Reads the flags in `arguments`.
absl::StatusOr<Transport> Read(const std::vector<const char*>& arguments, const std::string& listen,
                               const OtherProof& other = {}) {
  Transport transport;
  Settings settings{"test", "tests.", ""};
  AddTransportFlags(&transport, &settings);
  std::vector<FlagValue> values;
  QUIRE_RETURN_IF_ERROR(ParseArguments(settings, arguments, &values));
  for (const FlagValue& value : values) QUIRE_RETURN_IF_ERROR(SetFlag(value));
  QUIRE_RETURN_IF_ERROR(CheckTransport(transport, listen, other));
  return transport;
}

std::string Error(const std::vector<const char*>& arguments, const std::string& listen) {
  const absl::Status status = Read(arguments, listen).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(TransportFlagsTest, WithoutTlsOnlyTheMachineItselfIsServed) {
  for (const char* listen : {"unix:/a", "127.0.0.1:0", "[::1]:0", "localhost:0"}) {
    EXPECT_TRUE(Read({}, listen).ok()) << listen;
  }
  EXPECT_EQ(Error({}, "0.0.0.0:1"),
            "--listen is '0.0.0.0:1', which other machines could reach without TLS: set --tls-cert and --tls-key, or "
            "--insecure");
  EXPECT_TRUE(Read({"--insecure"}, "0.0.0.0:1")->is_insecure);
}

TEST(TransportFlagsTest, OtherMachinesMustProveWhoTheyAre) {
  EXPECT_EQ(Error({"--tls-cert=c", "--tls-key=k"}, "0.0.0.0:1"),
            "--listen is '0.0.0.0:1', which other machines could use without authentication: set --tls-ca to require "
            "certificates, or --insecure");
  EXPECT_TRUE(Read({"--tls-cert=c", "--tls-key=k"}, "0.0.0.0:1", {"--tokens", true}).ok());
  EXPECT_EQ(
      Read({"--tls-cert=c", "--tls-key=k"}, "0.0.0.0:1", {"--tokens", false}).status().message(),
      "--listen is '0.0.0.0:1', which other machines could use without authentication: set --tokens, or --tls-ca to "
      "require certificates, or --insecure");
  EXPECT_EQ(Read({"--insecure"}, "0.0.0.0:1", {"--tokens", true}).status().message(),
            "--tokens is set and --listen is '0.0.0.0:1': tokens are not taken over a network without TLS, give "
            "--tls-cert");
  EXPECT_TRUE(Read({"--tls-cert=c", "--tls-key=k"}, "127.0.0.1:1").ok());
  const auto mutual = Read({"--tls-cert=c", "--tls-key=k", "--tls-ca=a"}, "0.0.0.0:1");
  ASSERT_TRUE(mutual.ok()) << mutual.status();
  EXPECT_EQ(mutual->tls, (TlsFiles{.certificate = "c", .key = "k", .authority = "a"}));
}

TEST(TlsMismatchTest, OnlyAConnectionThatFailsWhileItIsMadeMayBeOne) {
  const std::string failed = "failed to connect to all addresses; last error: UNAVAILABLE: ipv4:10.0.0.1:1: ";
  for (const char* reason :
       {"Socket closed", "Ssl handshake failed: SSL_ERROR_SSL: error:1408F10B:SSL routines::wrong version number",
        "Ssl handshake failed: SSL_ERROR_SSL: error:1416F086:SSL routines::certificate verify failed"}) {
    EXPECT_TRUE(MayBeTlsMismatch(failed + reason)) << reason;
  }
  EXPECT_FALSE(MayBeTlsMismatch(failed + "connect: Connection refused (111)"));
  EXPECT_FALSE(MayBeTlsMismatch("Socket closed")) << "a process ended while its connection was used";
}

TEST(TransportFlagsTest, WhatInsecureLeavesOpenIsSaid) {
  const auto warning = [](const std::vector<const char*>& arguments, const std::string& listen,
                          bool has_proof = false) {
    return InsecureWarning(*Read(arguments, listen), listen, has_proof);
  };
  EXPECT_EQ(warning({"--insecure"}, "0.0.0.0:1"),
            "--insecure is set: other machines can use 0.0.0.0:1 without TLS and without authentication.");
  EXPECT_EQ(warning({"--insecure"}, "0.0.0.0:1", true),
            "--insecure is set: other machines can use 0.0.0.0:1 without TLS.");
  EXPECT_EQ(warning({"--insecure", "--tls-cert=c", "--tls-key=k"}, "0.0.0.0:1"),
            "--insecure is set: other machines can use 0.0.0.0:1 without authentication.");
  EXPECT_EQ(warning({"--insecure", "--tls-cert=c", "--tls-key=k", "--tls-ca=a"}, "0.0.0.0:1"), "");
  EXPECT_EQ(warning({"--insecure"}, "127.0.0.1:1"), "");
  EXPECT_EQ(warning({}, "unix:/a"), "");
}

TEST(TransportFlagsTest, HalfAPairIsRefused) {
  EXPECT_EQ(Error({"--tls-cert=c"}, "unix:/a"), "--tls-key is missing");
  EXPECT_EQ(Error({"--tls-key=k"}, "unix:/a"), "--tls-cert is missing: --tls-key and --tls-ca mean nothing without it");
  EXPECT_EQ(Error({"--tls-ca=a"}, "unix:/a"), "--tls-cert is missing: --tls-key and --tls-ca mean nothing without it");
}

}  // namespace
}  // namespace quire
