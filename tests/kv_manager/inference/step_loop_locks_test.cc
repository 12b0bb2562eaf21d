// SPDX-License-Identifier: Apache-2.0

// No lock is taken by all step loops on the way of a token, from the result of a worker to the job of its stream.
//
// The program defines pthread_mutex_lock, so it sees every mutex that is locked on a thread which records. Step loops
// of four workers run their rounds on the thread of the test, one after the other, and everything else is real: the
// services, gRPC, the threads that make text, and clients that read.

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "kv_manager/engine/step_loop.h"
#include "kv_manager/engine/tenant_quotas.h"
#include "kv_manager/inference/inference_service.h"
#include "quire/v1/inference.grpc.pb.h"
#include "tests/kv_manager/engine/fake_worker.h"
#include "tests/kv_manager/requests/toy_model.h"

namespace quire {
namespace {

using MutexSet = std::set<const void*>;

thread_local MutexSet* recorded = nullptr;

}  // namespace
}  // namespace quire

extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  using Lock = int (*)(pthread_mutex_t*);
  static const auto lock = reinterpret_cast<Lock>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  if (quire::recorded != nullptr) quire::recorded->insert(mutex);
  return lock(mutex);
}

namespace quire {
namespace {

constexpr int kLoops = 4;
constexpr int kRequests = 2 * kLoops;
constexpr int kRounds = 25;

// Records the mutexes that this thread locks, until its destruction.
class Recording {
 public:
  explicit Recording(MutexSet* mutexes) { recorded = mutexes; }
  ~Recording() { recorded = nullptr; }
};

// The mutexes that more than one of the sets has.
MutexSet SharedMutexes(const std::vector<MutexSet>& sets) {
  std::multiset<const void*> all;
  for (const MutexSet& set : sets) all.insert(set.begin(), set.end());
  MutexSet shared;
  for (const void* mutex : all) {
    if (all.count(mutex) > 1) shared.insert(mutex);
  }
  return shared;
}

TEST(RecordingTest, FindsTheMutexThatTwoThreadsOfWorkShare) {
  std::vector<MutexSet> sets(3);
  Mutex own[3];
  Mutex shared;
  for (int i = 0; i < 3; ++i) {
    const Recording recording(&sets[i]);
    const MutexLock first(&own[i]);
    if (i != 1) const MutexLock second(&shared);
  }
  EXPECT_THAT(SharedMutexes(sets), ::testing::ElementsAre(&shared));
}

// Step loops without threads, which serve requests in turn.
class Loops : public Engine {
 public:
  Loops() {
    WorkerDescription description = SmallWorker();
    description.vocab_size = model_->vocab_size;
    description.max_context_tokens = model_->max_context_tokens;
    description.num_blocks = 256;
    const ShadowModel tokens{.vocab_size = model_->vocab_size};
    for (int i = 0; i < kLoops; ++i) {
      StepLoopOptions options;
      options.address = absl::StrCat("worker:", i);
      options.quotas = &quotas_;
      options.scheduler.max_plans_in_flight = 1;
      options.link.first_epoch = 100;
      workers_.push_back(std::make_unique<FakeWorker>(description, tokens));
      const StepLoopHooks hooks{.admit_worker = [](const WorkerDescription&) { return GenerationId{0}; },
                                .on_change = [] {}};
      loops_.push_back(std::make_unique<StepLoop>(options, workers_[i]->NewClient(), hooks, &SteadyClock()));
      while (!loops_[i]->status()->is_ready) loops_[i]->RunOnce();
    }
  }

  absl::Status Submit(Request request, std::shared_ptr<RequestSink> sink) override {
    const MutexLock lock(&mutex_);
    PromptHashes hashes(request.cache_salt, request.prompt);
    StepLoop* const loop = loops_[num_submitted_++ % kLoops].get();
    return loop->Submit(std::move(request), std::move(sink), &hashes, *quotas_.Enter(""));
  }
  void Cancel(RequestId request, FinishReason reason) override {
    for (const auto& loop : loops_) loop->Cancel(request, reason);
  }
  void CancelSample(RequestId /*request*/, int /*sample_index*/) override {}
  std::shared_ptr<const ServedModel> model() const override { return model_; }
  int64_t LongestSequence(GenerationId /*generation*/) const override { return 0; }

  void WaitForRequests(int num_requests) const {
    while (true) {
      const MutexLock lock(&mutex_);
      if (num_submitted_ == num_requests) return;
    }
  }
  // One round of each loop, which brings a token for each of its requests.
  void RunRound(std::vector<MutexSet>* mutexes) {
    for (int i = 0; i < kLoops; ++i) {
      const Recording recording(&(*mutexes)[i]);
      loops_[i]->RunOnce();
    }
  }

 private:
  const std::shared_ptr<const ServedModel> model_ = ToyModel();
  TenantQuotas quotas_;  // Outlives the loops.
  std::vector<std::unique_ptr<FakeWorker>> workers_;
  std::vector<std::unique_ptr<StepLoop>> loops_;
  mutable Mutex mutex_;
  int num_submitted_ QUIRE_GUARDED_BY(mutex_) = 0;
};

class StepLoopLocksTest : public ::testing::Test {
 protected:
  StepLoopLocksTest() : environment_(&loops_, InferenceServiceOptions()), service_(&environment_) {
    grpc::ServerBuilder builder;
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    stub_ = v1::InferenceService::NewStub(server_->InProcessChannel(grpc::ChannelArguments()));
  }
  ~StepLoopLocksTest() override { server_->Shutdown(std::chrono::system_clock::now()); }

  static v1::GenerateRequest MakeRequest() {
    v1::GenerateRequest request;
    request.set_text("p");
    request.mutable_stopping()->set_max_tokens(kRounds + 50);
    request.mutable_stopping()->set_ignore_eos(true);
    return request;
  }

  // Runs rounds, in which the clients read every token before the next one comes, so that each token finds its stream
  // idle. `read(r)` waits until all clients have r tokens.
  void RunRounds(const std::function<void(int)>& read) {
    loops_.WaitForRequests(kRequests);
    std::vector<MutexSet> mutexes(kLoops);
    loops_.RunRound(&mutexes);  // Sends the first plans.
    for (int r = 1; r <= kRounds; ++r) {
      loops_.RunRound(&mutexes);
      read(r);
    }
    for (const MutexSet& set : mutexes) EXPECT_GE(set.size(), 3u) << "the inbox and the streams of a loop have mutexes";
    EXPECT_EQ(SharedMutexes(mutexes).size(), 0u) << "step loops share a mutex";
  }

  void GenerateInCallsOfTheirOwn(const v1::GenerateRequest& request) {
    std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
    std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> readers;
    for (int i = 0; i < kRequests; ++i) {
      contexts.push_back(std::make_unique<grpc::ClientContext>());
      readers.push_back(stub_->Generate(contexts.back().get(), request));
    }
    std::vector<int> num_tokens(kRequests, 0);
    RunRounds([&](int count) {
      for (int i = 0; i < kRequests; ++i) {
        v1::GenerateResponse response;
        while (num_tokens[i] < count && readers[i]->Read(&response)) num_tokens[i] += response.token_ids_size();
        EXPECT_EQ(num_tokens[i], count);
      }
    });
    for (int i = 0; i < kRequests; ++i) {
      contexts[i]->TryCancel();
      EXPECT_EQ(readers[i]->Finish().error_code(), grpc::StatusCode::CANCELLED);
    }
  }

  Loops loops_;
  RequestEnvironment environment_;
  InferenceServiceImpl service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::InferenceService::Stub> stub_;
};

TEST_F(StepLoopLocksTest, LoopsShareNoMutexWhenEachRequestHasItsCall) {
  GenerateInCallsOfTheirOwn(MakeRequest());
}

TEST_F(StepLoopLocksTest, LoopsShareNoMutexWhenStreamsAreResumable) {
  v1::GenerateRequest request = MakeRequest();
  request.set_on_disconnect(v1::ON_DISCONNECT_DETACH);
  GenerateInCallsOfTheirOwn(request);
}

TEST_F(StepLoopLocksTest, LoopsShareNoMutexWhenAllRequestsAreInOneBatch) {
  grpc::ClientContext context;
  const auto stream = stub_->GenerateBatch(&context);
  for (int i = 1; i <= kRequests; ++i) {
    v1::GenerateBatchRequest message;
    message.set_tag(i);
    *message.mutable_start() = MakeRequest();
    ASSERT_TRUE(stream->Write(message));
  }
  int num_tokens = 0;
  RunRounds([&](int count) {
    v1::GenerateBatchResponse message;
    while (num_tokens < count * kRequests && stream->Read(&message)) {
      for (const v1::GenerateBatchEntry& entry : message.entries()) num_tokens += entry.response().token_ids_size();
    }
    EXPECT_EQ(num_tokens, count * kRequests);
  });
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

}  // namespace
}  // namespace quire
