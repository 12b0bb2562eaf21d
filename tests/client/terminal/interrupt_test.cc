// SPDX-License-Identifier: Apache-2.0

#include "client/terminal/interrupt.h"

#include <stdlib.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <thread>

#include "base/check.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

// Accepts every Generate call and never answers.
class SilentService : public v1::InferenceService::CallbackService {
 public:
  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(grpc::CallbackServerContext*,
                                                           const v1::GenerateRequest*) override {
    class Reactor : public grpc::ServerWriteReactor<v1::GenerateResponse> {
      void OnCancel() override { Finish(grpc::Status::CANCELLED); }
      void OnDone() override { delete this; }
    };
    return new Reactor;
  }
};

// Sends SIGINT `num_signals` times to this process while a call without an answer runs. Exits with 0 when the signals
// only cancelled the call.
void InterruptCall(const std::string& endpoint, int num_signals) {
  Interrupt interrupt;
  SilentService service;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(endpoint, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  Client client({.endpoint = endpoint});
  const auto stream = client.Generate(v1::GenerateRequest(), absl::Seconds(60));
  interrupt.Watch(stream.get());
  for (int i = 0; i < num_signals; ++i) {
    kill(getpid(), SIGINT);
    while (interrupt.signal() == 0) std::this_thread::yield();
  }
  while (num_signals > 1) pause();
  v1::GenerateResponse response;
  const bool is_cancelled = !stream->Next(&response) && stream->Finish().code() == absl::StatusCode::kCancelled;
  _exit(is_cancelled && interrupt.signal() == SIGINT ? 0 : 1);
}

// Cancels two calls, one after the other. Exits with 0 when none of the signals ended the process.
void InterruptTwoCalls() {
  Interrupt interrupt;
  int num_cancelled = 0;
  for (int i = 0; i < 2; ++i) {
    interrupt.Watch([&num_cancelled] { ++num_cancelled; });
    if (interrupt.signal() != 0) _exit(2);
    kill(getpid(), SIGINT);
    while (interrupt.signal() == 0) std::this_thread::yield();
    interrupt.Watch(std::function<void()>());
  }
  _exit(num_cancelled == 2 && interrupt.signal() == SIGINT ? 0 : 1);
}

class InterruptDeathTest : public testing::Test {
 protected:
  void SetUp() override {
    char directory[] = "/tmp/quire-interrupt.XXXXXX";
    QUIRE_CHECK(mkdtemp(directory) != nullptr);
    directory_ = directory;
    endpoint_ = "unix:" + directory_ + "/socket";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string directory_;
  std::string endpoint_;
};

TEST_F(InterruptDeathTest, TheFirstSignalCancelsTheCall) {
  EXPECT_EXIT(InterruptCall(endpoint_, 1), testing::ExitedWithCode(0), "");
}

TEST_F(InterruptDeathTest, EachCallCanBeCancelled) {
  EXPECT_EXIT(InterruptTwoCalls(), testing::ExitedWithCode(0), "");
}

TEST_F(InterruptDeathTest, TheSecondSignalEndsTheProcessAtOnce) {
  EXPECT_EXIT(InterruptCall(endpoint_, 2), testing::KilledBySignal(SIGINT), "");
}

TEST_F(InterruptDeathTest, AClosedTerminalIsASignal) {
  EXPECT_EXIT(
      {
        std::signal(SIGHUP, SIG_DFL);
        Interrupt interrupt;
        Mutex mutex;
        bool is_cancelled = false;
        interrupt.Watch([&] {
          const MutexLock lock(&mutex);
          is_cancelled = true;
        });
        kill(getpid(), SIGHUP);
        while (interrupt.signal() == 0) std::this_thread::yield();
        _exit(interrupt.signal() == SIGHUP && is_cancelled ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(InterruptDeathTest, AClosedTerminalDoesNotMatterUnderNohup) {
  EXPECT_EXIT(
      {
        std::signal(SIGHUP, SIG_IGN);
        Interrupt interrupt;
        kill(getpid(), SIGHUP);
        kill(getpid(), SIGTERM);
        while (true) pause();
      },
      testing::KilledBySignal(SIGTERM), "");
}

TEST_F(InterruptDeathTest, WithoutACallTheFirstSignalEndsTheProcess) {
  EXPECT_EXIT(
      {
        Interrupt interrupt;
        kill(getpid(), SIGTERM);
        while (true) pause();
      },
      testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace quire
