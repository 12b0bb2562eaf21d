// SPDX-License-Identifier: Apache-2.0

#include "gateway/process/options.h"

#include <string>
#include <vector>

#include "base/configuration.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/flag_reference.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<GatewayOptions> Parse(const std::vector<const char*>& args) {
  absl::StatusOr<CommandLine<GatewayOptions>> line = ParseGatewayCommandLine(args);
  if (!line.ok()) return line.status();
  EXPECT_FALSE(line->text);
  return line->options;
}

std::string Error(const std::vector<const char*>& args) {
  const absl::Status status = Parse(args).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(GatewayOptionsTest, TheDefaultsAreLocal) {
  const absl::StatusOr<GatewayOptions> options = Parse({});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->listen, "127.0.0.1:8000");
  EXPECT_EQ(options->manager, "127.0.0.1:50051");
  EXPECT_FALSE(options->requires_tokens);
  EXPECT_EQ(options->max_body_bytes, 16u << 20);
}

TEST(GatewayOptionsTest, EveryFlagIsRead) {
  const absl::StatusOr<GatewayOptions> options = Parse({"--listen=unix:/run/http",    "--manager=unix:/run/quire",
                                                        "--require-tokens",           "--max-callers=3",
                                                        "--max-connections=4",        "--max-body-bytes=2048",
                                                        "--max-receiving-bytes=4096", "--max-waiting-bytes=4097",
                                                        "--max-unsent-bytes=1025",    "--head-timeout=1s",
                                                        "--body-timeout=2s",          "--idle-timeout=3s",
                                                        "--write-timeout=4s",         "--call-timeout=5s",
                                                        "--drain-timeout=6s",         "--resume-time=0",
                                                        "--manager-name=m",           "--send-timeout=7s",
                                                        "--request-timeout=8s",       "--max-answer-bytes=1048577",
                                                        "--max-answer-logprobs=1025", "--tool-call-format=hermes",
                                                        "--reasoning-format=none",    "--manager-wait=9s"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->listen, "unix:/run/http");
  EXPECT_EQ(options->manager, "unix:/run/quire");
  EXPECT_EQ(options->manager_name, "m");
  EXPECT_TRUE(options->requires_tokens);
  EXPECT_EQ(options->max_callers, 3u);
  EXPECT_EQ(options->formats.tool_calls, "hermes");
  EXPECT_EQ(options->formats.reasoning, "none");
  EXPECT_EQ(options->max_connections, 4);
  EXPECT_EQ(options->max_body_bytes, 2048u);
  EXPECT_EQ(options->max_receiving_bytes, 4096);
  EXPECT_EQ(options->max_answer_bytes, 1048577u);
  EXPECT_EQ(options->max_answer_logprobs, 1025u);
  EXPECT_EQ(options->send_timeout, absl::Seconds(7));
  EXPECT_EQ(options->request_timeout, absl::Seconds(8));
  EXPECT_EQ(options->max_waiting_bytes, 4097u);
  EXPECT_EQ(options->max_unsent_bytes, 1025u);
  EXPECT_EQ(options->head_timeout, absl::Seconds(1));
  EXPECT_EQ(options->body_timeout, absl::Seconds(2));
  EXPECT_EQ(options->idle_timeout, absl::Seconds(3));
  EXPECT_EQ(options->write_timeout, absl::Seconds(4));
  EXPECT_EQ(options->call_timeout, absl::Seconds(5));
  EXPECT_EQ(options->drain_timeout, absl::Seconds(6));
  EXPECT_EQ(options->resume_time, absl::ZeroDuration());
  EXPECT_EQ(options->manager_wait, absl::Seconds(9));
}

TEST(GatewayOptionsTest, OtherMachinesNeedTlsAndAProof) {
  EXPECT_THAT(Error({"--listen=0.0.0.0:80"}), HasSubstr("without TLS"));
  EXPECT_THAT(Error({"--listen=0.0.0.0:80", "--tls-cert=c", "--tls-key=k"}), HasSubstr("without authentication"));
  EXPECT_TRUE(Parse({"--listen=0.0.0.0:80", "--tls-cert=c", "--tls-key=k", "--require-tokens"}).ok());
  EXPECT_TRUE(Parse({"--listen=0.0.0.0:80", "--insecure"}).ok());
  EXPECT_THAT(Error({"--listen=0.0.0.0:80", "--insecure", "--require-tokens"}),
              HasSubstr("tokens are not taken over a network without TLS"));
}

TEST(GatewayOptionsTest, AManagerOnAnotherMachineNeedsTls) {
  EXPECT_THAT(Error({"--manager=node:1"}), HasSubstr("--manager is 'node:1' on another machine"));
  EXPECT_TRUE(Parse({"--manager=node:1", "--insecure"}).ok());
  EXPECT_THAT(Error({"--manager=localhost:1,node:1"}), HasSubstr("--manager is 'node:1' on another machine"));
  EXPECT_TRUE(Parse({"--manager=localhost:1,localhost:2"}).ok());
  EXPECT_THAT(Error({"--manager=localhost:1,"}), HasSubstr("--manager: the endpoint is empty"));
  EXPECT_THAT(Error({"--manager=node"}), HasSubstr("--manager"));
  EXPECT_EQ(Error({"--endpoint=localhost:1"}), "there is no flag --endpoint; did you mean --manager?");
  EXPECT_THAT(Error({"--manager-tls-cert=c", "--manager-tls-key=k"}), HasSubstr("--manager-tls-ca is missing"));
  EXPECT_THAT(Error({"--manager-tls-ca=a", "--manager-tls-key=k"}), HasSubstr("--manager-tls-cert is missing"));
  EXPECT_THAT(Error({"--manager-tls-ca=/does/not/exist"}), HasSubstr("--manager-tls-ca"));
}

TEST(GatewayOptionsTest, LimitsHaveRanges) {
  EXPECT_EQ(Error({"--max-callers=0"}), "--max-callers is 0, it must be 1 .. 65536");
  EXPECT_THAT(Error({"--max-body-bytes=1"}), HasSubstr("--max-body-bytes is 1"));
  EXPECT_THAT(Error({"--max-receiving-bytes=1"}), HasSubstr("--max-receiving-bytes is 1"));
  EXPECT_THAT(Error({"--max-unsent-bytes=1"}), HasSubstr("--max-unsent-bytes is 1"));
}

TEST(GatewayOptionsTest, OneAddressHasSevenEighthsOfTheConnectionsByDefault) {
  EXPECT_EQ(Parse({})->max_connections_per_address, 896);
  EXPECT_EQ(Parse({"--listen=unix:/run/http"})->max_connections_per_address, 0) << "there are no addresses";
  EXPECT_EQ(Parse({"--max-connections=1"})->max_connections_per_address, 1);
  EXPECT_EQ(Parse({"--max-connections=80", "--max-connections-per-address=80"})->max_connections_per_address, 80);
  EXPECT_EQ(Error({"--max-connections=80", "--max-connections-per-address=81"}),
            "--max-connections-per-address is 81, it must be 0 .. 80");
}

TEST(GatewayOptionsTest, NamesAndOriginsAreLists) {
  const absl::StatusOr<GatewayOptions> options =
      Parse({"--client-names=a,b", "--host-names=llm.example,x", "--allowed-origins=https://a.example:1,app://b"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_THAT(options->client_names, testing::ElementsAre("a", "b"));
  EXPECT_THAT(options->web_access.host_names, testing::ElementsAre("llm.example", "x"));
  EXPECT_THAT(options->web_access.allowed_origins, testing::ElementsAre("https://a.example:1", "app://b"));
  EXPECT_THAT(Parse({})->client_names, testing::ElementsAre("quire-client", "quire-admin"));
  EXPECT_TRUE(Parse({"--host-names=*", "--allowed-origins=*"}).ok());
  for (const char* wrong : {"--host-names=llm.example:80", "--host-names=http://x", "--host-names=*.example"}) {
    EXPECT_THAT(Error({wrong}), HasSubstr("which is no host name")) << wrong;
  }
  for (const char* wrong :
       {"--allowed-origins=llm.example", "--allowed-origins=https://x/", "--allowed-origins=://x"}) {
    EXPECT_THAT(Error({wrong}), HasSubstr("which is no origin")) << wrong;
  }
}

TEST(GatewayOptionsTest, TheModelMayHaveSeveralNames) {
  EXPECT_THAT(Parse({})->served_names, testing::IsEmpty());
  EXPECT_THAT(Parse({"--served-model-name=gpt-4o, owner/name,"})->served_names,
              testing::ElementsAre("gpt-4o", "owner/name"));
  EXPECT_EQ(Error({"--served-model-name=a,b,a"}), "--served-model-name has the name 'a' twice");
}

TEST(GatewayOptionsTest, UnknownFieldsAreRefusedUnlessTheyMayBeIgnored) {
  EXPECT_FALSE(Parse({})->ignores_unknown_fields);
  EXPECT_TRUE(Parse({"--unknown-fields=warn"})->ignores_unknown_fields);
  EXPECT_EQ(Error({"--unknown-fields=ignore"}), "--unknown-fields is 'ignore', it must be one of refuse, warn");
}

TEST(GatewayOptionsTest, FormatsAreKnownByName) {
  EXPECT_EQ(
      Error({"--tool-call-format=xml"}),
      "--tool-call-format is 'xml', it must be one of auto, none, hermes, llama3, llama3_json, mistral, qwen3_xml, "
      "qwen3_coder, glm45, glm47, openai, harmony, minimax_m2, deepseek_v3, deepseek_v31, deepseek_v32, kimi_k2, "
      "seed_oss, lfm2, granite, apertus, minimax, apriel, gigachat3, gemma4, functiongemma");
  EXPECT_EQ(
      Error({"--reasoning-format=x"}),
      "--reasoning-format is 'x', it must be one of auto, none, think, mistral, openai, seed_oss, apertus, gemma4");
  EXPECT_EQ(Parse({"--tool-call-format=qwen3_coder"})->formats.tool_calls, "qwen3_xml");
}

TEST(GatewayReferenceTest, TheDocumentsHaveTheFlags) {
  GatewayOptions options;
  const std::string all = FlagTables(GatewaySettings(&options));
  EXPECT_EQ(MadeSection("docs/configuration.md", "all flags of quire-openai", all), all)
      << "Run this test with QUIRE_UPDATE_GOLDEN=1 to write the section again.";
}

TEST(GatewayReferenceTest, NoVariableOfAFlagIsOneThatKubernetesMakesForAService) {
  GatewayOptions options;
  for (const std::string& name : GatewaySettings(&options).Names()) {
    const std::string variable = EnvironmentVariable("quire-openai", name);
    EXPECT_FALSE(IsServiceLink(variable)) << variable;
  }
}

}  // namespace
}  // namespace quire
