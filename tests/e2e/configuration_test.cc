// SPDX-License-Identifier: Apache-2.0

// The real programs with a configuration file and environment variables, and their JSON logs.

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/trace_context.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "quire/v1/inference.grpc.pb.h"
#include "tests/e2e/cluster.h"
#include "tests/test_paths.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kPrompt[] = "Once upon a time a xylophone";
constexpr char kTrace[] = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr char kTraceparent[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

struct Output {
  int exit_code;
  std::string text;
};

Output OutputOf(const std::vector<std::string>& command) {
  Process process(command);
  const int exit_code = process.Wait();
  return {exit_code, process.Output()};
}

std::vector<nlohmann::json> JsonLines(const std::string& text) {
  std::vector<nlohmann::json> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    lines.push_back(nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false));
    EXPECT_TRUE(lines.back().is_object()) << line;
    for (const char* field : {"time", "severity", "message", "pid", "thread"}) {
      EXPECT_TRUE(lines.back().contains(field)) << field << ": " << line;
    }
  }
  return lines;
}

// A manager and a worker that are configured by a file each. The manager also has environment variables.
class ConfigurationTest : public testing::Test {
 protected:
  ConfigurationTest() {
    std::string name = absl::StrCat(testing::TempDir(), "/quire_conf.XXXXXX");
    directory_ = mkdtemp(name.data());
    std::ofstream(Path("worker.yaml")) << "model: " << BundledModel() << "\nlisten: unix:" << Path("w")
                                       << "\nmetrics_listen: 127.0.0.1:0\nnum_blocks: 256\nthreads: 1\n"
                                       << "log_format: json\n";
    std::ofstream(Path("manager.yaml")) << "workers:\n- unix:" << Path("w") << "\nlisten: unix:" << Path("m")
                                        << "\nmetrics_listen: \"\"\nlog_requests: true\nlog_format: json\n"
                                        << "max_step_ms: 50\nmax_chunk_tokens: 60\n";
  }
  ~ConfigurationTest() override {
    for (const char* name : {"worker.yaml", "manager.yaml", "again.yaml", "w", "m"}) unlink(Path(name).c_str());
    rmdir(directory_.c_str());
  }

  std::string Path(const std::string& name) const { return absl::StrCat(directory_, "/", name); }

  std::vector<std::string> ManagerCommand() const {
    return {"/usr/bin/env",
            absl::StrCat("QUIRE_MANAGER_CONFIG=", Path("manager.yaml")),
            "QUIRE_MANAGER_MAX_CHUNK_TOKENS=61",
            "QUIRE_MANAGER_MAX_STEP_MS=51",
            "QUIRE_MANAGER_PORT=tcp://10.0.0.1:50051",
            "QUIRE_MANAGER_SERVICE_HOST=10.0.0.1",
            Binary("quire-manager"),
            "--max-chunk-tokens=62"};
  }

  std::string directory_;
};

// Calls Generate with this traceparent, unless it is "". The result has the traceparent of the answer.
struct Traced {
  grpc::Status status;
  std::string traceparent;
  std::string text;
};
Traced Generate(const std::string& endpoint, const v1::GenerateRequest& request, const std::string& traceparent) {
  const auto stub = v1::InferenceService::NewStub(grpc::CreateChannel(endpoint, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  if (!traceparent.empty()) context.AddMetadata("traceparent", traceparent);
  const auto reader = stub->Generate(&context, request);
  Traced traced;
  v1::GenerateResponse response;
  while (reader->Read(&response)) traced.text += response.text_delta();
  traced.status = reader->Finish();
  const auto& metadata = context.GetServerInitialMetadata();
  const auto found = metadata.find("traceparent");
  if (found != metadata.end()) traced.traceparent = std::string(found->second.data(), found->second.size());
  return traced;
}

TEST_F(ConfigurationTest, TheEffectiveConfigurationSaysWhereValuesAreFromAndIsReadBack) {
  std::vector<std::string> command = ManagerCommand();
  command.push_back("--print-effective-config");
  const Output printed = OutputOf(command);
  EXPECT_EQ(printed.exit_code, 0) << printed.text;
  EXPECT_THAT(printed.text, HasSubstr("\nmax_chunk_tokens: 62  # flag\n"));
  EXPECT_THAT(printed.text, HasSubstr("\nmax_step_ms: 51  # environment QUIRE_MANAGER_MAX_STEP_MS\n"));
  EXPECT_THAT(printed.text, HasSubstr(absl::StrCat("\nlog_requests: true  # ", Path("manager.yaml"), ":5\n")));
  EXPECT_THAT(printed.text, HasSubstr("\nmax_requests: 4096  # default\n"));
  std::ofstream(Path("again.yaml")) << printed.text;
  const Output again =
      OutputOf({Binary("quire-manager"), absl::StrCat("--config=", Path("again.yaml")), "--print-effective-config"});
  const auto without_comments = [](const std::string& text) {
    return std::regex_replace(text, std::regex("  # [^\n]*"), "");
  };
  EXPECT_EQ(without_comments(again.text), without_comments(printed.text));
  const Output worker =
      OutputOf({Binary("quire-worker"), absl::StrCat("--config=", Path("worker.yaml")), "--check-config"});
  EXPECT_EQ(worker.exit_code, 0);
  EXPECT_EQ(worker.text, "quire-worker: the configuration is valid\n");
}

TEST_F(ConfigurationTest, TheExampleInTheDocumentIsValid) {
  std::ifstream file(SourcePath("docs/configuration.md"));
  const std::string document{std::istreambuf_iterator<char>(file), {}};
  const size_t begin = document.find("```yaml\n# quire-manager");
  ASSERT_NE(begin, document.npos);
  const size_t first_line = document.find('\n', begin) + 1;
  std::ofstream(Path("again.yaml")) << document.substr(first_line, document.find("```", first_line) - first_line);
  const Output example =
      OutputOf({Binary("quire-manager"), absl::StrCat("--config=", Path("again.yaml")), "--check-config"});
  EXPECT_EQ(example.text, "quire-manager: the configuration is valid\n");
}

TEST_F(ConfigurationTest, WhatIsWrongIsOneLineOfJsonAndExitCodeTwo) {
  const Output unknown = OutputOf({Binary("quire-manager"), "--max-step-mss=1", "--log-format=json"});
  EXPECT_EQ(unknown.exit_code, 2);
  const std::vector<nlohmann::json> lines = JsonLines(unknown.text);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["severity"], "CRITICAL");
  EXPECT_EQ(lines[0]["message"], "quire-manager: there is no flag --max-step-mss; did you mean --max-step-ms?");
  const Output missing =
      OutputOf({Binary("quire-worker"), absl::StrCat("--config=", Path("worker.yaml")), "--model=/nonexistent"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_EQ(JsonLines(missing.text).back()["severity"], "CRITICAL");
}

TEST_F(ConfigurationTest, EveryLineIsJsonAndARequestsLineHasItsNamesAndItsTraceAndNoText) {
  Process worker({Binary("quire-worker"), absl::StrCat("--config=", Path("worker.yaml"))});
  Process manager(ManagerCommand());
  ASSERT_NE(manager.WaitForLine("joined"), "") << manager.Output() << worker.Output();
  const std::string endpoint = absl::StrCat("unix:", Path("m"));

  v1::GenerateRequest request = GreedyRequest(kPrompt, 8);
  request.set_request_id("story-\"1\"");
  const Traced traced = Generate(endpoint, request, kTraceparent);
  ASSERT_TRUE(traced.status.ok()) << traced.status.error_message();
  ASSERT_GT(traced.text.size(), 8u) << "too short to be sought in the logs";
  const auto span = ParseTraceparent(traced.traceparent);
  ASSERT_TRUE(span.has_value()) << traced.traceparent;
  EXPECT_EQ(span->trace_id, kTrace);
  EXPECT_NE(span->parent_id, "00f067aa0ba902b7");
  EXPECT_TRUE(span->is_sampled);

  const auto fresh = ParseTraceparent(Generate(endpoint, GreedyRequest(kPrompt, 1), "00-zz").traceparent);
  ASSERT_TRUE(fresh.has_value()) << "a malformed one starts a trace";
  EXPECT_NE(fresh->trace_id, kTrace);
  request.mutable_stopping()->set_max_tokens(4096);
  const Traced refused = Generate(endpoint, request, kTraceparent);
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(refused.traceparent, "") << "nothing is sent before admission";

  manager.Signal(SIGTERM);
  EXPECT_EQ(manager.Wait(), 0);
  worker.Signal(SIGTERM);
  EXPECT_EQ(worker.Wait(), 0);
  const std::string output = manager.Output() + worker.Output();
  EXPECT_THAT(output, Not(HasSubstr("xylophone")));
  EXPECT_THAT(output, Not(HasSubstr(traced.text)));
  JsonLines(worker.Output());
  int num_requests = 0;
  bool has_worker = false;
  for (const nlohmann::json& line : JsonLines(manager.Output())) {
    has_worker |= line.contains("worker") && line.contains("epoch");
    if (!line.contains("request_id")) continue;
    ++num_requests;
    EXPECT_TRUE(line["duration_s"].is_number() && line["ttft_s"].is_number()) << line;
    if (line["request_id"] != "story-\"1\"") continue;
    EXPECT_EQ(line["trace_id"], kTrace);
    EXPECT_EQ(line["parent_span_id"], "00f067aa0ba902b7");
    EXPECT_EQ(line["span_id"], span->parent_id);
    EXPECT_EQ(line["finish_reason"], "length");
    EXPECT_EQ(line["output_tokens"], 8);
    EXPECT_GT(line["prompt_tokens"], 5);
  }
  EXPECT_EQ(num_requests, 2) << manager.Output();
  EXPECT_TRUE(has_worker) << manager.Output();
}

}  // namespace
}  // namespace quire
