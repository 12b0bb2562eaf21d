// SPDX-License-Identifier: Apache-2.0

#include "worker/model/gguf.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "worker/model/gguf_fields.h"
#include "worker/model/gguf_types.h"
#include "worker/model/json_reader.h"

namespace quire {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kMinVersion = 2;
constexpr uint32_t kMaxVersion = 3;
// These limits are far above every published file. They bound the memory that a broken file can make us allocate.
constexpr uint64_t kMaxEntries = 1 << 16;
constexpr uint64_t kMaxTensors = 1 << 16;
constexpr uint64_t kMaxNameBytes = 1 << 10;
constexpr uint64_t kMaxStrings = 1 << 23;  // In all arrays together.
constexpr uint32_t kMaxRank = 4;
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMaxAlignment = 1 << 20;
constexpr const char* kAlignmentKey = "general.alignment";

// Returns zero for strings, arrays and unknown types.
uint64_t ElementBytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return 0;
}

// Text of the file as it is shown in errors.
std::string ShownText(std::string_view text) {
  return Shown(nlohmann::json(std::string(text)));
}

class Parser {
 public:
  Parser(std::string_view contents, const std::string& name) : contents_(contents), name_(name) {}

  absl::StatusOr<GgufContents> Parse();

 private:
  absl::Status Bad(const std::string& trouble) const {
    return absl::InvalidArgumentError(absl::StrCat(name_, ": ", trouble));
  }
  uint64_t rest() const { return contents_.size() - position_; }

  // Each reads what is at the position and moves on. `what` names it in the error when the file ends before.
  absl::StatusOr<std::string_view> ReadBytes(uint64_t count, const std::string& what);
  template <typename Number>
  absl::StatusOr<Number> Read(const std::string& what);
  absl::StatusOr<std::string_view> ReadString(uint64_t max_bytes, const std::string& what);

  absl::Status ReadVersion();
  absl::Status ReadEntry(uint64_t index);
  absl::Status ReadElements(const std::string& what, GgufValue* value);
  absl::StatusOr<uint64_t> Alignment() const;
  absl::Status ReadTensor(uint64_t index, uint64_t alignment);
  // Gives the tensors their bytes, which begin at the position.
  absl::Status PlaceTensors();

  const std::string_view contents_;
  const std::string& name_;
  uint64_t position_ = 0;
  uint64_t num_strings_ = 0;
  GgufContents result_;
  absl::flat_hash_set<std::string> tensor_names_;
  struct Range {
    uint64_t offset;  // Counted from the beginning of the data.
    uint64_t bytes;
  };
  std::vector<Range> ranges_;  // Each tensor has a range.
};

absl::StatusOr<std::string_view> Parser::ReadBytes(uint64_t count, const std::string& what) {
  if (count > rest()) {
    return Bad(absl::StrCat(what, " at byte ", position_, " needs ", count, " bytes, the file ends after ", rest()));
  }
  const std::string_view bytes = contents_.substr(position_, count);
  position_ += count;
  return bytes;
}

template <typename Number>
absl::StatusOr<Number> Parser::Read(const std::string& what) {
  QUIRE_ASSIGN_OR_RETURN(const std::string_view bytes, ReadBytes(sizeof(Number), what));
  Number value;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

absl::StatusOr<std::string_view> Parser::ReadString(uint64_t max_bytes, const std::string& what) {
  QUIRE_ASSIGN_OR_RETURN(const uint64_t length, Read<uint64_t>(what));
  if (length > max_bytes) return Bad(absl::StrCat(what, " has ", length, " bytes, at most ", max_bytes));
  return ReadBytes(length, what);
}

absl::Status Parser::ReadVersion() {
  if (!contents_.starts_with(kMagic)) {
    return Bad(absl::StrCat("the file begins with ", ShownText(contents_.substr(0, kMagic.size())),
                            ", a GGUF file begins with \"GGUF\""));
  }
  position_ = kMagic.size();
  QUIRE_ASSIGN_OR_RETURN(const uint32_t version, Read<uint32_t>("the version"));
  if (version >= kMinVersion && version <= kMaxVersion) return absl::OkStatus();
  if (version != 0 && __builtin_bswap32(version) <= kMaxVersion)
    return Bad("the file is big-endian, only little-endian files are read");
  return Bad(absl::StrCat("version is ", version, ", must be ", kMinVersion, " or ", kMaxVersion));
}

absl::Status Parser::ReadElements(const std::string& what, GgufValue* value) {
  if (value->type != GgufType::kString) {
    const uint64_t size = ElementBytes(value->type);
    if (size == 0) {
      return Bad(
          absl::StrCat(what, " has the type ", static_cast<uint32_t>(value->type),
                       value->is_array ? ", an array may have the types 0 to 8 and 10 to 12" : ", types are 0 to 12"));
    }
    if (value->count > rest() / size) {
      return Bad(absl::StrCat(what, " has ", value->count, " elements of ", size, " bytes, the file ends after ",
                              rest(), " bytes"));
    }
    QUIRE_ASSIGN_OR_RETURN(value->bytes, ReadBytes(value->count * size, what));
    return absl::OkStatus();
  }
  constexpr uint64_t kLeastBytes = sizeof(uint64_t);  // Every string has a length.
  const uint64_t limit = std::min(rest() / kLeastBytes, kMaxStrings - num_strings_);
  if (value->count > limit) {
    return Bad(absl::StrCat(what, " has ", value->count, " strings, at most ", limit, " are possible"));
  }
  num_strings_ += value->count;
  value->strings.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    QUIRE_ASSIGN_OR_RETURN(value->strings.emplace_back(), ReadString(rest(), what));
  }
  return absl::OkStatus();
}

absl::Status Parser::ReadEntry(uint64_t index) {
  QUIRE_ASSIGN_OR_RETURN(const std::string_view key,
                         ReadString(kMaxNameBytes, absl::StrCat("the key of metadata ", index)));
  const std::string what = absl::StrCat("metadata ", ShownText(key));
  GgufValue value;
  QUIRE_ASSIGN_OR_RETURN(const uint32_t type, Read<uint32_t>(what));
  value.type = static_cast<GgufType>(type);
  if (value.type == GgufType::kArray) {
    value.is_array = true;
    QUIRE_ASSIGN_OR_RETURN(const uint32_t element_type, Read<uint32_t>(what));
    value.type = static_cast<GgufType>(element_type);
    QUIRE_ASSIGN_OR_RETURN(value.count, Read<uint64_t>(what));
  }
  QUIRE_RETURN_IF_ERROR(ReadElements(what, &value));
  if (!result_.metadata.emplace(key, std::move(value)).second) return Bad(what + " occurs twice");
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Parser::Alignment() const {
  const auto found = result_.metadata.find(kAlignmentKey);
  if (found == result_.metadata.end()) return kDefaultAlignment;
  uint32_t alignment = 0;
  const GgufValue& value = found->second;
  const bool is_number = value.type == GgufType::kUint32 && !value.is_array;
  if (is_number) std::memcpy(&alignment, value.bytes.data(), sizeof(alignment));
  const bool is_power = alignment != 0 && (alignment & (alignment - 1)) == 0;
  if (is_power && alignment <= kMaxAlignment) return alignment;
  return Bad(absl::StrCat("metadata \"", kAlignmentKey, "\" is ", is_number ? absl::StrCat(alignment) : "no uint32",
                          ", must be a power of two up to ", kMaxAlignment));
}

absl::Status Parser::ReadTensor(uint64_t index, uint64_t alignment) {
  QUIRE_ASSIGN_OR_RETURN(const std::string_view name,
                         ReadString(kMaxNameBytes, absl::StrCat("the name of tensor ", index)));
  const std::string what = absl::StrCat("tensor ", ShownText(name));
  Tensor tensor;
  tensor.name = std::string(name);
  if (!tensor_names_.insert(tensor.name).second) return Bad(what + " occurs twice");
  QUIRE_ASSIGN_OR_RETURN(const uint32_t rank, Read<uint32_t>(what));
  if (rank > kMaxRank) return Bad(absl::StrCat(what, " has ", rank, " dimensions, at most ", kMaxRank));
  for (uint32_t i = 0; i < rank; ++i) {
    QUIRE_ASSIGN_OR_RETURN(const uint64_t dimension, Read<uint64_t>(what));
    if (dimension > static_cast<uint64_t>(INT64_MAX)) {
      return Bad(absl::StrCat(what, " has the dimension ", dimension, ", at most ", INT64_MAX));
    }
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(dimension));
  }
  QUIRE_ASSIGN_OR_RETURN(const uint32_t number, Read<uint32_t>(what));
  QUIRE_ASSIGN_OR_RETURN(const uint64_t offset, Read<uint64_t>(what));
  const GgufTensorType* type = FindGgufTensorType(number);
  if (type == nullptr) {
    return Bad(absl::StrCat(what, " has the type ", GgufTypeName(number), ", supported are ", SupportedGgufTypes()));
  }
  tensor.dtype = type->name;
  const uint64_t columns = tensor.shape.empty() ? 1 : tensor.shape.back();
  if (columns % type->block_elements != 0) {
    return Bad(absl::StrCat(what, " is ", Describe(tensor), ", its last dimension must be a multiple of ",
                            type->block_elements));
  }
  uint64_t bytes = columns / type->block_elements;
  bool is_too_large = __builtin_mul_overflow(bytes, uint64_t{type->block_bytes}, &bytes);
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) {
    is_too_large |= __builtin_mul_overflow(bytes, static_cast<uint64_t>(tensor.shape[i]), &bytes);
  }
  if (is_too_large) return Bad(absl::StrCat(what, " is ", Describe(tensor), ", which is larger than 2^64 bytes"));
  if (offset % alignment != 0) {
    return Bad(absl::StrCat(what, " has the offset ", offset, ", must be a multiple of ", alignment));
  }
  ranges_.push_back({offset, bytes});
  result_.tensors.push_back(std::move(tensor));
  return absl::OkStatus();
}

absl::Status Parser::PlaceTensors() {
  const std::string_view data = contents_.substr(position_);
  std::vector<size_t> order(ranges_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::make_pair(ranges_[a].offset, ranges_[a].bytes) < std::make_pair(ranges_[b].offset, ranges_[b].bytes);
  });
  uint64_t end = 0;
  for (const size_t i : order) {
    const auto [offset, bytes] = ranges_[i];
    Tensor& tensor = result_.tensors[i];
    const std::string what = absl::StrCat("tensor ", ShownText(tensor.name));
    if (offset > data.size() || bytes > data.size() - offset) {
      return Bad(absl::StrCat(what, " has ", bytes, " bytes at offset ", offset, ", the file has ", data.size(),
                              " bytes of data; it may be incomplete"));
    }
    if (offset < end) return Bad(absl::StrCat(what, " overlaps the tensor before by ", end - offset, " bytes"));
    end = offset + bytes;
    tensor.bytes = data.substr(offset, bytes);
  }
  return absl::OkStatus();
}

absl::StatusOr<GgufContents> Parser::Parse() {
  QUIRE_RETURN_IF_ERROR(ReadVersion());
  QUIRE_ASSIGN_OR_RETURN(const uint64_t num_tensors, Read<uint64_t>("the number of tensors"));
  QUIRE_ASSIGN_OR_RETURN(const uint64_t num_entries, Read<uint64_t>("the number of metadata"));
  if (num_tensors > kMaxTensors) return Bad(absl::StrCat("has ", num_tensors, " tensors, at most ", kMaxTensors));
  if (num_entries > kMaxEntries) return Bad(absl::StrCat("has ", num_entries, " metadata, at most ", kMaxEntries));
  for (uint64_t i = 0; i < num_entries; ++i) QUIRE_RETURN_IF_ERROR(ReadEntry(i));
  QUIRE_ASSIGN_OR_RETURN(const uint64_t alignment, Alignment());
  for (uint64_t i = 0; i < num_tensors; ++i) QUIRE_RETURN_IF_ERROR(ReadTensor(i, alignment));
  const uint64_t padding = (alignment - position_ % alignment) % alignment;
  position_ += std::min(padding, rest());
  QUIRE_RETURN_IF_ERROR(PlaceTensors());
  return std::move(result_);
}

constexpr const char* kSplitNumber = "split.no";
constexpr const char* kSplitCount = "split.count";
constexpr const char* kSplitTensors = "split.tensors.count";
constexpr int64_t kMaxParts = 4096;

// Which part of a model a file is. The number counts from 0. A count of 1 or less means that the file is the model.
struct SplitNumbers {
  int64_t number;
  int64_t count;
  int64_t num_tensors;  // In all parts; 0: not known.
};

absl::StatusOr<SplitNumbers> ReadSplit(const GgufContents& contents, const std::string& path) {
  const GgufFields fields(contents);
  SplitNumbers split;
  const std::pair<const char*, int64_t*> numbers[] = {
      {kSplitNumber, &split.number}, {kSplitCount, &split.count}, {kSplitTensors, &split.num_tensors}};
  for (const auto& [key, number] : numbers) {
    const auto value = fields.Int(key, 0, key == kSplitTensors ? INT32_MAX : kMaxParts, 0);
    if (!value.ok()) return InvalidArgument(path, ": ", value.status().message());
    *number = *value;
  }
  return split;
}

std::string PartEnd(int64_t number, int64_t count) {
  return absl::StrCat("-", absl::Dec(number, absl::kZeroPad5), "-of-", absl::Dec(count, absl::kZeroPad5), ".gguf");
}

}  // namespace

absl::StatusOr<GgufContents> ParseGguf(std::string_view contents, const std::string& name) {
  return Parser(contents, name).Parse();
}

absl::StatusOr<GgufFile> GgufFile::Open(const std::string& path) {
  GgufFile file(path);
  QUIRE_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  QUIRE_ASSIGN_OR_RETURN(file.contents_, ParseGguf(mapped.bytes(), path));
  file.files_.push_back(std::move(mapped));
  QUIRE_RETURN_IF_ERROR(file.AddParts());
  return file;
}

absl::Status GgufFile::AddParts() {
  QUIRE_ASSIGN_OR_RETURN(const SplitNumbers split, ReadSplit(contents_, path_));
  if (split.count <= 1) return absl::OkStatus();
  const std::string first_end = PartEnd(/*number=*/1, split.count);
  if (split.number != 0) {
    return InvalidArgument(path_, ": ", kSplitNumber, " is ", split.number,
                           ", must be 0: the model is opened by its first part, whose name ends in ", first_end);
  }
  if (!absl::EndsWith(path_, first_end)) {
    return InvalidArgument(path_, ": ", kSplitCount, " is ", split.count, ", so the name must end in ", first_end);
  }
  const absl::string_view stem = absl::string_view(path_).substr(0, path_.size() - first_end.size());
  absl::flat_hash_set<std::string> names;
  for (const Tensor& tensor : contents_.tensors) names.insert(tensor.name);
  for (int64_t number = 1; number < split.count; ++number) {
    const std::string path = absl::StrCat(stem, PartEnd(number + 1, split.count));
    QUIRE_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
    QUIRE_ASSIGN_OR_RETURN(GgufContents part, ParseGguf(mapped.bytes(), path));
    QUIRE_ASSIGN_OR_RETURN(const SplitNumbers found, ReadSplit(part, path));
    if (found.number != number || found.count != split.count) {
      return InvalidArgument(path, ": ", kSplitNumber, " is ", found.number, " and ", kSplitCount, " is ", found.count,
                             ", must be ", number, " and ", split.count);
    }
    for (Tensor& tensor : part.tensors) {
      if (!names.insert(tensor.name).second) {
        return InvalidArgument(path, ": tensor ", Shown(nlohmann::json(tensor.name)), " is in another part as well");
      }
      contents_.tensors.push_back(std::move(tensor));
    }
    files_.push_back(std::move(mapped));
  }
  if (split.num_tensors == 0 || split.num_tensors == static_cast<int64_t>(contents_.tensors.size())) {
    return absl::OkStatus();
  }
  return InvalidArgument(path_, ": ", kSplitTensors, " is ", split.num_tensors, ", but the ", split.count,
                         " parts have ", contents_.tensors.size(), " tensors");
}

bool IsGgufPath(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return false;
  if (absl::EndsWithIgnoreCase(path, ".gguf")) return true;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  char magic[kMagic.size()] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof(magic));
  return std::string_view(magic, sizeof(magic)) == kMagic;
}

}  // namespace quire
