// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/status_page/status_page.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kv_manager/admin/block_changes.h"
#include "kv_manager/admin/loop_answers.h"
#include "kv_manager/blocks/paged_block_manager.h"
#include "kv_manager/status_page/status_json.h"
#include "kv_manager/status_page/status_page_files.h"

namespace quire {
namespace {

// A step loop answers in its next round. A reader that has waited this long gets the previous snapshot.
constexpr auto kMaxWait = std::chrono::milliseconds(500);
// Says how many threads of the server may wait. The others are for scrapes.
constexpr int kMaxWaiting = 4;

HttpResponse Refuse(int code, const std::string& why) {
  HttpResponse response{.code = code, .body = absl::StrCat(why, "\n")};
  if (code == 429 || code == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

HttpResponse JsonResponse(std::string body) {
  return {.content_type = "application/json", .body = std::move(body)};
}

// Lets one thread wait for a number of others.
class Countdown {
 public:
  explicit Countdown(int count) : count_(count) {}

  void Down() {
    const MutexLock lock(&mutex_);
    if (--count_ == 0) is_zero_.NotifyAll();
  }
  // Returns false when the time was up first.
  bool Wait(std::chrono::milliseconds timeout) {
    const auto end = std::chrono::steady_clock::now() + timeout;
    const MutexLock lock(&mutex_);
    while (count_ > 0) {
      if (!is_zero_.WaitUntil(&mutex_, end)) return count_ <= 0;
    }
    return true;
  }

 private:
  Mutex mutex_;
  CondVar is_zero_;
  int count_ QUIRE_GUARDED_BY(mutex_);
};

}  // namespace

// A snapshot that is being taken. Each step loop writes entries of its own, and may do so after all waiting threads
// have given up.
struct StatusPage::SnapshotUnderWay {
  explicit SnapshotUnderWay(int num_workers) : loop_us(num_workers), unanswered(num_workers) {
    snapshot.blocks.resize(num_workers);
    snapshot.requests.resize(num_workers);
  }

  StatusSnapshot snapshot;
  int64_t begin_us = 0;
  std::vector<int64_t> loop_us;  // Time that the snapshot took in the step loop of each worker.
  Countdown unanswered;          // The step loops that have not answered.
};

struct StatusPage::ShownSnapshot {
  StatusSnapshot snapshot;
  int64_t begin_us = 0;
  std::map<std::string, std::string> texts = {};  // JSON by WhyNoNames; encoded when it is first asked for.
};

StatusPage::StatusPage(Environment environment)
    : environment_(std::move(environment)), document_(MakePageDocument(kIndexHtml, kStyleCss, kPageJs)) {}

HttpResponse StatusPage::Page() const {
  return {.content_type = "text/html; charset=utf-8",
          .body = document_.html,
          .headers = {{"Content-Security-Policy", document_.policy}}};
}

std::string StatusPage::WhyNoNames(const HttpRequest& request) const {
  if (!environment_.has_open_calls) {
    return "This manager authenticates its callers and this port does not, so single requests are not shown here. An "
           "operator sees them with quirectl requests.";
  }
  if (!environment_.has_names) return "Single requests are shown here with --status-page=names only.";
  if (!request.is_local_user) {
    return "Single requests are shown on the manager's own machine only, at http://127.0.0.1 and this port "
           "(ssh -L or kubectl port-forward bring it to yours).";
  }
  return "";
}

HttpResponse StatusPage::Status(const HttpRequest& request) {
  const std::shared_ptr<ShownSnapshot> shown = CurrentSnapshot();
  if (shown == nullptr) return Refuse(503, "The step loops have not answered yet.");
  const std::string why_not = WhyNoNames(request);
  ShownNames names{.why_not = why_not};
  if (why_not.empty()) names.names = environment_.request_names();
  const MutexLock lock(&mutex_);
  std::string& text = shown->texts[why_not];
  if (text.empty()) text = EncodeStatusJson(shown->snapshot, names);
  HttpResponse response = JsonResponse(text);
  const int64_t age_us = environment_.clock->NowMicros() - shown->begin_us;
  response.headers.emplace_back("Age", absl::StrCat(age_us / 1'000'000));
  return response;
}

int64_t StatusPage::num_snapshots() const {
  const MutexLock lock(&mutex_);
  return num_snapshots_;
}

std::shared_ptr<StatusPage::SnapshotUnderWay> StatusPage::StartSnapshot() {
  ManagerStatus manager = environment_.engine->status();
  const int num_workers = std::min<int>(static_cast<int>(manager.workers.size()), kMaxShownWorkers);
  const auto out = std::make_shared<SnapshotUnderWay>(num_workers);
  out->begin_us = environment_.clock->NowMicros();
  const int max_requests = environment_.has_names && environment_.has_open_calls ? kMaxShownRequests : 0;
  for (int i = 0; i < num_workers; ++i) {
    const std::string& address = manager.workers[i]->address;
    environment_.engine->AskWorker(
        address,
        [out, i, max_requests, clock = environment_.clock](const LoopView& loop) {
          const int64_t begin_us = clock->NowMicros();
          CopyBlocks(loop, &out->snapshot.blocks[i]);
          ListRequests(loop, max_requests, &out->snapshot.requests[i]);
          out->loop_us[i] = clock->NowMicros() - begin_us;
        },
        [out](const absl::Status&) { out->unanswered.Down(); });
  }
  out->snapshot.manager = std::move(manager);
  return out;
}

std::shared_ptr<StatusPage::SnapshotUnderWay> StatusPage::JoinSnapshot() {
  const MutexLock lock(&mutex_);
  if (under_way_ == nullptr && environment_.clock->NowMicros() >= next_snapshot_us_) {
    under_way_ = StartSnapshot();
    ++num_snapshots_;
  }
  if (under_way_ == nullptr || num_waiting_ >= kMaxWaiting) return nullptr;
  ++num_waiting_;
  return under_way_;
}

std::shared_ptr<StatusPage::ShownSnapshot> StatusPage::CurrentSnapshot() {
  const std::shared_ptr<SnapshotUnderWay> joined = JoinSnapshot();
  const bool is_complete = joined != nullptr && joined->unanswered.Wait(kMaxWait);
  const MutexLock lock(&mutex_);
  if (joined != nullptr) --num_waiting_;
  if (!is_complete || under_way_ != joined) return shown_;
  under_way_ = nullptr;
  int64_t loop_us = 0;
  for (const int64_t us : joined->loop_us) loop_us = std::max(loop_us, us);
  next_snapshot_us_ = environment_.clock->NowMicros() + std::clamp(kPauseFactor * loop_us, kMinPauseUs, kMaxPauseUs);
  shown_ = std::make_shared<ShownSnapshot>(
      ShownSnapshot{.snapshot = std::move(joined->snapshot), .begin_us = joined->begin_us});
  return shown_;
}

bool StatusPage::MayDescribeBlock() {
  const MutexLock lock(&mutex_);
  const int64_t now_us = environment_.clock->NowMicros();
  if (now_us < next_block_us_ || num_waiting_ >= kMaxWaiting) return false;
  next_block_us_ = now_us + kMinBlockIntervalUs;
  ++num_waiting_;
  return true;
}

HttpResponse StatusPage::Block(const HttpRequest& request) {
  if (const std::string why_not = WhyNoNames(request); !why_not.empty()) return Refuse(403, why_not);
  const auto worker = request.parameters.find("worker");
  if (worker == request.parameters.end()) return Refuse(400, "worker is missing: it is a worker's address");
  const auto number = request.parameters.find("block");
  const std::string text = number == request.parameters.end() ? "" : number->second;
  uint32_t block = 0;
  if (!absl::SimpleAtoi(text, &block)) {
    return Refuse(400, absl::StrCat("block is '", absl::CHexEscape(text.substr(0, 20)), "', it must be a number"));
  }
  if (!MayDescribeBlock()) return Refuse(429, "too many blocks are asked for at once; try again");
  struct Answer {
    Countdown unanswered{1};
    absl::Status status;
    std::optional<DescribedBlock> block;
    int num_blocks = 0;
    int64_t loop_us = 0;  // Says how much time of the step loop it took.
  };
  const auto answer = std::make_shared<Answer>();
  environment_.engine->AskWorker(
      worker->second,
      [answer, block, clock = environment_.clock](const LoopView& loop) {
        if (loop.blocks == nullptr) return;
        answer->num_blocks = loop.blocks->num_blocks();
        if (block >= static_cast<uint32_t>(answer->num_blocks)) return;
        const int64_t begin_us = clock->NowMicros();
        DescribeBlock(loop, BlockId{block}, &answer->block.emplace());
        answer->loop_us = clock->NowMicros() - begin_us;
      },
      [answer](const absl::Status& status) {
        answer->status = status;
        answer->unanswered.Down();
      });
  const bool is_over = answer->unanswered.Wait(kMaxWait);
  {
    const MutexLock lock(&mutex_);
    --num_waiting_;
    const int64_t pause_us = is_over ? std::min(kPauseFactor * answer->loop_us, kMaxPauseUs) : kMaxPauseUs;
    next_block_us_ = std::max(next_block_us_, environment_.clock->NowMicros() + pause_us);
  }
  if (!is_over) return Refuse(503, "the worker's step loop has not answered yet");
  if (!answer->status.ok()) {
    return Refuse(absl::IsNotFound(answer->status) ? 404 : 503, std::string(answer->status.message()));
  }
  if (!answer->block.has_value()) {
    return Refuse(404, absl::StrCat("block is ", block, ", the worker has ", answer->num_blocks, " blocks"));
  }
  return JsonResponse(EncodeBlockJson(*answer->block, {.names = environment_.request_names()}));
}

}  // namespace quire
