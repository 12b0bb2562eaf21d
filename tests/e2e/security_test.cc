// The real programs behind TLS.

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"
#include "tests/e2e/quirectl.h"
#include "tests/security/certificates.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

// Certificates of a whole installation. They are renewed as Kubernetes does it: all files are made in a new directory,
// and a link to it replaces the link to the old one.
class Certificates {
 public:
  Certificates() : directory_(), authority_(directory_, "ca") { Renew(); }

  void Renew() {
    const std::string version = absl::StrCat("v", ++version_);
    for (const char* name : {"quire-manager", "quire-worker", "quire-client"}) {
      authority_.Issue(absl::StrCat(version, "/", name), name, /*is_expired=*/false);
    }
    std::filesystem::create_directory_symlink(version, directory_ / "draft");
    std::filesystem::rename(directory_ / "draft", directory_ / "live");
  }

  TlsFiles Of(const std::string& name) const {
    return {.certificate = directory_ / absl::StrCat("live/", name, ".crt"),
            .key = directory_ / absl::StrCat("live/", name, ".key"),
            .authority = authority_.file()};
  }

  static std::vector<std::string> Flags(const TlsFiles& files, const std::string& prefix = "--tls-") {
    return {absl::StrCat(prefix, "cert=", files.certificate), absl::StrCat(prefix, "key=", files.key),
            absl::StrCat(prefix, "ca=", files.authority)};
  }

 private:
  const TemporaryDirectory directory_;
  TestAuthority authority_;
  int version_ = 0;
};

ClusterOptions MutualTls(const Certificates& certificates) {
  ClusterOptions options{.model = BundledModel()};
  options.worker_flags = Certificates::Flags(certificates.Of("quire-worker"));
  options.manager_flags = Certificates::Flags(certificates.Of("quire-manager"));
  for (std::string& flag : Certificates::Flags(certificates.Of("quire-manager"), "--worker-tls-")) {
    options.manager_flags.push_back(std::move(flag));
  }
  options.client.tls = certificates.Of("quire-client");
  options.client.server_name = "quire-manager";
  return options;
}

TEST(MutualTlsTest, QuirectlShowsItsCertificate) {
  const Certificates certificates;
  Cluster cluster(MutualTls(certificates));
  std::vector<std::string> arguments = Certificates::Flags(certificates.Of("quire-client"));
  arguments.insert(arguments.end(), {"--tls-name=quire-manager", "generate", "Once", "-n", "3", "-t", "0"});
  const Ended with = Quirectl(cluster.endpoint(), arguments);
  EXPECT_EQ(with.exit_code, 0) << with.output;
  const Ended without = Quirectl(cluster.endpoint(), {"generate", "Once"});
  EXPECT_EQ(without.exit_code, 3) << without.output;
  const Ended half = Quirectl(cluster.endpoint(), {"--tls-cert=/c", "status"});
  EXPECT_EQ(half.exit_code, 2);
  EXPECT_THAT(half.output, HasSubstr("--tls-key is missing: a certificate and its key belong together"));
}

// New connections all the time, and streams that go on, while every certificate is renewed.
TEST(MutualTlsTest, RenewalUnderLoadLosesNoRequest) {
  Certificates certificates;
  Cluster cluster(MutualTls(certificates));
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
  for (int i = 0; i < 4; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1300));  // The files are looked at every second.
    certificates.Renew();
  }
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(num_done, 10);
}

}  // namespace
}  // namespace quire
