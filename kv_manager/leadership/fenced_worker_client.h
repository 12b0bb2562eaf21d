// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_LEADERSHIP_FENCED_WORKER_CLIENT_H_
#define QUIRE_KV_MANAGER_LEADERSHIP_FENCED_WORKER_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "kv_manager/worker_link/worker_client.h"

namespace quire {

// A WorkerClient that sends nothing which would change the worker while this manager does not lead: it drops plans,
// sessions and refusals. The manager ends then, so the caller needs no error. This protects from a manager that was
// paused, and from one that has given the lease back. What such a manager sends after all, because it was paused
// between this check and the network, is refused by the workers that the new leader has reached.
class FencedWorkerClient : public WorkerClient {
 public:
  FencedWorkerClient(std::unique_ptr<WorkerClient> client, std::function<bool()> may_lead)
      : client_(std::move(client)), may_lead_(std::move(may_lead)) {}

  void SetListener(Listener* listener) override { client_->SetListener(listener); }
  void Describe(uint64_t epoch) override { client_->Describe(epoch); }
  void Open(uint64_t epoch, bool adopts) override {
    if (may_lead_()) client_->Open(epoch, adopts);
  }
  void Refuse(const std::string& reason) override {
    if (may_lead_()) client_->Refuse(reason);
  }
  void Send(const StepPlan& plan) override {
    if (may_lead_()) client_->Send(plan);
  }
  void Probe(uint64_t epoch) override { client_->Probe(epoch); }
  void Close() override { client_->Close(); }
  RankStates ranks() const override { return client_->ranks(); }

 private:
  const std::unique_ptr<WorkerClient> client_;
  const std::function<bool()> may_lead_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_LEADERSHIP_FENCED_WORKER_CLIENT_H_
