// quirectl as a user and a script see it.

#include <csignal>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/cluster.h"

namespace quire {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct Ended {
  int exit_code;
  std::string output;
};

Ended Quirectl(const std::string& endpoint, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {Binary("quirectl"), "--endpoint", endpoint});
  Process process(arguments);
  const int exit_code = process.Wait();
  return {exit_code, process.Output()};
}

class QuirectlTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { cluster_ = new Cluster({.model = BundledModel()}); }
  static void TearDownTestSuite() { delete cluster_; }

  static Ended Quirectl(std::vector<std::string> arguments) {
    return quire::Quirectl(cluster_->endpoint(), std::move(arguments));
  }

  static Cluster* cluster_;
};

Cluster* QuirectlTest::cluster_ = nullptr;

TEST_F(QuirectlTest, GenerateStreamsText) {
  const Ended run = Quirectl({"generate", "Once upon a time", "-n", "20", "-t", "0", "--echo", "--usage"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(run.output, StartsWith("Once upon a time"));
  EXPECT_THAT(run.output, HasSubstr("20 generated tokens"));
}

TEST_F(QuirectlTest, JsonIsOneObjectPerLineWithProtoFieldNames) {
  const Ended run = Quirectl({"-o", "json", "generate", "Once upon a time", "-n", "5", "-t", "0", "--logprobs", "2"});
  ASSERT_EQ(run.exit_code, 0) << run.output;
  int num_tokens = 0;
  std::string reason;
  std::istringstream lines(run.output);
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json response = nlohmann::json::parse(line);
    num_tokens += static_cast<int>(response["token_ids"].size());
    EXPECT_EQ(response["logprobs"].size(), response["token_ids"].size());
    reason = response["finish_reason"];
  }
  EXPECT_EQ(num_tokens, 5);
  EXPECT_EQ(reason, "FINISH_REASON_LENGTH");
}

TEST_F(QuirectlTest, TokenizeAndDetokenizeAreInverse) {
  const Ended tokens = Quirectl({"tokenize", "Once upon a time", "-o", "json", "--no-special-tokens"});
  ASSERT_EQ(tokens.exit_code, 0) << tokens.output;
  std::vector<std::string> arguments = {"detokenize"};
  const nlohmann::json response = nlohmann::json::parse(tokens.output);
  for (const auto& id : response["token_ids"]) {
    arguments.push_back(std::to_string(id.get<int>()));
  }
  const Ended text = Quirectl(arguments);
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_EQ(text.output, "Once upon a time\n");
}

TEST_F(QuirectlTest, StatusAndModelAndHealthAnswer) {
  EXPECT_THAT(Quirectl({"status"}).output, HasSubstr("ready"));
  EXPECT_THAT(Quirectl({"model"}).output, HasSubstr("LlamaForCausalLM"));
  for (const char* service : {"", "liveness", "readiness", "quire.v1.InferenceService"}) {
    const Ended health = Quirectl({"health", service});
    EXPECT_EQ(health.exit_code, 0) << service;
    EXPECT_EQ(health.output, "SERVING\n") << service;
  }
}

TEST_F(QuirectlTest, ARejectedRequestNamesTheFieldAndExitsWithFour) {
  const Ended run = Quirectl({"generate", "hello", "-t", "-1"});
  EXPECT_EQ(run.exit_code, 4);
  EXPECT_THAT(run.output, HasSubstr("sampling.temperature"));
  EXPECT_THAT(run.output, HasSubstr("-1"));
}

TEST_F(QuirectlTest, WrongUsageExitsWithTwo) {
  EXPECT_EQ(Quirectl({"generate", "hello", "--no-such-flag"}).exit_code, 2);
  EXPECT_EQ(Quirectl({"generate", "hello", "--logit-bias", "seven"}).exit_code, 2);
  EXPECT_EQ(Quirectl({"no-such-command"}).exit_code, 2);
}

TEST_F(QuirectlTest, ControlCEndsTheCallAndFreesItsBlocks) {
  Process process({Binary("quirectl"), "--endpoint", cluster_->endpoint(), "generate", "Once", "-o", "json",
                   "--max-tokens=900", "--ignore-eos"});
  ASSERT_NE(process.WaitForLine("text_delta"), "") << process.Output();
  process.Signal(SIGINT);
  EXPECT_EQ(process.Wait(), 5) << "text had been printed";
  EXPECT_TRUE(cluster_->WaitUntilIdle());
}

TEST(QuirectlWithoutManagerTest, NobodyThereExitsWithThreeAndSaysWhere) {
  const Ended run = Quirectl("unix:/tmp/quire-no-such-socket", {"status"});
  EXPECT_EQ(run.exit_code, 3);
  EXPECT_THAT(run.output, HasSubstr("unix:/tmp/quire-no-such-socket"));
}

}  // namespace
}  // namespace quire
