// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_POLICY_CALL_STATUS_H_
#define QUIRE_CLIENT_POLICY_CALL_STATUS_H_

#include "absl/strings/string_view.h"
#include "google/rpc/status.pb.h"

namespace quire {

// These functions tell what the status with which a call has ended says about the next attempt. A status without
// details was made by gRPC or by a proxy.

// Returns whether the details have this reason.
bool HasReason(const google::rpc::Status& status, absl::string_view reason);

// Returns whether the manager has just started and may still find the request on a worker.
bool IsRestoring(const google::rpc::Status& status);

// Returns whether another manager leads, or none does.
bool IsStandingBy(const google::rpc::Status& status);

// Returns whether another manager leads or will lead soon: this one stands by, or it stops and takes no more requests.
bool IsNotLeading(const google::rpc::Status& status);

// Returns whether a manager has answered that is not leading, or none has answered.
bool IsOfNoLeader(const google::rpc::Status& status);

// Returns whether the call has ended and another call may succeed: gRPC or a proxy has ended it, or the manager is not
// ready to answer.
bool IsCut(const google::rpc::Status& status);

// Returns whether no connection could be made at all, so that the manager has not got the call.
bool IsUnreached(const google::rpc::Status& status);

// Returns whether a manager has refused the request because it does not know the field with this number.
bool IsUnknownField(const google::rpc::Status& status, int field);

}  // namespace quire

#endif  // QUIRE_CLIENT_POLICY_CALL_STATUS_H_
