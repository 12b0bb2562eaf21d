// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_TOKENIZER_PROTO_READER_H_
#define QUIRE_KV_MANAGER_TOKENIZER_PROTO_READER_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace quire {

// Walks the fields of one message in protobuf's wire format. Nothing is copied; the bytes must outlive the reader.
class ProtoReader {
 public:
  // `message` names the message in errors.
  ProtoReader(std::string_view bytes, const char* message) : bytes_(bytes), message_(message) {}

  // Moves to the next field. Returns false at the end, and InvalidArgument when the message is broken or cut off.
  absl::StatusOr<bool> Next();

  // The current field. Its type is the wire type. Asking for another type gives InvalidArgument.
  uint32_t field() const { return field_; }
  absl::StatusOr<std::string_view> Bytes() const;
  absl::StatusOr<uint64_t> Varint() const;
  absl::StatusOr<float> Float() const;

 private:
  enum class Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kGroupStart = 3, kGroupEnd = 4, kFixed32 = 5 };

  absl::StatusOr<uint64_t> ReadVarint();
  absl::StatusOr<std::string_view> ReadBytes(uint64_t size);
  absl::Status WrongWire(const char* expected) const;

  std::string_view bytes_;  // The bytes that are left.
  const char* message_;
  uint32_t field_ = 0;
  Wire wire_ = Wire::kVarint;
  uint64_t varint_ = 0;
  std::string_view payload_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_TOKENIZER_PROTO_READER_H_
