// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/admin/audit_call.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "kv_manager/admin/loop_answers.h"
#include "kv_manager/admin/request_names.h"
#include "kv_manager/engine/table_audit.h"

namespace quire {
namespace {

// Says how long an audit waits for a step of each worker.
constexpr uint32_t kDefaultAuditWaitMs = 2000;
constexpr uint32_t kMaxAuditWaitMs = 60'000;

}  // namespace

// Gathers what the step loops find at once, and what their workers answer with a later step. Thread-safe.
struct AuditCall::Run {
  Mutex mutex;
  // Says how many answers are missing: one for all questions to the loops, and one for each worker that tells its
  // tables.
  int num_awaited QUIRE_GUARDED_BY(mutex) = 1;
  absl::Status status QUIRE_GUARDED_BY(mutex);
  std::map<std::string, v1::WorkerAudit> audits QUIRE_GUARDED_BY(mutex);  // The key is the address.
  std::map<std::string, TableAudit> tables QUIRE_GUARDED_BY(mutex);

  void AddAudit(const std::string& address, v1::WorkerAudit audit, bool has_tables) {
    const MutexLock lock(&mutex);
    audits[address] = std::move(audit);
    if (has_tables) ++num_awaited;
  }
  // The next two return true when no answer is missing any more.
  bool AddTables(const std::string& address, const TableAudit& audit) {
    const MutexLock lock(&mutex);
    tables[address] = audit;
    return --num_awaited == 0;
  }
  bool EndQuestions(const absl::Status& ended) {
    const MutexLock lock(&mutex);
    status = ended;
    return --num_awaited == 0;
  }
};

void AuditCall::Audit(const v1::AuditRequest& request, const AdminCall& call) {
  const uint32_t max_wait_ms = request.has_max_wait_ms() ? request.max_wait_ms() : kDefaultAuditWaitMs;
  if (const absl::Status status = CheckRange("max_wait_ms", max_wait_ms, 0, kMaxAuditWaitMs); !status.ok()) {
    return call.Finish(status);
  }
  const auto run = std::make_shared<Run>();
  const auto answer_worker = [this, run, call](const std::string& address, const TableAudit& tables) {
    if (run->AddTables(address, tables)) asker_->Schedule([=, this] { Finish(run.get(), call); });
  };
  asker_->Ask(
      request.worker(),
      [=, is_repair_wanted = request.repair()](const LoopView& loop) {
        v1::WorkerAudit audit = AuditBlocks(loop, is_repair_wanted);
        const bool has_tables = loop.link.is_ready() && max_wait_ms > 0;
        if (!has_tables)
          audit.set_rows_not_compared(max_wait_ms == 0 ? "not asked for" : "the worker is not connected");
        run->AddAudit(loop.address, std::move(audit), has_tables);
        if (!has_tables) return;
        loop.tables->Ask(loop.now_us + int64_t{1000} * max_wait_ms, is_repair_wanted,
                         [=, address = loop.address](const TableAudit& tables) { answer_worker(address, tables); });
      },
      [this, run, call](const absl::Status& status) {
        if (run->EndQuestions(status)) Finish(run.get(), call);
      });
}

void AuditCall::Finish(Run* run, const AdminCall& call) const {
  v1::AuditResponse response;
  {
    const RequestNames names(*registry_);
    const MutexLock lock(&run->mutex);
    if (!run->status.ok()) return call.Finish(run->status);
    for (auto& [address, audit] : run->audits) {
      const auto tables = run->tables.find(address);
      if (tables != run->tables.end()) {
        AddTableAudit(
            tables->second, [&](RequestId request) { return names.Of(request); }, &audit);
      }
      *response.add_workers() = std::move(audit);
    }
  }
  call.Finish(response);
}

}  // namespace quire
