// SPDX-License-Identifier: Apache-2.0

// Measures how much later than over gRPC a first token comes through the OpenAI gateway. bench/gateway.py starts the
// programs and this one.
//
// A request waits for a step that is under way, so its time to first token varies by the length of a step, which is
// much more than the gateway can add. Therefore each value is the time of the client less the time that the manager has
// measured for the same request. What is left is the way of the request to the manager and of the token back.

#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/lock_checks.h"
#include "base/program_main.h"
#include "base/status.h"
#include "bench/clocks.h"
#include "client/library/client.h"
#include "client/load/random.h"
#include "client/load/samples.h"

ABSL_FLAG(std::string, manager, "127.0.0.1:50051", "Address of the manager. It must have no other work.");
ABSL_FLAG(int32_t, gateway_port, 8000, "Port of the gateway on 127.0.0.1.");
ABSL_FLAG(int32_t, streams, 0, "Streams through the gateway that run while the first tokens are measured.");
ABSL_FLAG(int32_t, requests, 100, "Requests of a round over gRPC; the same number goes through the gateway, in turns.");
ABSL_FLAG(int32_t, rounds, 5, "Number of rounds.");

namespace quire {
namespace {

constexpr char kText[] = "Once upon a time";
// Number of tokens after which each stream ends by itself, if the program has not closed its connection before.
constexpr int kStreamTokens = 1000;
constexpr absl::Duration kReadPause = absl::Milliseconds(50);
// Requests come at any time of a step.
constexpr absl::Duration kLongestPause = absl::Milliseconds(40);
constexpr absl::Duration kTimeout = absl::Seconds(60);

const ProgramFlags& Flags() {
  static const auto* const flags =
      new ProgramFlags{"gateway_delay",
                       "prints how much later than over gRPC a first token comes through the OpenAI gateway.",
                       "[flags]",
                       {{"Programs:", {"manager", "gateway_port"}}, {"Load:", {"streams", "requests", "rounds"}}}};
  return *flags;
}

// A connection to the gateway.
class HttpConnection {
 public:
  HttpConnection() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {}
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;
  ~HttpConnection() { close(fd_); }

  absl::Status Connect(int port) {
    const timeval timeout = {.tv_sec = absl::ToInt64Seconds(kTimeout), .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return absl::OkStatus();
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot connect to 127.0.0.1:", port));
  }

  // Sends a chat that is answered by a stream.
  absl::Status Send(int max_tokens) {
    const std::string body = absl::StrCat(R"({"messages":[{"role":"user","content":")", kText, R"("}],"max_tokens":)",
                                          max_tokens, R"(,"temperature":0,"ignore_eos":true,"stream":true})");
    const std::string text = absl::StrCat(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
    if (send(fd_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size())) return absl::OkStatus();
    return absl::UnavailableError("the gateway has closed a connection");
  }

  // Reads until the answer has the text. What was behind it is forgotten.
  absl::Status ReadUntil(absl::string_view text) {
    std::string answer;
    while (!absl::StrContains(answer, text)) {
      char buffer[4096];
      const ssize_t size = recv(fd_, buffer, sizeof(buffer), 0);
      if (size <= 0) return absl::UnavailableError(absl::StrCat("the stream has ended too early: ", answer));
      answer.append(buffer, static_cast<size_t>(size));
      if (absl::StartsWith(answer, "HTTP/1.1 ") && !absl::StartsWith(answer, "HTTP/1.1 200")) {
        return absl::UnavailableError(answer);
      }
    }
    has_ended_ = absl::StrContains(answer, kEnd);
    return absl::OkStatus();
  }

  // Reads the rest of the stream.
  absl::Status ReadToEnd() { return has_ended_ ? absl::OkStatus() : ReadUntil(kEnd); }

  int fd() const { return fd_; }

 private:
  static constexpr absl::string_view kEnd = "\r\n0\r\n\r\n";

  const int fd_;
  bool has_ended_ = false;  // The last answer was read whole.
};

// Streams that run meanwhile. A thread reads what they send every now and then. If it read each token at once, it would
// take a core from the gateway and from the measurement whenever a step has ended.
class Background {
 public:
  ~Background() {
    is_stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Start(int num_streams, int port) {
    for (int i = 0; i < num_streams; ++i) {
      streams_.push_back(std::make_unique<HttpConnection>());
      QUIRE_RETURN_IF_ERROR(streams_.back()->Connect(port));
      QUIRE_RETURN_IF_ERROR(streams_.back()->Send(kStreamTokens));
    }
    for (const auto& stream : streams_) QUIRE_RETURN_IF_ERROR(stream->ReadUntil("data: "));
    thread_ = std::thread([this] { Read(); });
    return absl::OkStatus();
  }

  bool has_ended() const { return has_ended_; }

 private:
  void Read() {
    while (!is_stopping_) {
      absl::SleepFor(kReadPause);
      for (const auto& stream : streams_) {
        char buffer[16384];
        const ssize_t size = recv(stream->fd(), buffer, sizeof(buffer), MSG_DONTWAIT);
        if (size == 0 || absl::StrContains(absl::string_view(buffer, std::max<ssize_t>(size, 0)), "[DONE]")) {
          has_ended_ = true;
        }
      }
    }
  }

  std::vector<std::unique_ptr<HttpConnection>> streams_;
  std::atomic<bool> is_stopping_ = false;
  std::atomic<bool> has_ended_ = false;  // One of the streams has ended, or several.
  std::thread thread_;
};

class DelayMeter {
 public:
  explicit DelayMeter(int port)
      : client_({.endpoint = absl::GetFlag(FLAGS_manager), .timeout = kTimeout}), port_(port) {}

  absl::Status Start() { return connection_.Connect(port_); }

  // Returns the seconds that a first token has needed on the way, over gRPC or through the gateway.
  absl::StatusOr<double> Measure(bool uses_gateway) {
    absl::SleepFor(random_.Uniform() * kLongestPause);
    QUIRE_ASSIGN_OR_RETURN(const FirstTokens before, CountFirstTokens());
    QUIRE_ASSIGN_OR_RETURN(const double seconds, uses_gateway ? AskGateway() : AskManager());
    const absl::Time deadline = absl::Now() + kTimeout;
    while (absl::Now() < deadline) {  // A step may end before its figures are there.
      QUIRE_ASSIGN_OR_RETURN(const FirstTokens after, CountFirstTokens());
      if (after.count > before.count + 1) return absl::FailedPreconditionError("the manager has other work");
      if (after.count == before.count + 1) return seconds - (after.seconds - before.seconds);
      absl::SleepFor(absl::Milliseconds(1));
    }
    return absl::DeadlineExceededError("the manager did not count the request");
  }

 private:
  // Returns what the manager has measured until now.
  struct FirstTokens {
    uint64_t count = 0;
    double seconds = 0;
  };

  absl::StatusOr<FirstTokens> CountFirstTokens() {
    QUIRE_ASSIGN_OR_RETURN(const v1::GetStatusResponse status, client_.GetStatus());
    const v1::LatencyHistogram& times = status.time_to_first_token();
    return FirstTokens{.count = std::accumulate(times.counts().begin(), times.counts().end(), uint64_t{0}),
                       .seconds = times.sum_seconds()};
  }

  absl::StatusOr<double> AskManager() {
    v1::GenerateRequest request;
    v1::ChatMessage* const message = request.mutable_chat()->add_messages();
    message->set_role("user");
    message->set_content(kText);
    request.mutable_sampling()->set_temperature(0);
    request.mutable_stopping()->set_max_tokens(1);
    request.mutable_stopping()->set_ignore_eos(true);
    const double begin = WallSeconds();
    const std::unique_ptr<GenerateStream> stream = client_.Generate(request, kTimeout);
    v1::GenerateResponse response;
    const bool has_come = stream->Next(&response);
    const double seconds = WallSeconds() - begin;
    while (has_come && stream->Next(&response)) continue;
    QUIRE_RETURN_IF_ERROR(stream->Finish());
    return seconds;
  }

  absl::StatusOr<double> AskGateway() {
    const double begin = WallSeconds();
    QUIRE_RETURN_IF_ERROR(connection_.Send(/*max_tokens=*/1));
    QUIRE_RETURN_IF_ERROR(connection_.ReadUntil("data: "));
    const double seconds = WallSeconds() - begin;
    QUIRE_RETURN_IF_ERROR(connection_.ReadToEnd());
    return seconds;
  }

  Client client_;
  HttpConnection connection_;
  BenchRandom random_{/*seed=*/1};
  const int port_;
};

void Print(const char* name, const Samples& us) {
  std::printf("  %-8s median %6.0f us, p10 %6.0f, p90 %6.0f, p99 %6.0f\n", name, us.Median(), us.Quantile(0.1),
              us.Quantile(0.9), us.Quantile(0.99));
}

// Lets this thread run before all others when it has something to do, if the program may do that. On a machine with few
// cores it waits otherwise, with its token, until the gateway has sent the tokens of all streams.
void RunFirst() {
  const sched_param priority = {.sched_priority = 2};
  if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &priority) == 0) return;
  std::printf("the times have waiting of this program in them, because it may not run before others (it needs root)\n");
}

// Returns the difference of the medians in us.
absl::StatusOr<double> RunRound(int num_streams, int num_requests, int port) {
  Background background;
  QUIRE_RETURN_IF_ERROR(background.Start(num_streams, port));
  DelayMeter meter(port);
  QUIRE_RETURN_IF_ERROR(meter.Start());
  Samples grpc, gateway;
  for (int i = -1; i < num_requests; ++i) {  // The first one of each kind opens the connection.
    QUIRE_ASSIGN_OR_RETURN(const double over_grpc, meter.Measure(/*uses_gateway=*/false));
    QUIRE_ASSIGN_OR_RETURN(const double through_gateway, meter.Measure(/*uses_gateway=*/true));
    if (i < 0) continue;
    grpc.Add(1e6 * over_grpc);
    gateway.Add(1e6 * through_gateway);
  }
  if (background.has_ended()) return absl::FailedPreconditionError("a stream has ended; take fewer --requests");
  Print("gRPC", grpc);
  Print("gateway", gateway);
  return gateway.Median() - grpc.Median();
}

absl::Status Run() {
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("gateway_port", absl::GetFlag(FLAGS_gateway_port), 1, 65535));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("streams", absl::GetFlag(FLAGS_streams), 0, 10'000));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("requests", absl::GetFlag(FLAGS_requests), 1, 100'000));
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("rounds", absl::GetFlag(FLAGS_rounds), 1, 1000));
  const int streams = absl::GetFlag(FLAGS_streams);
  RunFirst();
  std::printf("way of a request to the manager and of its first token back, beside %d streams:\n", streams);
  Samples added;
  for (int i = 0; i < absl::GetFlag(FLAGS_rounds); ++i) {
    QUIRE_ASSIGN_OR_RETURN(const double us,
                           RunRound(streams, absl::GetFlag(FLAGS_requests), absl::GetFlag(FLAGS_gateway_port)));
    added.Add(us);
  }
  std::printf("the gateway adds %.0f us to a first token: median of %d rounds, from %.0f to %.0f\n", added.Median(),
              added.size(), added.Quantile(0), added.Max());
  return absl::OkStatus();
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  quire::SkipLockChecks();  // The programs that are measured do the same.
  return quire::ProgramMain(quire::Flags(), argc, argv, quire::Run);
}
