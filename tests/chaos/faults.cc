// SPDX-License-Identifier: Apache-2.0

#include "tests/chaos/faults.h"

#include <sys/socket.h>

#include <csignal>
#include <cstdint>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "grpcpp/grpcpp.h"
#include "quire/v1/worker.grpc.pb.h"
#include "tests/serving/half_sent_message.h"
#include "tests/serving/sockets.h"

namespace quire {
namespace {

void Sleep(int ms) {
  absl::SleepFor(absl::Milliseconds(ms));
}

absl::Status WaitForWorkers(Cluster* cluster) {
  for (int i = 0; i < 2; ++i) {
    if (cluster->WaitUntilReady()) return absl::OkStatus();  // It waits for a minute.
  }
  return absl::InternalError("a worker has not joined");
}

// The flags of a pool that holds every request of the work.
std::vector<std::string> DrawPool(Random* random) {
  const int block_size = random->OneIn(2) ? 16 : 8;
  return {absl::StrCat("--block-size=", block_size),
          absl::StrCat("--num-blocks=", random->Between(200, 600) * 16 / block_size)};
}

// Stops the worker with `signal`, starts it again with other flags or another model, and waits until it has joined.
absl::Status Restart(Cluster* cluster, int worker, int signal, const std::vector<std::string>& flags,
                     const std::string& model = "") {
  cluster->worker(worker).Signal(signal);
  const int exit_code = cluster->worker(worker).Wait();
  if (signal == SIGTERM && exit_code != 0) {
    return absl::InternalError(
        absl::StrCat("a worker that drained has exited with ", exit_code, ":\n", cluster->worker(worker).Output()));
  }
  cluster->RestartWorker(worker, flags, model);
  return WaitForWorkers(cluster);
}

absl::Status Pause(Cluster* cluster, int worker, int ms) {
  cluster->worker(worker).Signal(SIGSTOP);
  Sleep(ms);
  cluster->worker(worker).Signal(SIGCONT);
  return WaitForWorkers(cluster);
}

absl::Status DrainByOperator(Cluster* cluster, int worker, int ms) {
  QUIRE_RETURN_IF_ERROR(cluster->client().Drain(cluster->worker_endpoint(worker)).status());
  Sleep(ms);
  return cluster->client().Undrain(cluster->worker_endpoint(worker));
}

// A program with a connection of its own asks whether the manager is ready. It tries again, because the manager may
// learn a little later than we do that other connections are closed.
absl::Status CheckNewConnection(const std::string& endpoint) {
  const absl::Time deadline = absl::Now() + absl::Seconds(kLongTimeS);
  std::string output;
  while (absl::Now() < deadline) {
    Process health({Binary("quirectl"), "--endpoint", endpoint, "health", "readiness"});
    if (health.Wait() == 0) return absl::OkStatus();
    output = health.Output();
    Sleep(100);
  }
  return absl::InternalError(absl::StrCat("no new connection succeeds: ", output));
}

// Returns the answer to GET /metrics from an address that no slow client has.
std::string Scrape(int port) {
  TestSocket socket;
  const timeval limit{.tv_sec = kLongTimeS, .tv_usec = 0};
  setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  if (!socket.Connect(port, 2)) return "no connection";
  for (const char c : std::string("GET /metrics HTTP/1.0\r\n\r\n")) socket.Send(c);
  std::string answer;
  char buffer[4096];
  for (ssize_t size; (size = recv(socket.fd(), buffer, sizeof(buffer), 0)) > 0;) {
    answer.append(buffer, static_cast<size_t>(size));
  }
  return answer;
}

// `may_be_away`: the server may be stopped at this moment.
absl::Status SendCompressed(const std::string& endpoint, int64_t num_bytes, bool may_be_away) {
  const auto channel = grpc::CreateChannel(endpoint, grpc::InsecureChannelCredentials());
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(kLongTimeS)));
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(std::string(static_cast<size_t>(num_bytes), 'a'));
  grpc::health::v1::HealthCheckResponse response;
  const grpc::Status status = grpc::health::v1::Health::NewStub(channel)->Check(&context, request, &response);
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) return absl::OkStatus();
  if (may_be_away && status.error_code() == grpc::StatusCode::UNAVAILABLE) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("a compressed message was answered with ", status.error_code(), ": ", status.error_message()));
}

// Opens a session whose epoch no manager could follow. The worker may be stopped at this moment.
absl::Status OpenHugeEpoch(const std::string& endpoint) {
  const auto channel = grpc::CreateChannel(endpoint, grpc::InsecureChannelCredentials());
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(kLongTimeS)));
  const auto stream = v1::WorkerService::NewStub(channel)->Steps(&context);
  v1::StepsRequest request;
  request.mutable_open()->set_epoch(UINT64_MAX);
  stream->Write(request);
  v1::StepsResponse response;
  const bool is_opened = stream->Read(&response);
  if (is_opened) context.TryCancel();
  const grpc::Status status = stream->Finish();
  const bool is_refused = status.error_code() == grpc::StatusCode::FAILED_PRECONDITION ||
                          status.error_code() == grpc::StatusCode::UNAVAILABLE;
  if (is_refused && !is_opened) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("a session of the greatest epoch was ", is_opened ? "opened" : "refused",
                                          " with ", status.error_code(), ": ", status.error_message()));
}

absl::Status KillClients(const FaultContext& context) {
  std::vector<std::unique_ptr<Process>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<Process>(
        std::vector<std::string>{Binary("quirectl"), "--endpoint", context.cluster->endpoint(), "generate",
                                 "Once upon a time", "--max-tokens=600", "--ignore-eos"}));
  }
  Sleep(context.random->Between(50, 1000));
  return absl::OkStatus();  // The destructors kill the clients.
}

absl::Status HoldHalfSentMessages(const FaultContext& context) {
  constexpr int64_t kSize = (16 << 20) - 100;
  std::vector<std::unique_ptr<HalfSentMessage>> messages;
  for (int i = 0; i < 6; ++i) {
    const char* const method = i % 2 == 0 ? "Generate" : "GenerateBatch";
    messages.push_back(std::make_unique<HalfSentMessage>(context.grpc_port, kSize,
                                                         absl::StrCat("/quire.v1.InferenceService/", method)));
    messages.back()->SendAllBut(1000);
  }
  if (!context.load->WaitForProgress(5, kLongTimeS)) return absl::InternalError("no request ends meanwhile");
  return absl::OkStatus();
}

absl::Status HoldIdleConnections(const FaultContext& context) {
  {
    std::vector<TestSocket> sockets(context.max_connections + 50);
    for (TestSocket& socket : sockets) socket.Connect(context.grpc_port);
    const timeval limit{.tv_sec = kLongTimeS, .tv_usec = 0};
    setsockopt(sockets.back().fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (!sockets.back().IsClosed()) return absl::InternalError("a connection beyond the limit was not refused");
    if (!context.load->WaitForProgress(5, kLongTimeS)) return absl::InternalError("no request ends meanwhile");
  }
  return CheckNewConnection(context.cluster->endpoint());
}

absl::Status HoldSlowHttpClients(const FaultContext& context) {
  std::vector<TestSocket> sockets(40);
  for (TestSocket& socket : sockets) socket.Connect(context.metrics_port);
  for (int i = 0; i < 3; ++i) {
    for (TestSocket& socket : sockets) socket.Send('G');
    const std::string answer = Scrape(context.metrics_port);
    if (!absl::StartsWith(answer, "HTTP/1.1 200")) {
      return absl::InternalError(absl::StrCat("a scrape was answered with '", answer.substr(0, 200), "'"));
    }
    Sleep(300);
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<Fault> WorkerFaults(const FaultContext& context, bool are_both_hit) {
  Cluster* const cluster = context.cluster;
  Random* const random = context.random;
  const auto victim = [=] { return are_both_hit ? random->Below(2) : 0; };
  std::vector<Fault> faults = {
      {"worker killed", [=] { return Restart(cluster, victim(), SIGKILL, {}); }},
      {"worker killed, other pool", [=] { return Restart(cluster, victim(), SIGKILL, DrawPool(random)); }},
      {"worker drained, other pool", [=] { return Restart(cluster, victim(), SIGTERM, DrawPool(random)); }},
      {"worker paused briefly", [=] { return Pause(cluster, random->Below(2), random->Between(200, 3000)); }},
      {"worker hung until lost", [=] { return Pause(cluster, random->Below(2), random->Between(6000, 8000)); }},
      {"drain by the operator", [=] { return DrainByOperator(cluster, random->Below(2), random->Between(200, 2000)); }},
      {"one worker to another model and back",
       [=]() -> absl::Status {
         QUIRE_RETURN_IF_ERROR(Restart(cluster, 0, SIGTERM, {}, context.other));
         if (!context.load->WaitForProgress(5, kLongTimeS)) return absl::InternalError("no request ends meanwhile");
         return Restart(cluster, 0, SIGTERM, {});
       }},
  };
  if (!are_both_hit) return faults;
  faults.push_back({"both workers killed", [=]() -> absl::Status {
                      cluster->worker(1).Signal(SIGKILL);
                      cluster->worker(1).Wait();
                      cluster->RestartWorker(1);
                      return Restart(cluster, 0, SIGKILL, {});
                    }});
  faults.push_back({"rollout and back", [=]() -> absl::Status {
                      for (const std::string& model : {context.other, context.model}) {
                        for (const int i : {0, 1}) {
                          QUIRE_RETURN_IF_ERROR(Restart(cluster, i, SIGTERM, {}, model));
                        }
                        if (!context.load->WaitForProgress(5, kLongTimeS)) {
                          return absl::InternalError("no request ends meanwhile");
                        }
                      }
                      return absl::OkStatus();
                    }});
  return faults;
}

std::vector<Fault> ClientFaults(const FaultContext& context) {
  return {
      {"clients killed", [=] { return KillClients(context); }},
      {"half-sent messages", [=] { return HoldHalfSentMessages(context); }},
      {"idle connections up to the limit", [=] { return HoldIdleConnections(context); }},
      {"slow HTTP clients", [=] { return HoldSlowHttpClients(context); }},
      {"session of a huge epoch", [=] { return OpenHugeEpoch(context.cluster->worker_endpoint(1)); }},
      {"log reader stalled",
       [=]() -> absl::Status {
         context.cluster->manager().StopReading();
         const bool goes_on = context.load->WaitForProgress(100, kLongTimeS);
         context.cluster->manager().ResumeReading();
         return goes_on ? absl::OkStatus() : absl::InternalError("no request ends meanwhile");
       }},
      {"compressed bombs",
       [=]() -> absl::Status {
         constexpr int64_t kMaxMessage = 15 << 20;
         QUIRE_RETURN_IF_ERROR(SendCompressed(context.cluster->endpoint(), kMaxMessage, /*may_be_away=*/false));
         return SendCompressed(context.cluster->worker_endpoint(1), kMaxMessage, /*may_be_away=*/true);
       }},
  };
}

}  // namespace quire
