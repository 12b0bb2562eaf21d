// SPDX-License-Identifier: Apache-2.0

// Guided decoding through the real programs.

#include <atomic>
#include <csignal>
#include <fstream>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/cluster.h"
#include "tests/e2e/quirectl.h"
#include "tests/security/certificates.h"

namespace quire {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kSchema = R"({
  "type": "object",
  "properties": {
    "name": {"type": "string", "maxLength": 12},
    "age": {"type": "integer", "minimum": 1, "maximum": 120},
    "pets": {"type": "array", "items": {"enum": ["dog", "cat", "fox"]}, "minItems": 1, "maxItems": 3},
    "home": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"town": {"type": "string", "maxLength": 9}},
                                          "required": ["town"]}]}
  },
  "required": ["name", "age", "pets", "home"]
})";

v1::GenerateRequest SchemaRequest(int seed) {
  v1::GenerateRequest request = GreedyRequest("Once upon a time there was a fox", 300);
  request.mutable_sampling()->set_temperature(1.5);
  request.mutable_sampling()->set_seed(static_cast<uint64_t>(seed));
  request.mutable_guided()->set_json_schema(kSchema);
  return request;
}

void ExpectFits(const std::string& text) {
  const auto value = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(value.is_object()) << text;
  EXPECT_TRUE(value["name"].is_string()) << text;
  EXPECT_TRUE(value["age"].is_number_integer() && value["age"] >= 1 && value["age"] <= 120) << text;
  EXPECT_TRUE(value["pets"].is_array() && value["pets"].size() >= 1 && value["pets"].size() <= 3) << text;
  EXPECT_TRUE(value["home"].is_null() || value["home"]["town"].is_string()) << text;
  EXPECT_EQ(value.size(), 4u) << text;
}

TEST(GuidedTest, EverySampleFitsTheSchema) {
  v1::GenerateRequest request = SchemaRequest(1);
  request.set_n(8);
  request.set_logprobs(1);
  const Generations samples = GenerateAll(SharedCluster().client(), request);
  ASSERT_TRUE(samples.status.ok()) << samples.status;
  ASSERT_EQ(samples.samples.size(), 8u);
  for (const Generation& sample : samples.samples) {
    ASSERT_EQ(sample.last.finish_reason(), v1::FINISH_REASON_STOP) << sample.text;
    ExpectFits(sample.text);
    EXPECT_EQ(sample.logprobs.size(), sample.token_ids.size());
  }
}

TEST(GuidedTest, EveryHypothesisOfABeamSearchFitsTheSchema) {
  v1::GenerateRequest request = GreedyRequest("Once upon a time", 300);
  request.mutable_guided()->set_json_schema(kSchema);
  request.mutable_beam()->set_width(3);
  request.mutable_beam()->set_num_return_sequences(3);
  const Generations beams = GenerateAll(SharedCluster().client(), request);
  ASSERT_TRUE(beams.status.ok()) << beams.status;
  for (const Generation& beam : beams.samples) ExpectFits(beam.text);
}

TEST(GuidedTest, WrongGuidesAreRefusedWithFieldAndPlace) {
  v1::GenerateRequest request = GreedyRequest("a", 4);
  request.mutable_guided()->set_json_schema(R"({"properties": {"a": {"disallow": {}}}})");
  EXPECT_THAT(std::string(Generate(SharedCluster().client(), request).status.message()),
              HasSubstr("guided.json_schema: at #/properties/a/disallow: the keyword \"disallow\" is not supported"));
}

class GuidedQuirectlTest : public QuirectlTest {};

TEST_F(GuidedQuirectlTest, TheOptionsSayWhatTheAnswerIs) {
  const Ended choice = Quirectl({"generate", "The fox was", "--choice", "red", "--choice", "blue", "-t", "1.5"});
  EXPECT_EQ(choice.exit_code, 0) << choice.output;
  EXPECT_THAT(choice.output, AnyOf(HasSubstr("red"), HasSubstr("blue")));
  const Ended regex = Quirectl({"generate", "The fox was", "--regex", "[0-9]{3}x", "-t", "1.5"});
  EXPECT_TRUE(std::regex_search(regex.output, std::regex("[0-9]{3}x"))) << regex.output;
  const Ended grammar = Shell("quirectl generate hi --grammar 'root ::= \"q\" root | \"z\"' -n 40 -t 0");
  EXPECT_EQ(grammar.exit_code, 0) << grammar.output;
  const Ended cut = Quirectl({"generate", "hi", "--regex", "[a-z]{500}", "-n", "10"});
  EXPECT_EQ(cut.exit_code, 0) << cut.output;
  EXPECT_THAT(cut.output, HasSubstr("quirectl: the answer was cut at 10 tokens, so it may not be a text that matches"));
  EXPECT_THAT(choice.output, Not(HasSubstr("cut")));
  EXPECT_THAT(Quirectl({"generate", "hi", "--json-object", "--regex", "a"}).output, HasSubstr("give one of"));
  EXPECT_THAT(Quirectl({"generate", "hi", "--json-schema", "@/nowhere"}).output, HasSubstr("cannot read"));
}

constexpr int kRequests = 8;

std::vector<Generation> GenerateOneByOne(Cluster& cluster) {
  std::vector<Generation> all;
  for (int seed = 0; seed < kRequests; ++seed) all.push_back(Generate(cluster.client(), SchemaRequest(seed)));
  return all;
}

// Starts all requests together and calls `meanwhile`.
template <typename Meanwhile>
std::vector<Generation> GenerateTogether(Cluster& cluster, Meanwhile meanwhile) {
  std::vector<Generation> all(kRequests);
  std::vector<std::thread> clients;
  for (int seed = 0; seed < kRequests; ++seed) {
    clients.emplace_back([&, seed] {
      Client client(cluster.client_options());
      all[static_cast<size_t>(seed)] = Generate(client, SchemaRequest(seed));
    });
  }
  meanwhile();
  for (std::thread& client : clients) client.join();
  return all;
}

void ExpectSameThatFit(const std::vector<Generation>& actual, const std::vector<Generation>& expected) {
  for (size_t i = 0; i < kRequests; ++i) {
    ASSERT_TRUE(expected[i].status.ok()) << expected[i].status;
    ExpectFits(expected[i].text);
    EXPECT_TRUE(actual[i].status.ok()) << actual[i].status;
    EXPECT_EQ(actual[i].token_ids, expected[i].token_ids);
  }
}

TEST(GuidedExactnessTest, TheTokensAreTheSameAfterPreemptions) {
  // The pool has room for the longest request and little more.
  Cluster cluster({.model = BundledModel(), .worker_flags = {"--num-blocks=80", "--block-size=4"}});
  const std::vector<Generation> expected = GenerateOneByOne(cluster);
  // Only requests that run at the same time take blocks from each other. So the worker is stopped until all are there,
  // but not so long that the manager gives it up.
  constexpr int kMaxRounds = 10;
  constexpr absl::Duration kMaxStop = absl::Milliseconds(500);
  const auto let_all_arrive = [&] {
    const absl::Time end = absl::Now() + kMaxStop;
    uint32_t num_requests = 0;
    while (num_requests < kRequests && absl::Now() < end) {
      const v1::WorkerStatus worker = cluster.client().GetStatus()->workers(0);
      num_requests = worker.waiting_requests() + worker.running_requests();
    }
    cluster.worker(0).Signal(SIGCONT);
  };
  uint64_t num_preemptions = 0;
  for (int round = 0; round < kMaxRounds && num_preemptions == 0; ++round) {
    cluster.worker(0).Signal(SIGSTOP);
    ExpectSameThatFit(GenerateTogether(cluster, let_all_arrive), expected);
    num_preemptions = cluster.client().GetStatus()->workers(0).preemptions();
  }
  EXPECT_GT(num_preemptions, 0u) << "the pool was meant to be too small";
}

TEST(GuidedExactnessTest, TheTokensAreTheSameAfterTheLossOfAWorker) {
  Cluster cluster({.model = BundledModel(), .num_workers = 2});
  const std::vector<Generation> expected = GenerateOneByOne(cluster);
  const auto kill = [&] {
    const uint64_t first_step = cluster.client().GetStatus()->workers(0).steps();
    while (cluster.client().GetStatus()->workers(0).steps() <= first_step + 5) std::this_thread::yield();
    cluster.worker(0).Signal(SIGKILL);
  };
  ExpectSameThatFit(GenerateTogether(cluster, kill), expected);
}

TEST(GuidedExactnessTest, TheTokensAreTheSameAfterARestartOfTheManager) {
  const TemporaryDirectory directory;
  std::ofstream(directory / "key") << std::string(40, 'k');
  Cluster cluster({.model = BundledModel(),
                   .manager_flags = {absl::StrCat("--resume-key-file=", directory / "key")},
                   .metrics_listen = "127.0.0.1:0"});
  std::vector<v1::GenerateRequest> requests(4, SchemaRequest(0));
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].mutable_sampling()->set_seed(i);
    requests[i].mutable_guided()->set_regex("([0-9]{3} ){60}");
    requests[i].set_request_id(absl::StrCat("numbers-", i));
    requests[i].set_on_disconnect(v1::ON_DISCONNECT_DETACH);
  }
  std::vector<Generations> actual(requests.size());
  std::atomic<size_t> num_begun = 0;
  std::vector<std::thread> clients;
  for (size_t i = 0; i < requests.size(); ++i) {
    clients.emplace_back([&, i] {
      Client client(cluster.client_options());
      actual[i] = GenerateAll(client, requests[i], absl::Seconds(120), [&] { ++num_begun; });
    });
  }
  while (num_begun < requests.size()) std::this_thread::yield();
  cluster.manager().Signal(SIGKILL);
  cluster.manager().Wait();
  cluster.RestartManager();
  const std::string line = cluster.manager().WaitForLine("of another manager: ");
  EXPECT_THAT(line, HasSubstr(" continue, "));
  EXPECT_THAT(line, Not(HasSubstr(": 0 continue")));
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(cluster.ReadMetric("quire_recomputed_tokens_total"), 0);
  const std::regex numbers("([0-9]{3} ){60}");
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_TRUE(actual[i].status.ok()) << actual[i].status;
    requests[i].clear_request_id();
    const Generation expected = Generate(cluster.client(), requests[i]);
    EXPECT_EQ(actual[i].samples[0].token_ids, expected.token_ids);
    EXPECT_TRUE(std::regex_match(expected.text, numbers)) << expected.text;
  }
}

}  // namespace
}  // namespace quire
