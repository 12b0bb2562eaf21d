// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/rpc/message_bytes.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/utf8.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "grpcpp/support/proto_buffer_writer.h"
#include "kv_manager/rpc/message_parts.h"
#include "kv_manager/rpc/rpc_status.h"

namespace quire {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;

std::string Flatten(const grpc::ByteBuffer& bytes) {
  std::vector<grpc::Slice> slices;
  std::string flat;
  if (!bytes.Dump(&slices).ok()) return flat;
  for (const grpc::Slice& slice : slices) flat.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return flat;
}

// Adds the first string field of the encoded message, or of the messages in it, that is not UTF-8. False when there is
// none before the end, or before the place where the encoding breaks. Its path is `path` and what follows, without the
// field `root` of the message.
bool AddBadString(const Descriptor& type, const std::string& encoded, absl::string_view path, absl::string_view root,
                  FieldErrors* errors) {
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(encoded.data()),
                                            static_cast<int>(encoded.size()));
  std::map<int, int> counts;  // The key is the field number: how many values it had so far.
  while (const uint32_t tag = in.ReadTag()) {
    const FieldDescriptor* field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
    if (field == nullptr || WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      if (!WireFormatLite::SkipField(&in, tag)) return false;
      continue;
    }
    uint32_t size;
    std::string value;
    if (!in.ReadVarint32(&size) || !in.ReadString(&value, static_cast<int>(size))) return false;
    std::string name = absl::StrCat(path, field->name());
    if (field->is_repeated()) absl::StrAppend(&name, "[", counts[field->number()]++, "]");
    if (field->type() == FieldDescriptor::TYPE_STRING) {
      const std::optional<std::string> error = Utf8Error(value);
      if (!error.has_value()) continue;
      errors->Add(name, *error);
      return true;
    }
    if (field->type() != FieldDescriptor::TYPE_MESSAGE) continue;
    const std::string inner = name == root ? "" : absl::StrCat(name, ".");
    if (AddBadString(*field->message_type(), value, inner, "", errors)) return true;
  }
  return false;
}

bool HasTooManyParts(const grpc::ByteBuffer& bytes, const Descriptor& type) {
  grpc::ByteBuffer copy = bytes;
  grpc::ProtoBufferReader reader(&copy);
  return HasMoreParts(type, &reader, kMaxMessageParts);
}

}  // namespace

absl::Status FromBytes(const grpc::ByteBuffer& bytes, google::protobuf::Message* message, absl::string_view root) {
  // Each part of a message has at least two bytes.
  if (bytes.Length() > 2 * size_t{kMaxMessageParts} && HasTooManyParts(bytes, *message->GetDescriptor())) {
    grpc::ByteBuffer copy = bytes;
    grpc::ProtoBufferReader reader(&copy);
    ReadIntegers(&reader, message);
    return absl::InvalidArgumentError(absl::StrCat("the request has more than ", kMaxMessageParts,
                                                   " messages, strings and unknown fields, which is the limit"));
  }
  grpc::ByteBuffer copy = bytes;  // Shares the bytes. The reader needs a mutable buffer.
  grpc::ProtoBufferReader reader(&copy);
  if (reader.status().ok() && message->ParseFromZeroCopyStream(&reader)) return absl::OkStatus();
  FieldErrors errors;
  if (AddBadString(*message->GetDescriptor(), Flatten(bytes), "", root, &errors)) return errors.ToStatus();
  return absl::InvalidArgumentError(absl::StrCat("the ", bytes.Length(), " bytes of the request are not a message ",
                                                 message->GetDescriptor()->full_name()));
}

grpc::ByteBuffer ToBytes(const google::protobuf::Message& message) {
  grpc::ByteBuffer bytes;
  bool is_owned;
  const grpc::Status status =
      grpc::GenericSerialize<grpc::ProtoBufferWriter, google::protobuf::Message>(message, &bytes, &is_owned);
  QUIRE_CHECK(status.ok()) << status.error_message();
  return bytes;
}

}  // namespace quire
