// SPDX-License-Identifier: Apache-2.0

// Tests how the program quire-worker starts, refuses wrong options and stops.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "quire/v1/worker.grpc.pb.h"
#include "tests/e2e/process.h"
#include "tests/test_paths.h"
#include "tests/worker/model/model_files.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> Command(std::vector<std::string> flags) {
  std::vector<std::string> command = {BinaryPath("bin/quire-worker"), "--model=" + GoldenModel("llama2"),
                                      "--num-blocks=32", "--metrics-listen=127.0.0.1:0", "--listen=127.0.0.1:0"};
  command.insert(command.end(), flags.begin(), flags.end());
  return command;
}

// Returns the rest of the output line that begins with `prefix`.
std::string After(Process* process, const std::string& prefix) {
  const std::string line = process->WaitForLine(prefix);
  return line.empty() ? "" : line.substr(line.find(prefix) + prefix.size());
}

// Returns all lines of the output except the lines of the log, which begin with a level and a time.
std::vector<std::string> Complaints(const Process& process) {
  std::vector<std::string> lines;
  for (absl::string_view line : absl::StrSplit(process.Output(), '\n', absl::SkipEmpty())) {
    if (absl::StartsWith(line, "quire-worker: ")) lines.emplace_back(line);
  }
  return lines;
}

TEST(WorkerProcessTest, ItSaysWhereItListensServesAndStopsOnSigterm) {
  Process process(Command({}));
  const std::string address = After(&process, "listening on ");
  ASSERT_THAT(address, HasSubstr("127.0.0.1:"));
  EXPECT_THAT(process.Output(), HasSubstr("pool    32 blocks of 16 tokens (512 tokens, or 2 sequences of 256 tokens), "
                                          "256.0 KiB float32"));
  EXPECT_NE(After(&process, "metrics on port "), "");
  const auto stub = v1::WorkerService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  v1::DescribeResponse description;
  EXPECT_TRUE(stub->Describe(&context, {}, &description).ok());
  EXPECT_EQ(description.model_name(), "llama2");
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
}

// The embedding, the norms and the output matrix have 32 bits. With int8, the matrices of the layers have a byte for
// each number and a scale for each row.
TEST(WorkerProcessTest, ItSaysHowItHoldsTheWeights) {
  Process plain(Command({})), rounded(Command({"--quantize=int8", "--quantize-output"}));
  EXPECT_EQ(After(&plain, "  weights "), "104.6 KiB in float32");
  EXPECT_EQ(After(&rounded, "  weights "), "38.2 KiB in int8, output matrix int8");
}

// Writes a model with matrices of FP8.
void WriteFp8Model(const TestDirectory& directory) {
  const std::string golden = SourcePath("tests/golden/quantized");
  for (const char* name : {"plain.safetensors", "fp8_channel.safetensors"}) directory.CopyFrom(golden, name);
  directory.Write("model.safetensors.index.json", R"({"weight_map": {"model.norm.weight": "plain.safetensors",
                                                  "model.layers.0.mlp.up_proj.weight": "fp8_channel.safetensors"}})");
  std::string config = ReadWholeFile(golden + "/config.json");
  config.replace(config.rfind('}'), 1,
                 R"(, "quantization_config": {"quant_method": "compressed-tensors", "format": "float-quantized",
                    "config_groups": {"group_0": {"weights": {
                      "num_bits": 8, "type": "float", "strategy": "channel"}}}}})");
  directory.Write("config.json", config);
}

// The generic kernels do not multiply FP8.
TEST(WorkerProcessTest, ItSaysThatFp8IsConverted) {
  const TestDirectory directory;
  WriteFp8Model(directory);
  Process process(Command({"--model=" + directory.path(), "--cpu-kernels=generic"}));
  EXPECT_THAT(After(&process, "  weights "),
              HasSubstr(" in bfloat16, converted from FP8, which this device does not multiply"));
}

TEST(WorkerProcessTest, AnOpenSessionIsToldOnSigintAndEndsWithUnavailableAtTheDrainTimeout) {
  Process process(Command({"--prefault", "--drain-timeout=100ms"}));
  const std::string address = After(&process, "listening on ");
  const auto stub = v1::WorkerService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  const auto stream = stub->Steps(&context);
  v1::StepsRequest request;
  request.mutable_open()->set_epoch(1);
  ASSERT_TRUE(stream->Write(request));
  v1::StepsResponse response;
  ASSERT_TRUE(stream->Read(&response));
  process.Signal(SIGINT);
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_TRUE(response.has_draining());
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(process.Wait(), 0);
}

TEST(WorkerProcessTest, TheLogTellsASessionThatLeftFromOneThatWasReplaced) {
  Process process(Command({}));
  const std::string address = After(&process, "listening on ");
  const auto stub = v1::WorkerService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext contexts[3];
  v1::StepsResponse response;
  std::vector<std::unique_ptr<grpc::ClientReaderWriter<v1::StepsRequest, v1::StepsResponse>>> streams;
  for (int epoch : {1, 2, 3}) {
    streams.push_back(stub->Steps(&contexts[epoch - 1]));
    v1::StepsRequest request;
    request.mutable_open()->set_epoch(epoch);
    ASSERT_TRUE(streams.back()->Write(request));
    ASSERT_TRUE(streams.back()->Read(&response));
    if (epoch == 1) {
      contexts[0].TryCancel();
      ASSERT_NE(process.WaitForLine("session of epoch 1 ended: its stream ended"), "") << process.Output();
    }
  }
  EXPECT_NE(process.WaitForLine("session of epoch 2 ended: epoch 3 took over"), "") << process.Output();
}

TEST(WorkerProcessTest, SessionsAreServedWhileTheReaderOfTheLogStalls) {
  Process process(Command({}));
  const std::string address = After(&process, "listening on ");
  const auto stub = v1::WorkerService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  process.StopReading();
  // Each session has two lines in the log. The pipe takes 4 KiB.
  constexpr int kNumSessions = 100;
  for (int epoch = 1; epoch <= kNumSessions; ++epoch) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    const auto stream = stub->Steps(&context);
    v1::StepsRequest request;
    request.mutable_open()->set_epoch(static_cast<uint64_t>(epoch));
    ASSERT_TRUE(stream->Write(request)) << "epoch " << epoch;
    v1::StepsResponse response;
    ASSERT_TRUE(stream->Read(&response)) << "epoch " << epoch;
    context.TryCancel();
  }
  process.ResumeReading();
  EXPECT_NE(process.WaitForLine(absl::StrCat("session of epoch ", kNumSessions, " ended")), "");
}

TEST(WorkerProcessTest, AWorkerThatItsManagerRefusesIsNotReadyUntilASessionOpensAndSaysWhy) {
  Process process(Command({}));
  const std::string address = After(&process, "listening on ");
  const auto channel = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
  const auto stub = v1::WorkerService::NewStub(channel);
  const auto is_ready = [&] {
    grpc::ClientContext context;
    ::grpc::health::v1::HealthCheckRequest request;
    request.set_service("readiness");
    ::grpc::health::v1::HealthCheckResponse response;
    EXPECT_TRUE(::grpc::health::v1::Health::NewStub(channel)->Check(&context, request, &response).ok());
    return response.status() == ::grpc::health::v1::HealthCheckResponse::SERVING;
  };
  EXPECT_TRUE(is_ready()) << "a worker without a manager is ready";
  grpc::ClientContext refuse_context;
  v1::RefuseRequest refusal;
  refusal.set_reason("protocol_version is 9");
  v1::RefuseResponse nothing;
  ASSERT_TRUE(stub->Refuse(&refuse_context, refusal, &nothing).ok());
  EXPECT_FALSE(is_ready());
  EXPECT_NE(process.WaitForLine("refuses this worker, which is not ready until a session is opened: protocol_version"),
            "");
  grpc::ClientContext context;
  const auto stream = stub->Steps(&context);
  v1::StepsRequest request;
  request.mutable_open()->set_epoch(1);
  ASSERT_TRUE(stream->Write(request));
  v1::StepsResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_TRUE(is_ready());
}

TEST(WorkerProcessTest, AWrongCommandLineIsOneLineAndExitCodeTwo) {
  Process process(Command({"--kv-byts=1GiB"}));
  EXPECT_EQ(process.Wait(), 2);
  EXPECT_EQ(process.Output(), "quire-worker: there is no flag --kv-byts; did you mean --kv-bytes?\n");
}

TEST(WorkerProcessTest, AMissingModelIsOneLineAndExitCodeOne) {
  Process process(Command({"--model=/nonexistent"}));
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(Complaints(process), ::testing::ElementsAre(HasSubstr("there is no folder /nonexistent")));
}

TEST(WorkerProcessTest, AnAddressInUseIsOneLineAndExitCodeOne) {
  Process first(Command({}));
  const std::string address = After(&first, "listening on ");
  const std::string metrics_port = After(&first, "metrics on port ");
  Process second(Command({"--listen=" + address}));
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_THAT(Complaints(second),
              ::testing::ElementsAre(HasSubstr("--listen: cannot listen on " + address + ": it is in use")));
  Process third(Command({"--metrics-listen=127.0.0.1:" + metrics_port}));
  EXPECT_EQ(third.Wait(), 1);
  EXPECT_THAT(Complaints(third),
              ::testing::ElementsAre(
                  HasSubstr("--metrics-listen: cannot serve metrics on 127.0.0.1:" + metrics_port + ": it is in use")));
}

// As a second worker with the flags of the first one.
TEST(WorkerProcessTest, TwoAddressesInUseAreToldTogether) {
  Process first(Command({}));
  const std::string address = After(&first, "listening on ");
  const std::string metrics = "127.0.0.1:" + After(&first, "metrics on port ");
  Process second(Command({"--listen=" + address, "--metrics-listen=" + metrics}));
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_THAT(
      Complaints(second),
      ::testing::ElementsAre(HasSubstr("--listen: cannot listen on " + address + ": it is in use; " +
                                       "--metrics-listen: cannot serve metrics on " + metrics + ": it is in use")));
}

TEST(WorkerProcessTest, AnAddressForHealthChecksInUseNamesItsFlag) {
  Process first(Command({}));
  const std::string address = After(&first, "listening on ");
  Process second(Command({"--health-listen=" + address}));
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_THAT(Complaints(second),
              ::testing::ElementsAre(HasSubstr("--health-listen: cannot listen on " + address + ": it is in use")));
}

TEST(WorkerProcessTest, ABadAddressIsToldBeforeTheModelIsTouched) {
  Process process(Command({"--listen=192.0.2.1:1", "--insecure", "--model=/nonexistent"}));
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(Complaints(process), ::testing::ElementsAre(HasSubstr("192.0.2.1 is not an address of this machine")));
}

TEST(WorkerProcessTest, APoolWithoutRoomIsRefused) {
  Process process(Command({"--num-blocks=0", "--kv-bytes=100"}));
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(Complaints(process), ::testing::ElementsAre(HasSubstr("--kv-bytes is 100 bytes, the minimum is ")));
  EXPECT_THAT(process.Output(), Not(HasSubstr("loading ")));
}

}  // namespace
}  // namespace quire
