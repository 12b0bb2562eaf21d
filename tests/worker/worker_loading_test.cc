// SPDX-License-Identifier: Apache-2.0

// What a worker says while it loads its model.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <string>

#include "absl/strings/numbers.h"
#include "base/log.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "kernels/cuda/emulated_device.h"
#include "kernels/cuda/line_writer.h"
#include "quire/v1/worker.grpc.pb.h"
#include "tests/serving/sockets.h"
#include "tests/worker/model/model_files.h"
#include "worker/worker.h"

namespace quire {
namespace {

using ::grpc::health::v1::HealthCheckResponse;
using ::testing::AllOf;
using ::testing::HasSubstr;

// What the opener of the GPU, which is called while the worker loads, has seen.
struct Seen {
  std::string address;  // Of the worker, for the opener.
  cuda::DeviceOptions device_options;
  std::string log;
  std::string metrics;
  std::map<std::string, bool> is_serving;  // By the name of the health check.
  grpc::Status description;
};
Seen g_seen;

// Returns what the metrics port answers.
std::string Scrape(int port) {
  TestSocket client;
  std::string text;
  if (!client.Connect(port)) return text;
  for (const char c : std::string("GET /metrics HTTP/1.0\r\n\r\n")) client.Send(c);
  char buffer[4096];
  ssize_t n;
  while ((n = read(client.fd(), buffer, sizeof buffer)) > 0) text.append(buffer, static_cast<size_t>(n));
  return text;
}

std::unique_ptr<cuda::Device> LookAround(const std::string& /*library*/, const cuda::DeviceOptions& /*options*/,
                                         std::string* why_not) {
  g_seen.log = testing::internal::GetCapturedStderr();
  constexpr char kPort[] = "metrics on port ";
  int port = 0;
  if (const size_t at = g_seen.log.find(kPort); at != std::string::npos) {
    const size_t begin = at + sizeof kPort - 1;
    (void)absl::SimpleAtoi(g_seen.log.substr(begin, g_seen.log.find('\n', begin) - begin), &port);
  }
  g_seen.metrics = Scrape(port);
  const auto channel = grpc::CreateChannel(g_seen.address, grpc::InsecureChannelCredentials());
  for (const char* service : {"liveness", "readiness"}) {
    grpc::ClientContext context;
    ::grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    HealthCheckResponse response;
    EXPECT_TRUE(::grpc::health::v1::Health::NewStub(channel)->Check(&context, request, &response).ok());
    g_seen.is_serving[service] = response.status() == HealthCheckResponse::SERVING;
  }
  grpc::ClientContext context;
  v1::DescribeResponse description;
  g_seen.description = v1::WorkerService::NewStub(channel)->Describe(&context, {}, &description);
  *why_not = "this is a test";
  return nullptr;
}

TEST(WorkerLoadingTest, MetricsAndHealthAreServedAndTheReasonIsSaid) {
  const TestDirectory directory;
  WorkerOptions options{};
  options.model = GoldenModel("llama2");
  options.listen = "unix:" + directory.path() + "/worker.sock";
  options.metrics_listen = "127.0.0.1:0";
  options.max_connections = 64;
  options.gpu = 0;
  g_seen.address = options.listen;
  testing::internal::CaptureStderr();
  const auto worker = Worker::Start(options, &LookAround);
  EXPECT_THAT(std::string(worker.status().message()), HasSubstr("this is a test"));
  EXPECT_THAT(g_seen.metrics, HasSubstr("quire_worker_loading 1\n"));
  EXPECT_TRUE(g_seen.is_serving["liveness"]);
  EXPECT_FALSE(g_seen.is_serving["readiness"]);
  EXPECT_EQ(g_seen.description.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(g_seen.description.error_message(), "the worker is loading its model");
}

std::unique_ptr<cuda::Device> NoteOptions(const std::string& /*library*/, const cuda::DeviceOptions& options,
                                          std::string* why_not) {
  g_seen.device_options = options;
  *why_not = "this is a test";
  return nullptr;
}

TEST(WorkerLoadingTest, FlagsForGpusReachTheDevice) {
  const TestDirectory directory;
  WorkerOptions options{};
  options.model = GoldenModel("llama2");
  options.listen = "unix:" + directory.path() + "/worker.sock";
  options.max_connections = 64;
  options.gpu = 3;
  EXPECT_FALSE(Worker::Start(options, &NoteOptions).ok());
  EXPECT_EQ(g_seen.device_options.ordinal, 3);
  EXPECT_FALSE(g_seen.device_options.overlaps_launches);
  EXPECT_TRUE(g_seen.device_options.warp_groups);
  EXPECT_EQ(g_seen.device_options.head_dim, 8);  // Of the golden model.
  options.gpu_overlap = true;
  options.gpu_warp_groups = false;
  EXPECT_FALSE(Worker::Start(options, &NoteOptions).ok());
  EXPECT_TRUE(g_seen.device_options.overlaps_launches);
  EXPECT_FALSE(g_seen.device_options.warp_groups);
}

std::unique_ptr<cuda::Device> WriteLines(const std::string& /*library*/, const cuda::DeviceOptions& options,
                                         std::string* why_not) {
  cuda::WriteLine(/*is_error=*/false, "a line of the backend");
  if (options.write_line != nullptr) options.write_line(/*is_error=*/true, "a line of the library");
  *why_not = "this is a test";
  return nullptr;
}

TEST(WorkerLoadingTest, LinesAboutTheGpuAreLinesOfTheLog) {
  const TestDirectory directory;
  WorkerOptions options{};
  options.model = GoldenModel("llama2");
  options.listen = "unix:" + directory.path() + "/worker.sock";
  options.max_connections = 64;
  options.gpu = 0;
  SetLogFormat(LogFormat::kJson);
  testing::internal::CaptureStderr();
  EXPECT_FALSE(Worker::Start(options, &WriteLines).ok());
  const std::string log = testing::internal::GetCapturedStderr();
  SetLogFormat(LogFormat::kText);
  EXPECT_THAT(log, AllOf(HasSubstr(R"("severity":"WARNING","message":"GPU: a line of the backend")"),
                         HasSubstr(R"("severity":"ERROR","message":"GPU: a line of the library")")));
}

// Returns the configuration of a model with the parts of `architecture`, and with further fields.
std::string ConfigOf(const std::string& architecture, const std::string& further = "") {
  return R"({"architectures": [")" + architecture + R"("], "hidden_size": 64, "intermediate_size": 128,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512,)" +
         further + R"(
      "rms_norm_eps": 1e-05, "max_position_embeddings": 256, "torch_dtype": "bfloat16"})";
}

TEST(WorkerLoadingTest, AModelThatNoGpuCanComputeIsRefusedBeforeTheGpuIsOpened) {
  const TestDirectory directory;
  directory.Write("config.json",
                  ConfigOf("MixtralForCausalLM", R"("num_local_experts": 4, "num_experts_per_tok": 2,)"));
  WorkerOptions options{};
  options.model = directory.path();
  options.listen = "unix:" + directory.path() + "/worker.sock";
  options.max_connections = 64;
  options.device = "cuda";
  options.gpu = 7;
  options.rounding.layers = Quantization::kInt8;
  g_seen.device_options = {};
  const auto worker = Worker::Start(options, &NoteOptions);
  EXPECT_THAT(std::string(worker.status().message()),
              AllOf(HasSubstr("the experts would have fewer than 16 bits"),
                    HasSubstr("a GPU has no kernels for that; a CPU has them")));
  EXPECT_EQ(g_seen.device_options.ordinal, 0) << "the GPU was opened";
}

// A GPU whose memory is nearly full.
class FullDevice : public cuda::EmulatedDevice {
 public:
  size_t FreeBytes() const override { return 3 << 10; }
};

TEST(WorkerLoadingTest, AModelThatDoesNotFitIntoTheGpuIsRefusedBeforeItsWeightsAreRead) {
  const TestDirectory directory;
  directory.Write("config.json", ConfigOf("LlamaForCausalLM"));
  WorkerOptions options{};
  options.model = directory.path();  // It has no weights.
  options.listen = "unix:" + directory.path() + "/worker.sock";
  options.max_connections = 64;
  options.gpu = 0;
  options.block_size = 16;
  options.device = "cuda";
  const auto worker = Worker::Start(options, [](const std::string&, const cuda::DeviceOptions&, std::string*) {
    return std::unique_ptr<cuda::Device>(std::make_unique<FullDevice>());
  });
  EXPECT_EQ(worker.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(worker.status().message()),
              AllOf(HasSubstr("--device=cuda (emulated GPU) has 256.0 MiB of memory, of which 3.0 KiB are free; the "
                              "weights need "),
                    HasSubstr(" KiB in 16 bits, and with another --quantize "), HasSubstr("other processes")));
}

}  // namespace
}  // namespace quire
