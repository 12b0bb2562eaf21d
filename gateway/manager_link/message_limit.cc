// SPDX-License-Identifier: Apache-2.0

#include "gateway/manager_link/message_limit.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"
#include "grpcpp/grpcpp.h"

namespace quire {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

struct Field {
  std::string path;
  size_t num_bytes = 0;  // Includes its tag and its length.
};

// Returns the field that takes most of a message. If this is a message, it is a field of that.
Field LargestField(const Message& message) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  const std::unique_ptr<Message> rest(message.New());
  rest->CopyFrom(message);
  const FieldDescriptor* largest = nullptr;
  size_t num_bytes = 0;
  for (const FieldDescriptor* field : fields) {
    const size_t before = rest->ByteSizeLong();
    rest->GetReflection()->ClearField(rest.get(), field);
    if (before - rest->ByteSizeLong() < num_bytes) continue;
    num_bytes = before - rest->ByteSizeLong();
    largest = field;
  }
  if (largest == nullptr) return {};
  if (largest->is_repeated() || largest->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
    return {largest->name(), num_bytes};
  }
  const Field inner = LargestField(message.GetReflection()->GetMessage(message, largest));
  if (inner.path.empty()) return {largest->name(), num_bytes};
  return {absl::StrCat(largest->name(), ".", inner.path), inner.num_bytes};
}

}  // namespace

google::rpc::Status CheckMessageBytes(const Message& message, size_t max_bytes) {
  google::rpc::Status status;
  const size_t num_bytes = message.ByteSizeLong();
  if (num_bytes <= max_bytes) return status;
  const Field field = LargestField(message);
  google::rpc::BadRequest error;
  auto* const violation = error.add_field_violations();
  violation->set_field(field.path);
  violation->set_description(absl::StrCat("takes ", field.num_bytes, " of the ", num_bytes,
                                          " bytes of the message to the manager; at most ", max_bytes,
                                          " are allowed for the message"));
  status.set_code(grpc::StatusCode::INVALID_ARGUMENT);
  status.set_message(absl::StrCat(violation->field(), " ", violation->description()));
  status.add_details()->PackFrom(error);
  return status;
}

}  // namespace quire
