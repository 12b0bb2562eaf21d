// The load generator against the real pair.

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/e2e/cluster.h"
#include "tests/e2e/process.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

std::string Serve(const std::vector<std::string>& flags, int* exit_code) {
  std::vector<std::string> command = {Binary("serve")};
  command.insert(command.end(), flags.begin(), flags.end());
  Process process(command);
  *exit_code = process.Wait();
  return process.Output();
}

TEST(ServeTest, EveryRequestIsCountedToItsLastToken) {
  Cluster cluster({.model = BundledModel()});
  const auto serve = [&](const std::string& max_concurrency, const std::string& flag = "--multiplex=false") {
    int exit_code;
    const std::string output = Serve({"--endpoint=" + cluster.endpoint(), "--requests=6", "--mean-prompt=20",
                                      "--mean-output=5", "--json=-", "--max-concurrency=" + max_concurrency, flag},
                                     &exit_code);
    EXPECT_EQ(exit_code, 0) << output;
    return nlohmann::json::parse(output, nullptr, /*allow_exceptions=*/false);
  };
  const nlohmann::json all_at_once = serve("0");
  EXPECT_EQ(all_at_once["completed"], 6);
  EXPECT_EQ(all_at_once["failed"], 0);
  EXPECT_GE(all_at_once["total_output_tokens"], 6);
  EXPECT_GT(all_at_once["median_ttft_ms"], 0);
  EXPECT_LE(all_at_once["median_ttft_ms"], all_at_once["p99_ttft_ms"]);
  const nlohmann::json one_by_one = serve("1");
  EXPECT_EQ(one_by_one["total_input_tokens"], all_at_once["total_input_tokens"]);
  EXPECT_EQ(one_by_one["total_output_tokens"], all_at_once["total_output_tokens"]);
  const nlohmann::json multiplexed = serve("3", "--multiplex=true");
  EXPECT_EQ(multiplexed["completed"], 6);
  EXPECT_EQ(multiplexed["total_output_tokens"], all_at_once["total_output_tokens"]);
  EXPECT_GT(cluster.client().GetStatus()->prompt_tokens(), 0u);
}

TEST(ServeTest, PromptsBeginWithTheSharedPrefix) {
  Cluster cluster({.model = BundledModel()});
  int exit_code;
  const std::string output = Serve({"--endpoint=" + cluster.endpoint(), "--requests=3", "--mean-prompt=40",
                                    "--mean-output=2", "--shared-prefix=1000", "--max-concurrency=1"},
                                   &exit_code);
  EXPECT_EQ(exit_code, 0) << output;
  EXPECT_GT(cluster.client().GetStatus()->cached_prompt_tokens(), 0u);
}

TEST(ServeTest, TroubleIsToldInOneLine) {
  int exit_code;
  EXPECT_THAT(Serve({"--rate=-1"}, &exit_code), HasSubstr("serve: --rate is -1, it must be 0 .. 1000000"));
  EXPECT_EQ(exit_code, 2);
  EXPECT_THAT(Serve({"--endpoint=unix:/nonexistent"}, &exit_code), HasSubstr("serve: "));
  EXPECT_EQ(exit_code, 1);
  EXPECT_THAT(Serve({"--speed=1"}, &exit_code), HasSubstr("serve: "));
  EXPECT_EQ(exit_code, 2);
  EXPECT_THAT(Serve({"--help"}, &exit_code), HasSubstr("--max-concurrency"));
  EXPECT_EQ(exit_code, 0);
}

}  // namespace
}  // namespace quire
