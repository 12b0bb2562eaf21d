// SPDX-License-Identifier: Apache-2.0

// The real programs with TLS.

#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"
#include "tests/e2e/installation.h"
#include "tests/e2e/quirectl.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

TEST(MutualTlsTest, QuirectlShowsItsCertificate) {
  const Installation installation;
  Cluster cluster(installation.MutualTls());
  std::vector<std::string> arguments = Installation::Flags(installation.Of("quire-client"));
  arguments.insert(arguments.end(), {"--tls-name=quire-manager", "generate", "Once", "-n", "3", "-t", "0"});
  const Ended with = Quirectl(cluster.endpoint(), arguments);
  EXPECT_EQ(with.exit_code, 0) << with.output;
  const Ended without = Quirectl(cluster.endpoint(), {"generate", "Once"});
  EXPECT_EQ(without.exit_code, 3) << without.output;
  const Ended half = Quirectl(cluster.endpoint(), {"--tls-cert=/c", "status"});
  EXPECT_EQ(half.exit_code, 2);
  EXPECT_THAT(half.output, HasSubstr("--tls-key is missing: a certificate and its key belong together"));
}

// One client keeps its connection and two reconnect for every request, while all certificates are renewed twice.
TEST(MutualTlsTest, RenewalUnderLoadLosesNoRequest) {
  Installation installation;
  Cluster cluster(installation.MutualTls());
  std::atomic<bool> is_over = false;
  std::atomic<int> num_done = 0;
  const auto load = [&](bool connects_anew) {
    Client first(cluster.client_options());
    while (!is_over) {
      const auto anew = connects_anew ? std::make_unique<Client>(cluster.client_options()) : nullptr;
      const Generation generation = Generate(anew != nullptr ? *anew : first, GreedyRequest("Once upon a time", 20));
      EXPECT_TRUE(generation.status.ok()) << generation.status;
      EXPECT_FALSE(generation.text.empty());
      ++num_done;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back(load, /*connects_anew=*/i > 0);
  for (int i = 0; i < 2; ++i) {
    installation.Renew();
    // The programs look at the files every second, so the new certificates are used before this wait ends.
    std::this_thread::sleep_for(std::chrono::milliseconds(1300));
    for (const int before = num_done; num_done < before + 6 && !HasFailure();) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  is_over = true;
  for (std::thread& thread : threads) thread.join();
}

TEST(TokenTest, QuirectlSendsItsTokenWhereNobodyElseReadsIt) {
  Installation installation;
  installation.WriteTokens({"acme"});
  Cluster cluster({.model = BundledModel(),
                   .manager_flags = {"--tokens=" + installation.tokens()},
                   .client = {.token = Installation::TokenOf("ops")}});
  const Ended with = Quirectl(cluster.endpoint(), {"--token=token-of-acme", "generate", "Once", "-n", "3", "-t", "0"});
  EXPECT_EQ(with.exit_code, 0) << with.output;
  const Ended variable =
      Shell(cluster.endpoint(), "QUIRE_TOKEN=token-of-acme quirectl generate Once -n 3 -t 0 --tenant acme");
  EXPECT_EQ(variable.exit_code, 0) << variable.output;
  const Ended without = Quirectl(cluster.endpoint(), {"generate", "Once"});
  EXPECT_EQ(without.exit_code, 4) << without.output;
  EXPECT_THAT(without.output, HasSubstr("no bearer token"));
  const Ended far = Quirectl("node1:50051", {"--token=token-of-acme", "status"});
  EXPECT_EQ(far.exit_code, 2);
  EXPECT_THAT(far.output, HasSubstr("a token is not sent to node1:50051 in plain text"));
}

// A token is withdrawn while the manager runs.
TEST(TokenTest, AChangedFileIsTakenUp) {
  Installation installation;
  installation.WriteTokens({"acme"});
  Cluster cluster({.model = BundledModel(),
                   .manager_flags = {"--tokens=" + installation.tokens()},
                   .client = {.token = Installation::TokenOf("ops")}});
  ClientOptions options = cluster.client_options();
  options.token = Installation::TokenOf("acme");
  Client acme(options);
  EXPECT_TRUE(acme.GetModel().ok());
  installation.WriteTokens({});
  absl::Status status;
  for (int i = 0; i < 600 && status.ok(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    status = acme.GetModel().status();
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
}

TEST(LogTest, PromptsAreInNoLog) {
  Installation installation;
  installation.WriteTokens({"acme"});
  Cluster cluster({.model = BundledModel(),
                   .worker_flags = {"--log-level=debug"},
                   .manager_flags = {"--log-level=debug", "--tokens=" + installation.tokens()},
                   .client = {.token = Installation::TokenOf("ops")}});
  const std::string secret = "Xylophone quadrille";
  v1::GenerateRequest good = GreedyRequest(secret, 8);
  good.set_cache_salt("salty");
  EXPECT_TRUE(Generate(cluster.client(), good).status.ok());
  v1::GenerateRequest bad = good;
  bad.mutable_sampling()->set_temperature(-1);
  EXPECT_FALSE(Generate(cluster.client(), bad).status.ok());
  v1::GenerateRequest huge = GreedyRequest(std::string(2000, 'z') + secret, 900);
  EXPECT_FALSE(Generate(cluster.client(), huge).status.ok());
  v1::TokenizeRequest tokenize;
  tokenize.set_text(secret);
  EXPECT_TRUE(cluster.client().Tokenize(tokenize).ok());
  cluster.manager().Signal(SIGTERM);
  cluster.worker(0).Signal(SIGTERM);
  cluster.manager().Wait();
  cluster.worker(0).Wait();
  for (const std::string& log : {cluster.manager().Output(), cluster.worker(0).Output()}) {
    EXPECT_THAT(log, HasSubstr("stopping after a signal")) << "the log is empty";
    for (const char* word : {"Xylophone", "quadrille", "zzzz", "salty", "token-of-"}) {
      EXPECT_THAT(log, testing::Not(HasSubstr(word)));
    }
  }
}

}  // namespace
}  // namespace quire
