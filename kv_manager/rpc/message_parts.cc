// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/rpc/message_parts.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

#include <cstdint>
#include <limits>
#include <string>

namespace quire {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// The parser refuses messages that are nested deeper.
constexpr int kMaxDepth = 100;

class PartCounter {
 public:
  PartCounter(CodedInputStream* in, int limit) : in_(in), left_(limit) {}

  // Counts the parts of a message, up to the current limit of the stream. Returns false at the first part beyond the
  // limit, and at the place where the encoding breaks. `type` is null for what a group has: no type of ours has groups,
  // so all its fields are unknown.
  bool Count(const Descriptor* type, int depth) {
    while (const uint32_t tag = in_->ReadTag()) {
      const int number = WireFormatLite::GetTagFieldNumber(tag);
      const FieldDescriptor* const field = type == nullptr ? nullptr : type->FindFieldByNumber(number);
      switch (WireFormatLite::GetTagWireType(tag)) {
        case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
          if (!CountValue(field, depth)) return false;
          break;
        case WireFormatLite::WIRETYPE_START_GROUP:
          if (!Add() || depth >= kMaxDepth || !Count(nullptr, depth + 1)) return false;
          break;
        case WireFormatLite::WIRETYPE_END_GROUP:
          return true;
        default:
          if (field == nullptr && !Add()) return false;
          if (!WireFormatLite::SkipField(in_, tag)) return false;
      }
    }
    return true;
  }

  bool is_over() const { return is_over_; }

 private:
  bool Add() {
    is_over_ = left_-- == 0;
    return !is_over_;
  }

  bool CountValue(const FieldDescriptor* field, int depth) {
    uint32_t size;
    if (!in_->ReadVarint32(&size) || size > uint32_t{std::numeric_limits<int>::max()}) return false;
    const bool is_packed = field != nullptr && field->is_packable();
    if (!is_packed && !Add()) return false;
    if (field == nullptr || field->type() != FieldDescriptor::TYPE_MESSAGE) return in_->Skip(static_cast<int>(size));
    if (depth >= kMaxDepth) return false;
    const CodedInputStream::Limit outer = in_->PushLimit(static_cast<int>(size));
    if (!Count(field->message_type(), depth + 1) || in_->BytesUntilLimit() > 0) return false;
    in_->PopLimit(outer);
    return true;
  }

  CodedInputStream* const in_;
  int left_;
  bool is_over_ = false;
};

}  // namespace

bool HasMoreParts(const Descriptor& type, google::protobuf::io::ZeroCopyInputStream* encoded, int limit) {
  CodedInputStream in(encoded);
  PartCounter counter(&in, limit);
  counter.Count(&type, 0);
  return counter.is_over();
}

void ReadIntegers(google::protobuf::io::ZeroCopyInputStream* encoded, google::protobuf::Message* message) {
  CodedInputStream in(encoded);
  std::string integers;
  {
    google::protobuf::io::StringOutputStream stream(&integers);
    google::protobuf::io::CodedOutputStream out(&stream);
    while (const uint32_t tag = in.ReadTag()) {
      const FieldDescriptor* const field =
          message->GetDescriptor()->FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
      const bool is_integer = WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_VARINT;
      if (field == nullptr || field->is_repeated() || !is_integer) {
        if (!WireFormatLite::SkipField(&in, tag)) break;
        continue;
      }
      uint64_t value;
      if (!in.ReadVarint64(&value)) break;
      out.WriteTag(tag);
      out.WriteVarint64(value);
    }
  }
  message->ParsePartialFromString(integers);
}

}  // namespace quire
