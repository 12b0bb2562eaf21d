// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/admin/request_calls.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_reason.h"
#include "kv_manager/admin/fork_tree.h"
#include "kv_manager/admin/loop_answers.h"
#include "kv_manager/admin/request_names.h"
#include "kv_manager/rpc/rpc_status.h"
#include "security/authorizer.h"

namespace quire {
namespace {

constexpr size_t kMaxSharers = 100;

v1::ListRequestsResponse EncodeList(ListedRequests listed, const RequestNames& names,
                                    const absl::flat_hash_set<RequestId>& detached) {
  v1::ListRequestsResponse response;
  for (auto& [request, summary] : listed.requests) {
    summary.set_request_id(names.Of(request));
    summary.set_is_detached(detached.contains(request));
    *response.add_requests() = std::move(summary);
  }
  response.set_num_requests(listed.num_requests);
  return response;
}

v1::DescribeRequestResponse EncodeDescription(const std::string& name, DescribedRequest described,
                                              const RequestNames& names) {
  v1::DescribeRequestResponse& response = described.description;
  response.mutable_summary()->set_request_id(name);
  for (const ForkNode& node : BuildForkTree(described.tables)) {
    v1::ForkNode* const out = response.add_tree();
    out->set_parent(node.parent);
    out->mutable_sequences()->Add(node.sequences.begin(), node.sequences.end());
    out->set_first_block(node.first_block);
    out->set_num_blocks(node.num_blocks);
  }
  std::vector<std::pair<RequestId, int>>& sharers = described.sharers;
  std::sort(sharers.begin(), sharers.end(), [](const auto& a, const auto& b) {
    return std::pair(-a.second, Value(a.first)) < std::pair(-b.second, Value(b.first));
  });
  if (sharers.size() > kMaxSharers) sharers.resize(kMaxSharers);
  for (const auto& [request, num_blocks] : sharers) {
    v1::BlockSharer* const out = response.add_sharers();
    out->set_request_id(names.Of(request));
    out->set_num_blocks(num_blocks);
  }
  return std::move(response);
}

}  // namespace

void RequestCalls::ListRequests(const v1::ListRequestsRequest& request, const AdminCall& call) {
  const uint32_t max_requests = request.has_max_requests() ? request.max_requests() : kDefaultListedRequests;
  if (const absl::Status status = CheckRange("max_requests", max_requests, 1, kMaxListedRequests); !status.ok()) {
    return call.Finish(status);
  }
  const auto listed = std::make_shared<Gathered<ListedRequests>>();
  asker_->Ask(
      request.worker(),
      [listed, max_requests](const LoopView& loop) {
        ListedRequests own;
        quire::ListRequests(loop, static_cast<int>(max_requests), &own);
        const MutexLock lock(&listed->mutex);
        listed->all.num_requests += own.num_requests;
        std::move(own.requests.begin(), own.requests.end(), std::back_inserter(listed->all.requests));
      },
      [this, listed, call](const absl::Status& status) {
        if (!status.ok()) return call.Finish(status);
        call.Finish(EncodeList(listed->Take(), RequestNames(requests_->registry), requests_->resumable.Detached()));
      });
}

void RequestCalls::DescribeRequest(const v1::DescribeRequestRequest& request, const AdminCall& call) {
  const std::string& name = request.request_id();
  const absl::StatusOr<std::optional<Caller>> caller = CallerOf(*call.context(), requests_->options.tokens.get());
  if (!caller.ok()) return call.Finish(caller.status());
  const absl::StatusOr<std::shared_ptr<TokenStream>> stream = requests_->registry.Find(*caller, name);
  if (!stream.ok()) return call.Finish(stream.status());
  struct Answer {
    bool is_found = false;
    DescribedRequest request;
  };
  const auto answer = std::make_shared<Answer>();
  asker_->Ask(
      "",
      [id = (*stream)->id(), answer](const LoopView& loop) {  // At most one loop has the request.
        DescribedRequest own;
        if (!quire::DescribeRequest(loop, id, &own)) return;
        answer->request = std::move(own);
        answer->is_found = true;
      },
      [this, name, answer, call](const absl::Status& status) {
        if (!answer->is_found && !status.ok()) return call.Finish(status);
        if (answer->is_found) {
          return call.Finish(EncodeDescription(name, std::move(answer->request), RequestNames(requests_->registry)));
        }
        call.Finish(
            WithReason(absl::FailedPreconditionError(absl::StrCat("request_id: no worker has ", Quoted(name),
                                                                  ": it is about to be placed, or has just ended")),
                       "REQUEST_NOT_PLACED"));
      });
}

}  // namespace quire
