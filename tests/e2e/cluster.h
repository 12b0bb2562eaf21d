// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_E2E_CLUSTER_H_
#define QUIRE_TESTS_E2E_CLUSTER_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/library/client.h"
#include "tests/e2e/process.h"
#include "tests/test_device.h"

namespace quire {

struct ClusterOptions {
  std::string model;  // The directory of the checkpoint.
  int num_workers = 1;
  std::vector<std::string> worker_flags = {};
  std::vector<std::string> manager_flags = {};
  std::string metrics_listen = "";  // Of the manager. Empty: it serves no metrics.
  bool waits_for_workers = true;
  // What the manager connects to in place of the workers, for example proxies. Empty: the workers themselves.
  std::vector<std::string> worker_addresses = {};
  ClientOptions client = {};  // Options of the client. The endpoint is always the cluster's.
};

// The real programs: a manager and its workers, joined by unix sockets in a temporary directory. The destructor stops
// them, so several test programs can run clusters at the same time.
class Cluster {
 public:
  // Starts everything. Waits until all workers have joined, unless `waits_for_workers` is false.
  explicit Cluster(const ClusterOptions& options);
  ~Cluster();

  Client& client() { return *client_; }
  const std::string& endpoint() const { return endpoint_; }
  std::string worker_endpoint(int i) const;  // The address by which the manager knows worker `i`.
  std::string worker_listen_address(int i) const;
  ClientOptions client_options() const;  // The options of client().
  Process& manager() { return *manager_; }
  Process& worker(int i) { return *workers_[i]; }
  // Starts worker `i` again after its process has ended, with more flags if there are any, and with the same model as
  // before or with another one.
  void RestartWorker(int i, const std::vector<std::string>& more_flags = {}, const std::string& model = "");

  // Starts the manager again after its process has ended, at the same endpoint and with the same flags.
  void RestartManager();

  // The command line of the manager, with its endpoint.
  std::vector<std::string> ManagerCommand() const;

  // Returns the sum of a metric of the manager over all labels. REQUIRES: metrics_listen is "127.0.0.1:0".
  double ReadMetric(const std::string& name);

  // Polls GetStatus until all workers have joined. The session of a process that has ended does not count, which the
  // manager may still show as ready for a moment after RestartWorker. False when that takes over a minute.
  bool WaitUntilReady();
  // Polls GetStatus until no worker has used blocks, running or waiting requests. False when that takes over
  // `timeout_ms`.
  bool WaitUntilIdle(int timeout_ms = 10'000);

 private:
  std::vector<std::string> WorkerCommand(int i, const std::string& model) const;

  const ClusterOptions options_;
  std::string directory_;
  std::string endpoint_;
  std::vector<std::unique_ptr<Process>> workers_;
  std::unique_ptr<Process> manager_;
  std::unique_ptr<Client> client_;
  std::map<std::string, uint64_t> ended_epochs_;  // By the address of a worker that was started again: its last epoch.
};

// Waits until the first worker has done more than this number of steps. False when that takes over two minutes.
bool WaitForSteps(Cluster& cluster, uint64_t num_steps);

// The result of a Generate call for one sample.
struct Generation {
  absl::Status status;
  std::string text;
  std::vector<uint32_t> token_ids;
  std::vector<float> logprobs;  // [generated tokens], if the request asks for them.
  std::vector<v1::PositionLogprobs> prompt_logprobs;
  std::optional<uint32_t> numerics_changed_at = std::nullopt;
  v1::GenerateResponse last;
};

Generation Generate(Client& client, const v1::GenerateRequest& request, absl::Duration timeout = absl::Seconds(120));

// The samples or hypotheses of a call by their index. Each has the status of the call.
struct Generations {
  absl::Status status;
  std::vector<Generation> samples;
  v1::Usage usage;
};

// Calls `on_first` with the first response.
Generations GenerateAll(Client& client, const v1::GenerateRequest& request, absl::Duration timeout = absl::Seconds(120),
                        const std::function<void()>& on_first = nullptr);

// Sends all requests at the same time.
std::vector<Generation> GenerateTogether(Client& client, const std::vector<v1::GenerateRequest>& requests);

// Expects that both have succeeded with the same tokens, text and logprobs, bit for bit.
void ExpectSame(const Generation& actual, const Generation& expected);
void ExpectSame(const Generations& actual, const Generations& expected);
void ExpectSame(const std::vector<Generation>& actual, const std::vector<Generation>& expected);
// Expects that both have the same logprobs of their prompts.
void ExpectSamePromptLogprobs(const Generation& actual, const Generation& expected);

// A request for at most `max_tokens` greedy tokens.
v1::GenerateRequest GreedyRequest(const std::string& prompt, int max_tokens);
// The same for exactly this number of tokens: an end token does not end it.
v1::GenerateRequest LongRequest(const std::string& prompt, int num_tokens);
// The same, with tokens that are drawn with a seed.
v1::GenerateRequest SeededRequest(const std::string& prompt, int num_tokens, int seed);

// Paths of the bundled model and of the public model with 260K parameters ("" if it does not exist).
std::string BundledModel();
std::string Stories260k();

// A manager and a worker with the bundled model, for tests that neither change flags nor stop a program. It starts at
// the first call and stops when the test program ends. A test must leave it idle.
Cluster& SharedCluster();

// Path of one of our programs.
std::string Binary(const std::string& name);

}  // namespace quire

#endif  // QUIRE_TESTS_E2E_CLUSTER_H_
