// SPDX-License-Identifier: Apache-2.0

#include "launcher/conductor.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/child_process.h"
#include "base/listen_address.h"
#include "base/program_main.h"
#include "base/status.h"
#include "nlohmann/json.hpp"

namespace quire {
namespace {

using Json = nlohmann::json;

constexpr int kExitFailed = 1;
constexpr int kStepMs = 50;
// A manager takes a worker that has loaded its model within a second.
constexpr absl::Duration kJoinTime = absl::Minutes(1);
// For one token of a large model on a slow machine.
constexpr absl::Duration kAnswerTime = absl::Minutes(10);
constexpr absl::Duration kHealthTime = absl::Seconds(10);
// For what still runs when one of the parts has failed.
constexpr absl::Duration kStopTimeAfterFailure = absl::Seconds(5);

// Blocks the signals that stop a program, and returns a descriptor that is readable when one of them has come. SIGHUP
// stays ignored if the caller ignores it, as nohup does.
int CatchStopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM}) sigaddset(&signals, signal);
  struct sigaction hangup;
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&signals, SIGHUP);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  const int fd = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
  QUIRE_CHECK_GE(fd, 0);
  return fd;
}

// Returns a text member of an object, or "".
std::string TextOf(const Json& object, const char* name) {
  if (!object.is_object()) return "";
  const auto member = object.find(name);
  return member != object.end() && member->is_string() ? member->get<std::string>() : "";
}

// Returns the message of an error of the gateway.
std::string ErrorOf(const HttpAnswer& answer) {
  const Json json = Json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
  const std::string message = json.is_object() && json.contains("error") ? TextOf(json["error"], "message") : "";
  return message.empty() ? absl::StrCat("HTTP ", answer.code) : message;
}

}  // namespace

Conductor::Conductor(const ServeOptions& options, const std::string& bin)
    : options_(options), bin_(bin), start_(absl::Now()), signals_fd_(CatchStopSignals()), request_(nullptr) {}

Conductor::~Conductor() {
  close(signals_fd_);
}

int Conductor::Run() {
  const absl::Status status = Serve();
  const bool was_stopped = absl::IsCancelled(status);
  const bool all_in_time = Stop(was_stopped ? absl::InfiniteDuration() : kStopTimeAfterFailure);
  if (absl::IsInternal(status)) {
    folder_.Keep();
    std::fprintf(stderr, "the logs are in %s\n", folder_.path().c_str());
  } else {
    folder_.Remove();
  }
  if (was_stopped) {
    if (request_ == nullptr) std::fprintf(stderr, "quire: stopped by a signal before the model answered\n");
    return request_ != nullptr && all_in_time ? 0 : kExitFailed;
  }
  if (!status.message().empty()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return absl::IsInvalidArgument(status) ? kExitWrongUsage : kExitFailed;
}

absl::Status Conductor::Serve() {
  QUIRE_RETURN_IF_ERROR(Prepare());
  QUIRE_RETURN_IF_ERROR(StartParts());
  QUIRE_RETURN_IF_ERROR(AwaitAnswer());
  PrintAccess();
  while (true) {
    Watch(-1);
    QUIRE_RETURN_IF_ERROR(CheckParts());
  }
}

absl::Status Conductor::Prepare() {
  const absl::StatusOr<ModelSource> source = FindModel(options_.model);
  if (!source.ok()) return InvalidArgument("quire: ", source.status().message());
  source_ = *source;
  name_ = source_.model;
  const char* const parent = std::getenv("TMPDIR");
  const absl::Status made = folder_.Make(parent == nullptr || *parent == '\0' ? "/tmp" : parent);
  if (!made.ok()) return absl::UnavailableError(absl::StrCat("quire: ", made.message()));
  const std::string& folder = folder_.path();
  for (int id = 0; id < kNumParts; ++id) parts_[id] = std::make_unique<Part>(static_cast<PartId>(id), bin_, folder);
  const std::string worker = absl::StrCat("unix:", folder, "/worker.sock");
  part(kWorker).SetDefault(absl::StrCat("--model=", source_.model));
  part(kWorker).SetDefault(absl::StrCat("--listen=", worker));
  part(kWorker).SetDefault("--metrics-listen=127.0.0.1:0");
  part(kManager).SetDefault(absl::StrCat("--workers=", worker));
  part(kManager).SetDefault(absl::StrCat("--listen=unix:", folder, "/manager.sock"));
  part(kManager).SetDefault("--metrics-listen=127.0.0.1:0");
  part(kManager).SetDefault("--status-page=names");
  for (int id = 0; id < kNumParts; ++id) QUIRE_RETURN_IF_ERROR(parts_[id]->Check(options_.flags[id]));
  if (absl::StartsWith(part(kGateway).Value("listen"), kUnixPrefix)) {
    return InvalidArgument("quire: --gateway.listen is '", part(kGateway).Value("listen"),
                           "', for quire serve it must be host:port");
  }
  return absl::OkStatus();
}

absl::Status Conductor::StartParts() {
  const auto await = [this](PartId id) { return WaitUntil([&] { return !part(id).address().empty(); }); };
  part(kManager).Start();
  QUIRE_RETURN_IF_ERROR(await(kManager));
  part(kGateway).Start({absl::StrCat("--manager=", part(kManager).address())});
  QUIRE_RETURN_IF_ERROR(await(kGateway));
  access_.has_tls = !part(kGateway).Value("tls_cert").empty();
  access_.needs_certificate = !part(kGateway).Value("tls_ca").empty();
  access_.url = LocalUrl(access_.has_tls ? "https" : "http", part(kGateway).address());
  if (source_.is_of_hub) QUIRE_RETURN_IF_ERROR(Download());
  part(kWorker).Start();
  return await(kWorker);
}

absl::Status Conductor::Download() {
  // The progress goes to the terminal as quire-download shows it.
  ChildProcess download({absl::StrCat(bin_, "/quire-download"), "--if-missing", source_.model},
                        ChildProcess::Errors::kInherited);
  const absl::Status status = WaitUntil([&] {
    download.ReadLines();  // The path. The worker finds it by the name.
    return download.HasEnded();
  });
  if (!status.ok()) {
    download.Signal(SIGINT);  // It says that the next run continues from here.
    const absl::Time end = absl::Now() + kStopTimeAfterFailure;
    while (!download.HasEnded() && absl::Now() < end) Watch(kStepMs);
    return status;
  }
  // An error was printed by the program.
  return download.exit_code() == 0 ? absl::OkStatus() : absl::UnavailableError("");
}

absl::Status Conductor::AwaitAnswer() {
  request_ = &UsualRequest();
  // Without a certificate of a client, nothing can be asked.
  if (access_.needs_certificate) return absl::OkStatus();
  request_ = nullptr;
  const absl::Time end = absl::Now() + kJoinTime;
  while (true) {
    const absl::StatusOr<HttpAnswer> health = Ask("GET", "/health", "", kHealthTime);
    if (health.ok() && health->code == 200) break;
    QUIRE_RETURN_IF_ERROR(CheckParts());
    if (const std::string& refusal = part(kManager).refusal(); !refusal.empty()) {
      return absl::UnavailableError(absl::StrCat("quire-manager: ", refusal));
    }
    if (absl::Now() >= end) {
      return absl::InternalError(
          absl::StrCat("quire-openai: no answer within ", absl::FormatDuration(kJoinTime),
                       " after the model was loaded: ", health.ok() ? ErrorOf(*health) : health.status().message()));
    }
    Watch(kStepMs);
  }
  std::string refusal;
  for (const FirstRequest& request : FirstRequests()) {
    const absl::StatusOr<HttpAnswer> result = Ask("POST", request.path, BodyOf(request, 1), kAnswerTime);
    QUIRE_RETURN_IF_ERROR(CheckParts());
    if (!result.ok()) return absl::InternalError(absl::StrCat("quire-openai: ", result.status().message()));
    const HttpAnswer& answer = *result;
    access_.needs_token = answer.code == 401 || answer.code == 403;
    if (answer.code == 200 || access_.needs_token) {
      request_ = access_.needs_token ? &UsualRequest() : &request;
      const Json json = Json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
      if (const std::string name = TextOf(json, "model"); !name.empty()) name_ = name;
      return absl::OkStatus();
    }
    refusal = absl::StrCat("quire-openai: ", request.path, ": ", ErrorOf(answer));
    if (answer.code != 400) break;
  }
  return absl::InternalError(refusal);
}

absl::StatusOr<HttpAnswer> Conductor::Ask(const std::string& method, const std::string& path, const std::string& body,
                                          absl::Duration timeout) {
  HttpCall call{.method = method, .url = access_.url + path, .headers = {}, .timeout = timeout};
  call.body = body;
  call.checks_server = false;
  if (!body.empty()) call.headers = {"Content-Type: application/json"};
  std::packaged_task<absl::StatusOr<HttpAnswer>()> task([call] { return HttpClient().Call(call); });
  std::future<absl::StatusOr<HttpAnswer>> answer = task.get_future();
  std::thread(std::move(task)).detach();  // After a signal, nobody waits for it.
  QUIRE_RETURN_IF_ERROR(
      WaitUntil([&] { return answer.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }));
  return answer.get();
}

absl::Status Conductor::WaitUntil(absl::FunctionRef<bool()> is_done) {
  while (true) {
    QUIRE_RETURN_IF_ERROR(CheckParts());
    if (is_done()) return absl::OkStatus();
    Watch(kStepMs);
  }
}

absl::Status Conductor::CheckParts() {
  if (num_signals_ > 0) return absl::CancelledError();
  for (const auto& part : parts_) {
    if (!part->HasEnded()) continue;
    part->Read();
    return part->WhyItEnded();
  }
  return absl::OkStatus();
}

void Conductor::Watch(int timeout_ms) {
  std::vector<pollfd> fds = {{signals_fd_, POLLIN, 0}};
  for (const auto& part : parts_) {
    // A part that has closed its output is about to end.
    if (part != nullptr && part->is_started() && part->fd() < 0 && timeout_ms < 0) timeout_ms = kStepMs;
    if (part != nullptr && part->fd() >= 0) fds.push_back({part->fd(), POLLIN, 0});
  }
  poll(fds.data(), fds.size(), timeout_ms);
  signalfd_siginfo signal;
  while (read(signals_fd_, &signal, sizeof(signal)) == sizeof(signal)) ++num_signals_;
  for (const auto& part : parts_) {
    if (part != nullptr) part->Read();
  }
}

void Conductor::PrintAccess() const {
  const bool has_answered = !access_.needs_certificate && !access_.needs_token;
  std::string text = absl::StrCat(name_, has_answered ? " answers after " : " is loaded after ",
                                  absl::StrFormat("%.1f", absl::ToDoubleSeconds(absl::Now() - start_)), " s\n");
  if (request_->has_text) absl::StrAppend(&text, "  chat page    ", access_.url, "/\n");
  absl::StrAppend(&text, "  clients      export OPENAI_BASE_URL=", access_.url, "/v1 ANTHROPIC_BASE_URL=", access_.url,
                  "\n");
  const Part& manager = part(kManager);
  int port = 0;
  if (manager.Value("status_page") != "off" && absl::SimpleAtoi(manager.metrics_port(), &port)) {
    absl::StrAppend(&text, "  status page  ", LocalUrl("http", WithPort(manager.Value("metrics_listen"), port)), "/\n");
  }
  absl::StrAppend(&text, "  quirectl     export QUIRE_ENDPOINT=", manager.address(), "; ", bin_, "/quirectl status\n",
                  "  logs         ", folder_.path(), "\n\n", CurlCommand(*request_, access_), "\n\nCtrl-C stops it.\n");
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

bool Conductor::Stop(absl::Duration limit) {
  if (limit == absl::InfiniteDuration() && request_ != nullptr) {
    std::fprintf(stderr, "stopping; running requests have %s to finish, and another Ctrl-C ends them\n",
                 part(kGateway).Value("drain_timeout").c_str());
  }
  const int num_signals = num_signals_;
  bool all_in_time = true;
  for (const PartId id : {kGateway, kManager, kWorker}) {
    if (parts_[id] == nullptr || !part(id).is_started()) continue;
    Part& part = *parts_[id];
    const absl::Duration time = std::min(limit, part.StopTime());
    const absl::Time end = absl::Now() + time;
    part.Signal(SIGTERM);
    while (!part.HasEnded() && num_signals_ == num_signals && absl::Now() < end) Watch(kStepMs);
    if (part.HasEnded()) continue;
    part.Signal(SIGKILL);
    while (!part.HasEnded()) Watch(kStepMs);
    if (num_signals_ > num_signals) continue;  // The user did not want to wait.
    std::fprintf(stderr, "%s: did not end in %s, and was killed\n", part.name(), absl::FormatDuration(time).c_str());
    all_in_time = false;
  }
  return all_in_time;
}

}  // namespace quire
