// SPDX-License-Identifier: Apache-2.0

#include "tests/e2e/cluster.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "gtest/gtest.h"
#include "tests/test_paths.h"

namespace quire {
namespace {

void SleepBriefly() {
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

}  // namespace

Cluster::Cluster(const ClusterOptions& options) : options_(options) {
  char directory[] = "/tmp/quire-e2e.XXXXXX";
  QUIRE_CHECK(mkdtemp(directory) != nullptr);
  directory_ = directory;
  endpoint_ = absl::StrCat("unix:", directory_, "/manager.sock");
  for (int i = 0; i < options_.num_workers; ++i) {
    workers_.push_back(std::make_unique<Process>(WorkerCommand(i, options_.model)));
  }
  manager_ = std::make_unique<Process>(ManagerCommand());
  const std::string line = manager_->WaitForLine("listening on");
  QUIRE_CHECK(!line.empty()) << manager_->Output();
  endpoint_ = line.substr(line.find_last_of(' ') + 1);
  client_ = std::make_unique<Client>(client_options());
  QUIRE_CHECK(!options_.waits_for_workers || WaitUntilReady()) << manager_->Output() << workers_[0]->Output();
}

std::vector<std::string> Cluster::ManagerCommand() const {
  std::vector<std::string> addresses;
  for (int i = 0; i < options_.num_workers; ++i) addresses.push_back(worker_endpoint(i));
  std::vector<std::string> command = {Binary("quire-manager"), absl::StrCat("--listen=", endpoint_),
                                      absl::StrCat("--workers=", absl::StrJoin(addresses, ",")),
                                      absl::StrCat("--metrics-listen=", options_.metrics_listen),
                                      "--max-queue-wait=24h"};  // The machine of a test may be slow.
  command.insert(command.end(), options_.manager_flags.begin(), options_.manager_flags.end());
  return command;
}

double Cluster::ReadMetric(const std::string& name) {
  const std::string line = manager_->WaitForLine("metrics on port ");
  int port = 0;
  QUIRE_CHECK(absl::SimpleAtoi(line.substr(line.find_last_of(' ') + 1), &port)) << line;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  QUIRE_CHECK_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  const std::string request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  QUIRE_CHECK_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  std::string page;
  char bytes[4096];
  for (ssize_t count; (count = read(fd, bytes, sizeof(bytes))) > 0;) page.append(bytes, count);
  close(fd);
  double sum = 0;
  bool is_there = false;
  for (const absl::string_view text : absl::StrSplit(page, '\n')) {
    const size_t end = text.find_first_of("{ ");
    double value = 0;
    if (text.substr(0, end) != name || !absl::SimpleAtod(text.substr(text.find_last_of(' ') + 1), &value)) continue;
    sum += value;
    is_there = true;
  }
  QUIRE_CHECK(is_there) << name << " is not in " << page;
  return sum;
}

void Cluster::RestartManager() {
  manager_ = std::make_unique<Process>(ManagerCommand());
  QUIRE_CHECK(!manager_->WaitForLine("listening on").empty()) << manager_->Output();
  client_ = std::make_unique<Client>(client_options());  // The old one notices late that its connection is gone.
}

Cluster::~Cluster() {
  manager_.reset();
  workers_.clear();
  std::filesystem::remove_all(directory_);
}

std::vector<std::string> Cluster::WorkerCommand(int i, const std::string& model) const {
  const bool is_emulated = DeviceOfTests() == TestDevice::kEmulatedGpu;
  std::vector<std::string> command = {
      is_emulated ? BinaryPath("tests/quire-worker-emulated-gpu") : Binary("quire-worker"),
      absl::StrCat("--model=", model), absl::StrCat("--listen=", worker_listen_address(i)),
      "--metrics-listen=", "--threads=1"};
  if (TestsGpuBackend()) {
    command.insert(command.end(), {"--device=cuda", "--exact-gpu", "--max-tokens-per-step=64", "--gpu-timeout=1h",
                                   "--gpu-record-time=1ms",  // Where the CPU emulates a GPU, steps take long.
                                   absl::StrCat("--gpu-library=", GpuLibraryOfTests())});
  }
  if (DeviceOfTests() == TestDevice::kSimulated) {
    command.insert(command.end(), {"--device=simulated", "--simulated-step-times=0"});
  }
  const WeightRounding rounding = RoundingOfTests();
  command.push_back(absl::StrCat("--quantize=", Name(rounding.layers)));
  if (rounding.output) command.push_back("--quantize-output");
  if (DeviceOfTests() == TestDevice::kInt8KvCpu) command.push_back("--kv-type=int8");
  command.insert(command.end(), options_.worker_flags.begin(), options_.worker_flags.end());
  return command;
}

std::string Cluster::worker_endpoint(int i) const {
  return options_.worker_addresses.empty() ? worker_listen_address(i) : options_.worker_addresses.at(i);
}

std::string Cluster::worker_listen_address(int i) const {
  return absl::StrCat("unix:", directory_, "/worker", i, ".sock");
}

ClientOptions Cluster::client_options() const {
  ClientOptions options = options_.client;
  options.endpoint = endpoint_;
  return options;
}

void Cluster::RestartWorker(int i, const std::vector<std::string>& more_flags, const std::string& model) {
  std::vector<std::string> command = WorkerCommand(i, model.empty() ? options_.model : model);
  command.insert(command.end(), more_flags.begin(), more_flags.end());
  const absl::StatusOr<v1::GetStatusResponse> status = client_->GetStatus();
  if (status.ok()) {
    for (const v1::WorkerStatus& worker : status->workers()) {
      if (worker.address() == worker_endpoint(i)) ended_epochs_[worker.address()] = worker.epoch();
    }
  }
  workers_[i] = std::make_unique<Process>(command);
}

bool Cluster::WaitUntilReady() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < deadline) {
    const absl::StatusOr<v1::GetStatusResponse> status = client_->GetStatus();
    int num_ready = 0;
    if (status.ok()) {
      for (const v1::WorkerStatus& worker : status->workers()) {
        const auto ended = ended_epochs_.find(worker.address());
        const bool is_of_an_ended_process = ended != ended_epochs_.end() && worker.epoch() <= ended->second;
        num_ready += worker.state() == v1::WORKER_STATE_READY && !is_of_an_ended_process;
      }
    }
    if (num_ready == options_.num_workers) return true;
    SleepBriefly();
  }
  return false;
}

bool Cluster::WaitUntilIdle(int timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (std::chrono::steady_clock::now() < deadline) {
    const absl::StatusOr<v1::GetStatusResponse> status = client_->GetStatus();
    QUIRE_CHECK(status.ok()) << status.status();
    uint32_t busy = 0;
    for (const v1::WorkerStatus& worker : status->workers()) {
      busy += worker.blocks().used() + worker.running_requests() + worker.waiting_requests();
    }
    if (busy == 0) return true;
    SleepBriefly();
  }
  return false;
}

bool WaitForSteps(Cluster& cluster, uint64_t num_steps) {
  for (const absl::Time end = absl::Now() + absl::Minutes(2); absl::Now() < end;) {
    const absl::StatusOr<v1::GetStatusResponse> status = cluster.client().GetStatus();
    if (status.ok() && status->workers_size() > 0 && status->workers(0).steps() > num_steps) return true;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return false;
}

Generation Generate(Client& client, const v1::GenerateRequest& request, absl::Duration timeout) {
  Generations generations = GenerateAll(client, request, timeout);
  QUIRE_CHECK_LE(generations.samples.size(), 1u);
  if (!generations.samples.empty()) return std::move(generations.samples[0]);
  Generation nothing;
  nothing.status = generations.status;
  return nothing;
}

Generations GenerateAll(Client& client, const v1::GenerateRequest& request, absl::Duration timeout,
                        const std::function<void()>& on_first) {
  Generations generations;
  const std::unique_ptr<GenerateStream> stream = client.Generate(request, timeout);
  v1::GenerateResponse response;
  while (stream->Next(&response)) {
    if (generations.samples.empty() && on_first != nullptr) on_first();
    if (generations.samples.size() <= response.index()) generations.samples.resize(response.index() + 1);
    Generation& sample = generations.samples[response.index()];
    sample.text += response.text_delta();
    for (const uint32_t id : response.token_ids()) sample.token_ids.push_back(id);
    for (const v1::PositionLogprobs& entry : response.logprobs()) sample.logprobs.push_back(entry.chosen().logprob());
    for (const v1::PositionLogprobs& entry : response.prompt_logprobs()) sample.prompt_logprobs.push_back(entry);
    if (response.has_usage()) generations.usage = response.usage();
    if (response.has_numerics_changed_at()) sample.numerics_changed_at = response.numerics_changed_at();
    sample.last = response;
  }
  generations.status = stream->Finish();
  for (Generation& sample : generations.samples) sample.status = generations.status;
  return generations;
}

std::vector<Generation> GenerateTogether(Client& client, const std::vector<v1::GenerateRequest>& requests) {
  std::vector<Generation> generations(requests.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < requests.size(); ++i) {
    threads.emplace_back([&, i] { generations[i] = Generate(client, requests[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  return generations;
}

void ExpectSame(const Generation& actual, const Generation& expected) {
  EXPECT_EQ(expected.status, absl::OkStatus());
  EXPECT_EQ(actual.status, absl::OkStatus());
  EXPECT_FALSE(expected.token_ids.empty());
  EXPECT_EQ(actual.token_ids, expected.token_ids);
  EXPECT_EQ(actual.text, expected.text);
  EXPECT_EQ(actual.logprobs, expected.logprobs);
}

void ExpectSame(const Generations& actual, const Generations& expected) {
  EXPECT_EQ(actual.status, absl::OkStatus());
  ExpectSame(actual.samples, expected.samples);
}

void ExpectSame(const std::vector<Generation>& actual, const std::vector<Generation>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    SCOPED_TRACE(absl::StrCat("generation ", i));
    ExpectSame(actual[i], expected[i]);
  }
}

void ExpectSamePromptLogprobs(const Generation& actual, const Generation& expected) {
  ASSERT_EQ(actual.prompt_logprobs.size(), expected.prompt_logprobs.size());
  for (size_t i = 0; i < actual.prompt_logprobs.size(); ++i) {
    EXPECT_EQ(actual.prompt_logprobs[i].SerializeAsString(), expected.prompt_logprobs[i].SerializeAsString());
  }
}

v1::GenerateRequest GreedyRequest(const std::string& prompt, int max_tokens) {
  v1::GenerateRequest request;
  request.set_text(prompt);
  request.mutable_sampling()->set_temperature(0);
  request.mutable_stopping()->set_max_tokens(static_cast<uint32_t>(max_tokens));
  return request;
}

v1::GenerateRequest LongRequest(const std::string& prompt, int num_tokens) {
  v1::GenerateRequest request = GreedyRequest(prompt, num_tokens);
  request.mutable_stopping()->set_ignore_eos(true);
  return request;
}

v1::GenerateRequest SeededRequest(const std::string& prompt, int num_tokens, int seed) {
  v1::GenerateRequest request = LongRequest(prompt, num_tokens);
  request.mutable_sampling()->set_temperature(0.8);
  request.mutable_sampling()->set_top_p(0.95);
  request.mutable_sampling()->set_seed(seed);
  return request;
}

namespace {

Cluster* g_shared_cluster = nullptr;

// Stops the shared cluster after the last test.
class SharedClusterStopper : public testing::Environment {
 public:
  void TearDown() override {
    delete g_shared_cluster;
    g_shared_cluster = nullptr;
  }
};
const testing::Environment* const g_stopper = testing::AddGlobalTestEnvironment(new SharedClusterStopper);

}  // namespace

Cluster& SharedCluster() {
  if (g_shared_cluster == nullptr) g_shared_cluster = new Cluster({.model = BundledModel()});
  return *g_shared_cluster;
}

std::string BundledModel() {
  return SourcePath("models/tales");
}

std::string Stories260k() {
  const std::string path = SourcePath("../shared/models/stories260k");
  return std::filesystem::exists(path) ? path : "";
}

std::string Binary(const std::string& name) {
  return BinaryPath("bin/" + name);
}

}  // namespace quire
