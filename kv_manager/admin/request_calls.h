// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ADMIN_REQUEST_CALLS_H_
#define QUIRE_KV_MANAGER_ADMIN_REQUEST_CALLS_H_

#include <cstdint>

#include "kv_manager/admin/admin_call.h"
#include "kv_manager/admin/loop_asker.h"
#include "kv_manager/requests/request_environment.h"
#include "quire/v1/inspect.pb.h"

namespace quire {

inline constexpr uint32_t kDefaultListedRequests = 100;
inline constexpr uint32_t kMaxListedRequests = 1000;

// ListRequests and DescribeRequest: the requests of the workers, and the block tables of one request. Thread-safe.
class RequestCalls {
 public:
  // Both are borrowed.
  RequestCalls(LoopAsker* asker, const RequestEnvironment* requests) : asker_(asker), requests_(requests) {}

  void ListRequests(const v1::ListRequestsRequest& request, const AdminCall& call);
  void DescribeRequest(const v1::DescribeRequestRequest& request, const AdminCall& call);

 private:
  LoopAsker* const asker_;
  const RequestEnvironment* const requests_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ADMIN_REQUEST_CALLS_H_
