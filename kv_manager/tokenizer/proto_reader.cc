// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/proto_reader.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace quire {

absl::StatusOr<bool> ProtoReader::Next() {
  if (bytes_.empty()) return false;
  QUIRE_ASSIGN_OR_RETURN(const uint64_t tag, ReadVarint());
  if (tag >> 3 == 0 || tag >> 32 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(message_, ": bad tag ", tag));
  }
  field_ = static_cast<uint32_t>(tag >> 3);
  wire_ = static_cast<Wire>(tag & 7);
  switch (wire_) {
    case Wire::kVarint: {
      QUIRE_ASSIGN_OR_RETURN(varint_, ReadVarint());
      return true;
    }
    case Wire::kFixed64: {
      QUIRE_ASSIGN_OR_RETURN(payload_, ReadBytes(8));
      return true;
    }
    case Wire::kFixed32: {
      QUIRE_ASSIGN_OR_RETURN(payload_, ReadBytes(4));
      return true;
    }
    case Wire::kBytes: {
      QUIRE_ASSIGN_OR_RETURN(const uint64_t size, ReadVarint());
      QUIRE_ASSIGN_OR_RETURN(payload_, ReadBytes(size));
      return true;
    }
    case Wire::kGroupStart:
    case Wire::kGroupEnd:
      break;
  }
  return absl::InvalidArgumentError(absl::StrCat(message_, ": field ", field_, " has wire type ", tag & 7));
}

absl::StatusOr<std::string_view> ProtoReader::Bytes() const {
  if (wire_ != Wire::kBytes) return WrongWire("bytes");
  return payload_;
}

absl::StatusOr<uint64_t> ProtoReader::Varint() const {
  if (wire_ != Wire::kVarint) return WrongWire("a varint");
  return varint_;
}

absl::StatusOr<float> ProtoReader::Float() const {
  if (wire_ != Wire::kFixed32) return WrongWire("a float");
  uint32_t bits = 0;
  for (int i = 3; i >= 0; --i) bits = bits << 8 | static_cast<unsigned char>(payload_[i]);
  return std::bit_cast<float>(bits);
}

absl::StatusOr<uint64_t> ProtoReader::ReadVarint() {
  uint64_t value = 0;
  for (size_t i = 0; i < 10 && i < bytes_.size(); ++i) {
    const auto byte = static_cast<unsigned char>(bytes_[i]);
    value |= static_cast<uint64_t>(byte & 0x7F) << (7 * i);
    if (byte < 0x80) {
      bytes_.remove_prefix(i + 1);
      return value;
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(message_, ": a varint is cut off or too long"));
}

absl::StatusOr<std::string_view> ProtoReader::ReadBytes(uint64_t size) {
  if (size > bytes_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(message_, ": field ", field_, " has ", size, " bytes, only ", bytes_.size(), " are left"));
  }
  const std::string_view bytes = bytes_.substr(0, size);
  bytes_.remove_prefix(size);
  return bytes;
}

absl::Status ProtoReader::WrongWire(const char* expected) const {
  return absl::InvalidArgumentError(
      absl::StrCat(message_, ": field ", field_, " has wire type ", static_cast<int>(wire_), ", expected ", expected));
}

}  // namespace quire
