// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/process/options.h"

#include <unistd.h>

#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/configuration.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/flag_reference.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

absl::StatusOr<ManagerOptions> Parse(const std::vector<const char*>& args) {
  absl::StatusOr<CommandLine<ManagerOptions>> line = ParseManagerCommandLine(args);
  if (!line.ok()) return line.status();
  EXPECT_FALSE(line->text);
  return line->options;
}

std::string Text(const std::vector<const char*>& args) {
  return ParseManagerCommandLine(args)->text.value();
}

std::string Error(const std::vector<const char*>& args) {
  const absl::Status status = Parse(args).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message().find('\n'), absl::string_view::npos);
  return std::string(status.message());
}

TEST(OptionsTest, TheDefaultsAreLocal) {
  const absl::StatusOr<ManagerOptions> options = Parse({});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->listen, "127.0.0.1:50051");
  EXPECT_EQ(options->health_listen, "");
  EXPECT_EQ(options->metrics_listen, "127.0.0.1:9460");
  EXPECT_THAT(options->workers, ElementsAre("127.0.0.1:50061"));
}

TEST(OptionsTest, DashesUnderscoresAndBothFormsAreTaken) {
  const absl::StatusOr<ManagerOptions> options =
      Parse({"--workers=a:1,unix:/b", "--insecure", "--max_chunk-tokens=7", "--worker-grace", "2m", "--policy=priority",
             "--watermark=0.25", "--log_level", "debug", "--metrics-listen="});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_THAT(options->workers, ElementsAre("a:1", "unix:/b"));
  EXPECT_EQ(options->scheduler.max_chunk_tokens, 7);
  EXPECT_EQ(options->worker_grace, absl::Minutes(2));
  EXPECT_EQ(options->scheduler.policy, SchedulingPolicy::kPriority);
  EXPECT_EQ(options->scheduler.watermark, 0.25);
  EXPECT_EQ(options->log.level, LogLevel::kDebug);
  EXPECT_EQ(options->metrics_listen, "");
}

TEST(OptionsTest, AManagerStandsByOnlyIfItIsToldTo) {
  EXPECT_EQ(Parse({})->standby.keeper, LeaseKeeper::kNone);
  const absl::StatusOr<ManagerOptions> etcd = Parse({"--standby=etcd", "--etcd=127.0.0.1:1,[::1]:2"});
  ASSERT_TRUE(etcd.ok()) << etcd.status();
  EXPECT_EQ(etcd->standby.keeper, LeaseKeeper::kEtcd);
  EXPECT_EQ(etcd->standby.lease, absl::Seconds(4));
  EXPECT_EQ(etcd->standby.lease_name, "quire-manager");
  EXPECT_THAT(etcd->standby.etcd, ElementsAre("127.0.0.1:1", "[::1]:2"));
  const absl::StatusOr<ManagerOptions> kubernetes =
      Parse({"--standby=kubernetes", "--kubernetes-api=https://10.0.0.1:443/", "--lease-name=a.b-2"});
  ASSERT_TRUE(kubernetes.ok()) << kubernetes.status();
  EXPECT_EQ(kubernetes->standby.kubernetes_api, "https://10.0.0.1:443");
  EXPECT_TRUE(Parse({"--standby=kubernetes", "--kubernetes-api=http://127.0.0.1:8001"}).ok());
}

TEST(OptionsTest, WrongFlagsOfAStandbyNameTheValueAndTheLimit) {
  EXPECT_EQ(Error({"--standby=yes"}), "--standby is 'yes', it must be one of off, etcd, kubernetes");
  for (const char* lease : {"--lease-duration=1s", "--lease-duration=61s", "--lease-duration=2500ms"}) {
    EXPECT_THAT(Error({"--standby=etcd", lease}), HasSubstr("it must be whole seconds in 2s .. 1m"));
  }
  EXPECT_THAT(Error({"--standby=etcd", "--lease-name=A/b"}), HasSubstr("--lease-name is 'A/b', it must have small"));
  EXPECT_EQ(Error({"--standby=etcd", "--etcd=127.0.0.1:1,"}), "--etcd has '', it must be host:port");
  EXPECT_EQ(Error({"--standby=etcd", "--etcd=etcd:2379"}),
            "--etcd has 'etcd:2379', which is reached over a network: give --etcd-tls-ca, or --insecure");
  EXPECT_THAT(Error({"--standby=etcd", "--etcd-tls-key=k"}), HasSubstr("--etcd-tls-ca is missing"));
  for (const std::string address : {"0.0.0.0:50051", "[::]:50051", "manager", "manager:0", ":50051", "manager:70000",
                                    "a b:1", "http://manager:50051"}) {
    const std::string flag = "--advertise=" + address;
    EXPECT_EQ(Error({"--standby=etcd", flag.c_str()}),
              "--advertise is '" + address +
                  "', it must be host:port with the host and the port at which clients reach this manager");
  }
  for (const char* flag : {"--advertise=10.1.2.3:50051", "--advertise=[fd00::1]:50051",
                           "--advertise=manager-0.quire:50051", "--advertise=unix:/run/manager.sock"}) {
    EXPECT_TRUE(Parse({"--standby=etcd", flag}).ok()) << flag;
  }
  // The token of the service account does not travel in plain text.
  for (const char* api : {"--kubernetes-api=http://10.0.0.1:80", "--kubernetes-api=http://127.0.0.1.evil:80",
                          "--kubernetes-api=10.0.0.1:443"}) {
    EXPECT_THAT(Error({"--standby=kubernetes", api}), HasSubstr("it must be https://host:port"));
  }
}

TEST(OptionsTest, ThePolicySaysWhoIsServedFirst) {
  using Policy = SchedulingPolicy;
  EXPECT_EQ(Parse({})->scheduler.policy, Policy::kFairShare);
  EXPECT_EQ(Parse({"--policy=fcfs"})->scheduler.policy, Policy::kFcfs);
  EXPECT_EQ(Parse({"--policy=longest-prefix-first"})->scheduler.policy, Policy::kLongestPrefixFirst);
  const absl::StatusOr<ManagerOptions> fair = Parse({"--policy=fair-share", "--tenant-weights=a=2,b.c=0.5,"});
  ASSERT_TRUE(fair.ok()) << fair.status();
  EXPECT_EQ(fair->scheduler.policy, Policy::kFairShare);
  EXPECT_EQ(fair->scheduler.tenants.Of("a").weight, 2);
  EXPECT_EQ(fair->scheduler.tenants.Of("b.c").weight, 0.5);
  EXPECT_EQ(fair->scheduler.tenants.by_tenant.size(), 2u);
}

TEST(OptionsTest, TheFileOfTenantsIsReadAtTheStart) {
  const std::string path = absl::StrCat(testing::TempDir(), "/options_test_tenants.", getpid());
  const std::string flag = absl::StrCat("--tenants=", path);
  EXPECT_THAT(Error({flag.c_str()}), HasSubstr("--tenants: cannot read"));
  std::ofstream(path) << "acme: {weight: 2}\n";
  EXPECT_EQ(Parse({flag.c_str()})->tenants, path);
  EXPECT_EQ(Error({flag.c_str(), "--tenant-weights=a=2"}),
            "--tenants and --tenant-weights are set, only one of them may be");
  unlink(path.c_str());
}

TEST(OptionsTest, WhenRequestsJoinAndWhatTheyShareCanBeChosen) {
  const absl::StatusOr<ManagerOptions> defaults = Parse({});
  EXPECT_EQ(defaults->scheduler.batching, Batching::kContinuous);
  EXPECT_EQ(defaults->scheduler.waiting_served_ratio, 0);
  EXPECT_TRUE(defaults->has_prefix_cache);
  EXPECT_EQ(defaults->max_pinned_share, 0.25);
  const absl::StatusOr<ManagerOptions> options =
      Parse({"--batching=static", "--waiting-served-ratio=1.5", "--prefix-cache=false", "--max-pinned-share=1"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->scheduler.batching, Batching::kStatic);
  EXPECT_EQ(options->scheduler.waiting_served_ratio, 1.5);
  EXPECT_FALSE(options->has_prefix_cache);
  EXPECT_EQ(options->max_pinned_share, 1);
}

TEST(OptionsTest, TenantWeightsAreChecked) {
  const auto error = [](const char* weights) { return Error({"--policy=fair-share", weights}); };
  const char* form = ", it must be tenant=weight with a number as the weight, and a comma between two of them";
  EXPECT_EQ(error("--tenant-weights=a=2,b"), absl::StrCat("--tenant-weights has 'b'", form));
  EXPECT_EQ(error("--tenant-weights=a=2,=1"), absl::StrCat("--tenant-weights has '=1'", form));
  EXPECT_EQ(error("--tenant-weights=a=much"), absl::StrCat("--tenant-weights has 'a=much'", form));
  EXPECT_EQ(error("--tenant-weights=a=0"), "--tenant-weights gives 'a' the weight 0, it must be 0.001 .. 1000000");
  EXPECT_EQ(error("--tenant-weights=a=nan"), "--tenant-weights gives 'a' the weight nan, it must be 0.001 .. 1000000");
  EXPECT_EQ(error("--tenant-weights=a=1,a=2"), "--tenant-weights names 'a' twice");
  EXPECT_EQ(Error({"--policy=fcfs", "--tenant-weights=a=2"}), "--tenant-weights is set, it needs --policy=fair-share");
}

TEST(OptionsTest, ClientLimitsReachTheService) {
  const InferenceServiceOptions defaults;
  absl::StatusOr<ManagerOptions> options = Parse({});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->inference.limits.max_prompt_bytes, defaults.limits.max_prompt_bytes);
  EXPECT_EQ(options->inference.max_requests, defaults.max_requests);
  EXPECT_EQ(options->inference.max_batch_requests, defaults.max_batch_requests);
  EXPECT_EQ(options->inference.max_outbox_tokens, defaults.max_outbox_tokens);
  EXPECT_EQ(options->inference.max_waiting_texts, defaults.max_waiting_texts);
  EXPECT_EQ(options->inference.max_text_bytes, defaults.max_text_bytes);
  EXPECT_EQ(options->inference.num_text_threads, defaults.num_text_threads);
  EXPECT_EQ(options->inference.last_write_timeout, defaults.last_write_timeout);

  options = Parse({"--max-prompt-bytes=1", "--max-requests=2", "--max-outbox-tokens=3", "--max-waiting-texts=4",
                   "--text-threads=5", "--last-write-timeout=6s", "--max-message-bytes=70000",
                   "--worker-keepalive-timeout=8s", "--max-batch-requests=9", "--max-text-bytes=140000"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->inference.limits.max_prompt_bytes, 1u);
  EXPECT_EQ(options->inference.max_requests, 2u);
  EXPECT_EQ(options->inference.max_batch_requests, 9u);
  EXPECT_EQ(options->inference.max_outbox_tokens, 3u);
  EXPECT_EQ(options->inference.max_waiting_texts, 4u);
  EXPECT_EQ(options->inference.max_text_bytes, 140'000u);
  EXPECT_EQ(options->inference.num_text_threads, 5);
  EXPECT_EQ(options->inference.last_write_timeout, absl::Seconds(6));
  EXPECT_EQ(options->inference.max_message_bytes, 70'000u);
  EXPECT_EQ(options->worker_keepalive_timeout, absl::Seconds(8));
}

TEST(OptionsTest, ErrorsNameFlagValueAndLimit) {
  EXPECT_EQ(Error({"--max-tokens-per-step=0"}), "--max-tokens-per-step is 0, it must be 1 .. 1073741824");
  EXPECT_EQ(Error({"--max-chunk-tokens=many"}), "--max-chunk-tokens is 'many', it must be a whole number");
  EXPECT_EQ(Error({"--max-context-tokens=1"}), "--max-context-tokens is 1, it must be 0 or at least 2");
  EXPECT_EQ(Error({"--max-plans-in-flight=3"}), "--max-plans-in-flight is 3, it must be 1 .. 2");
  EXPECT_EQ(Error({"--watermark=1"}), "--watermark is 1, it must be in [0, 1)");
  EXPECT_EQ(Error({"--max-queue-share=1.0000001"}), "--max-queue-share is 1.0000001, it must be above 0 and at most 1");
  EXPECT_EQ(Error({"--watermark=nan"}), "--watermark is nan, it must be in [0, 1)");
  EXPECT_EQ(Error({"--step-timeout=5"}),
            "--step-timeout is '5', it must be a duration such as 500ms, 30s, 10m or 1h30m");
  EXPECT_EQ(Error({"--drain-timeout=-1s"}), "--drain-timeout is -1s, it must be more than 0 and at most 24h");
  EXPECT_EQ(Error({"--adopt-window=25h"}), "--adopt-window is 25h, it must be 0 .. 24h");
  EXPECT_EQ(Error({"--failover-after=-1s"}), "--failover-after is -1s, it must be 0 .. 24h");
  EXPECT_EQ(Error({"--policy=best"}),
            "--policy is 'best', it must be one of fcfs, priority, longest-prefix-first, fair-share");
  EXPECT_EQ(Error({"--status-page=true"}), "--status-page is 'true', it must be one of off, sums, names");
  EXPECT_EQ(Error({"--batching=some"}), "--batching is 'some', it must be one of continuous, static");
  EXPECT_EQ(Error({"--max-pinned-share=1.5"}), "--max-pinned-share is 1.5, it must be in [0, 1]");
  EXPECT_EQ(Error({"--waiting-served-ratio=-1"}), "--waiting-served-ratio is -1, it must be 0 .. 1000000");
  EXPECT_EQ(Error({"--workers=a:1,,b:1"}), "--workers is 'a:1,,b:1', it has an empty address");
  EXPECT_EQ(Error({"--workers=a:0"}), "--workers: 'a:0' has port '0', it must be 1 .. 65535");
  EXPECT_EQ(Error({"--workers=a:1,b"}),
            "--workers: 'b' has no port, it must be host:port, unix:path or dns:///name:port");
  EXPECT_EQ(Error({"--workers=a:1,unix:/b,a:1"}), "--workers names 'a:1' twice");
  EXPECT_EQ(Error({"--max-requests=0"}), "--max-requests is 0, it must be 1 .. 1073741824");
  EXPECT_EQ(Error({"--max-message-bytes=100000", "--max-prompt-bytes=100001"}),
            "--max-prompt-bytes is 100001, it must be 1 .. 100000");
  EXPECT_EQ(Error({"--listen=50051"}), "--listen is '50051', it must be host:port or unix:path");
  EXPECT_EQ(Error({"--listen=127.0.0.1:70000"}), "--listen is '127.0.0.1:70000', its port must be 0 .. 65535");
  EXPECT_EQ(Error({"--metrics-listen=unix:/a"}),
            "--metrics-listen is 'unix:/a', it must be host:port, or empty for none");
  EXPECT_EQ(Error({"--health-listen=50052"}), "--health-listen is '50052', it must be host:port, or empty for none");
}

TEST(OptionsTest, WorkersOnOtherMachinesNeedTls) {
  EXPECT_EQ(Error({"--workers=unix:/a,node1:50061"}),
            "--workers has 'node1:50061', which is reached over a network: give --worker-tls-ca, or --insecure");
  EXPECT_EQ(Error({"--worker-tls-cert=c", "--worker-tls-key=k"}),
            "--worker-tls-ca is missing: --worker-tls-cert and --worker-tls-key mean nothing without it");
  EXPECT_TRUE(Parse({"--workers=node1:50061", "--insecure"}).ok());
  const absl::StatusOr<ManagerOptions> options =
      Parse({"--workers=node1:50061", "--worker-tls-ca=a", "--worker-tls-cert=c", "--worker-tls-key=k"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->worker_tls, (TlsFiles{.certificate = "c", .key = "k", .authority = "a"}));
  EXPECT_EQ(options->worker_name, "quire-worker");
}

TEST(OptionsTest, OtherMachinesAreServedWithTlsOnly) {
  EXPECT_EQ(
      Error({"--listen=0.0.0.0:50051"}),
      "--listen is '0.0.0.0:50051', which other machines could reach without TLS: set --tls-cert and --tls-key, or "
      "--insecure");
  EXPECT_TRUE(Parse({"--listen=0.0.0.0:50051", "--tls-cert=c", "--tls-key=k", "--tls-ca=a"}).ok());
}

TEST(OptionsTest, TokensDoNotTravelInPlainText) {
  EXPECT_EQ(Error({"--tokens=t", "--listen=0.0.0.0:1", "--insecure"}),
            "--tokens is set and --listen is '0.0.0.0:1': tokens are not taken over a network without TLS, give "
            "--tls-cert");
  EXPECT_TRUE(Parse({"--tokens=t", "--listen=0.0.0.0:1", "--tls-cert=c", "--tls-key=k"}).ok());
  const absl::StatusOr<ManagerOptions> options = Parse({"--tokens=t", "--admin-names=ops,spiffe://a/b"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->tokens, "t");
  EXPECT_THAT(options->client_names, ElementsAre("quire-client"));
  EXPECT_THAT(options->admin_names, ElementsAre("ops", "spiffe://a/b"));
}

TEST(OptionsTest, TheFileOfTenantsIsReadWithTheFlags) {
  EXPECT_EQ(Error({"--tenants=/nonexistent"}), "--tenants: cannot read /nonexistent: No such file or directory");
}

TEST(OptionsTest, WhatIsNotAFlagOfOursIsRefused) {
  EXPECT_THAT(Error({"--wrokers=a:1"}), HasSubstr("--wrokers"));
  EXPECT_THAT(Error({"workers"}), HasSubstr("'workers'"));
  EXPECT_EQ(Error({"--listen"}), "--listen has no value");
  EXPECT_THAT(Error({"--flagfile=x"}), HasSubstr("--flagfile"));
}

TEST(OptionsTest, TheHelpShowsEveryFlagAsItIsTyped) {
  EXPECT_THAT(Text({"--help"}), HasSubstr("--max-tokens-per-step=2048\n"));
  EXPECT_THAT(Text({"--help"}), HasSubstr("--drain-timeout=30s\n"));
  EXPECT_THAT(Text({"--version"}), HasSubstr("quire-manager 0."));
}

TEST(ReferenceTest, TheDocumentsHaveTheFlags) {
  ManagerOptions options;
  const Settings settings = ManagerSettings(&options);
  const std::string all = FlagTables(settings);
  EXPECT_EQ(MadeSection("docs/configuration.md", "all flags of quire-manager", all), all)
      << "Run this test with QUIRE_UPDATE_GOLDEN=1 to write the section again.";
  const std::string first = ShortFlagTable(settings, {"workers", "listen", "tokens", "max_step_ms", "policy"});
  EXPECT_EQ(MadeSection("docs/serving.md", "first flags of quire-manager", first), first)
      << "Run this test with QUIRE_UPDATE_GOLDEN=1 to write the section again.";
}

TEST(ReferenceTest, NoVariableOfAFlagIsOneThatKubernetesMakesForAService) {
  ManagerOptions options;
  for (const std::string& name : ManagerSettings(&options).Names()) {
    const std::string variable = EnvironmentVariable("quire-manager", name);
    EXPECT_FALSE(IsServiceLink(variable)) << variable;
  }
}

TEST(EffectiveConfigTest, IsReadBackAsTheSameConfiguration) {
  const std::string path = absl::StrCat(testing::TempDir(), "/quire-manager.", getpid(), ".yaml");
  const std::string config = absl::StrCat("--config=", path);
  const std::string printed =
      Text({"--print-effective-config", "--workers=a:1,unix:/b c", "--insecure", "--policy=fair-share",
            "--tenant-weights=a=2,b=0.5", "--watermark=0.1", "--metrics-listen=", "--step-timeout=90s"});
  std::ofstream(path) << printed;
  std::string again = Text({config.c_str(), "--print-effective-config"});
  unlink(path.c_str());
  const auto without_comments = [](std::string text) { return std::regex_replace(text, std::regex("  # .*"), ""); };
  EXPECT_EQ(without_comments(again), without_comments(printed));
  EXPECT_THAT(printed, HasSubstr("  # flag\n"));
  EXPECT_THAT(again, HasSubstr(absl::StrCat("  # ", path, ":4\n"))) << "the first group has its first key there";
}

}  // namespace
}  // namespace quire
