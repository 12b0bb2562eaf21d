// SPDX-License-Identifier: Apache-2.0

#include "worker/model/safetensors.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/number_text.h"
#include "base/status.h"
#include "worker/model/json_reader.h"

namespace quire {
namespace {

using nlohmann::json;

constexpr size_t kLengthBytes = 8;
constexpr size_t kMaxRank = 8;

struct ElementType {
  std::string_view name;
  uint64_t bytes;
};
constexpr ElementType kElementTypes[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
    {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4},     {"F64", 8},     {"I64", 8}, {"U64", 8},
};

// Returns zero for an unknown type.
uint64_t ElementBytes(std::string_view dtype) {
  for (const ElementType& type : kElementTypes) {
    if (type.name == dtype) return type.bytes;
  }
  return 0;
}

bool IsCount(const json& value) {
  return value.is_number_unsigned() && value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX);
}

// Makes an error such as "model.safetensors: tensor "a.weight": ...".
absl::Status BadTensor(const std::string& file, const std::string& tensor, const std::string& trouble) {
  return absl::InvalidArgumentError(absl::StrCat(file, ": tensor ", Shown(json(tensor)), ": ", trouble));
}

absl::Status ReadShape(const json& entry, const std::string& file, Tensor* tensor) {
  const auto shape = entry.find("shape");
  if (shape == entry.end() || !shape->is_array() || shape->size() > kMaxRank) {
    return BadTensor(file, tensor->name, absl::StrCat("shape must be an array of at most ", kMaxRank, " integers"));
  }
  for (const json& dimension : *shape) {
    if (!IsCount(dimension)) {
      return BadTensor(file, tensor->name,
                       absl::StrCat("shape has ", Shown(dimension), ", must be integers from 0 up"));
    }
    tensor->shape.push_back(dimension.get<int64_t>());
  }
  return absl::OkStatus();
}

// Returns the number of bytes for the type and shape, or an error when it does not fit into 64 bits.
absl::StatusOr<uint64_t> SizeInBytes(const Tensor& tensor, const std::string& file) {
  uint64_t bytes = ElementBytes(tensor.dtype);
  for (const int64_t dimension : tensor.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(dimension), &bytes)) {
      return BadTensor(file, tensor.name, absl::StrCat(Describe(tensor), " is larger than 2^64 bytes"));
    }
  }
  return bytes;
}

absl::Status ReadBytes(const json& entry, std::string_view data, const std::string& file, Tensor* tensor) {
  const auto offsets = entry.find("data_offsets");
  if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2 || !IsCount((*offsets)[0]) ||
      !IsCount((*offsets)[1])) {
    return BadTensor(file, tensor->name, "data_offsets must be two integers from 0 up");
  }
  const uint64_t begin = (*offsets)[0].get<uint64_t>();
  const uint64_t end = (*offsets)[1].get<uint64_t>();
  if (begin > end || end > data.size()) {
    return BadTensor(
        file, tensor->name,
        absl::StrCat("data_offsets are ", begin, " .. ", end, ", the file has ", data.size(), " bytes of data"));
  }
  QUIRE_ASSIGN_OR_RETURN(const uint64_t needed, SizeInBytes(*tensor, file));
  if (needed != end - begin) {
    return BadTensor(file, tensor->name,
                     absl::StrCat("data_offsets span ", end - begin, " bytes, ", Describe(*tensor), " needs ", needed));
  }
  tensor->bytes = data.substr(begin, end - begin);
  return absl::OkStatus();
}

absl::StatusOr<Tensor> ReadTensor(const std::string& name, const json& entry, std::string_view data,
                                  const std::string& file) {
  Tensor tensor;
  tensor.name = name;
  if (!entry.is_object()) return BadTensor(file, name, "must be an object");
  const auto dtype = entry.find("dtype");
  if (dtype == entry.end() || !dtype->is_string() || ElementBytes(dtype->get<std::string>()) == 0) {
    return BadTensor(file, name,
                     absl::StrCat("dtype is ", dtype == entry.end() ? "missing" : Shown(*dtype),
                                  ", must be one of the safetensors types such as \"F32\""));
  }
  tensor.dtype = dtype->get<std::string>();
  QUIRE_RETURN_IF_ERROR(ReadShape(entry, file, &tensor));
  QUIRE_RETURN_IF_ERROR(ReadBytes(entry, data, file, &tensor));
  return tensor;
}

// Checks that each range begins where the one before it ends, and that the last one ends with the file.
absl::Status CheckCover(const std::vector<Tensor>& tensors, std::string_view data, const std::string& file) {
  const char* expected = data.data();
  for (const Tensor& tensor : tensors) {
    const ptrdiff_t gap = tensor.bytes.data() - expected;
    if (gap < 0) {
      return BadTensor(file, tensor.name, absl::StrCat("overlaps the tensor before by ", Counted(-gap, "byte")));
    }
    if (gap > 0) {
      return BadTensor(file, tensor.name, absl::StrCat("leaves a hole of ", Counted(gap, "byte"), " before it"));
    }
    expected += tensor.bytes.size();
  }
  const ptrdiff_t rest = data.data() + data.size() - expected;
  if (rest == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(file, ": ", Counted(rest, "byte"), " at the end ",
                                                 rest == 1 ? "belongs" : "belong", " to no tensor"));
}

uint64_t ReadLittleEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = kLengthBytes; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

}  // namespace

absl::StatusOr<std::vector<Tensor>> ParseSafetensors(std::string_view contents, const std::string& name) {
  if (contents.size() < kLengthBytes) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": the file has ", Counted(contents.size(), "byte"),
                                                   ", a safetensors file begins with ", kLengthBytes));
  }
  const uint64_t header_bytes = ReadLittleEndian(contents);
  const uint64_t limit = std::min<uint64_t>(contents.size() - kLengthBytes, SafetensorsFile::kMaxHeaderBytes);
  if (header_bytes > limit) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": the header is said to have ", header_bytes, " bytes, at most ", limit, " are possible"));
  }
  QUIRE_ASSIGN_OR_RETURN(const json header, ParseModelJson(contents.substr(kLengthBytes, header_bytes),
                                                           absl::StrCat(name, ": the header")));
  if (!header.is_object()) return absl::InvalidArgumentError(absl::StrCat(name, ": the header must be an object"));
  const std::string_view data = contents.substr(kLengthBytes + header_bytes);
  std::vector<Tensor> tensors;
  for (const auto& [key, entry] : header.items()) {
    if (key == "__metadata__") continue;
    QUIRE_ASSIGN_OR_RETURN(Tensor tensor, ReadTensor(key, entry, data, name));
    tensors.push_back(std::move(tensor));
  }
  std::sort(tensors.begin(), tensors.end(), [](const Tensor& a, const Tensor& b) {
    return std::make_tuple(a.bytes.data(), a.bytes.size()) < std::make_tuple(b.bytes.data(), b.bytes.size());
  });
  QUIRE_RETURN_IF_ERROR(CheckCover(tensors, data, name));
  return tensors;
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  QUIRE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  QUIRE_ASSIGN_OR_RETURN(std::vector<Tensor> tensors, ParseSafetensors(file.bytes(), path));
  return SafetensorsFile(std::move(file), std::move(tensors));
}

}  // namespace quire
