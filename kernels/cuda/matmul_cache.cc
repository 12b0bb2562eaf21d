// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/matmul_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "kernels/cuda/line_writer.h"

namespace quire::cuda {
namespace {

constexpr char kTitle[] = "quire matmul algorithms 1";
constexpr char kInt8Name[] = "int8", kInt32Name[] = "int32", kFp8Name[] = "fp8", kFp8BlocksName[] = "fp8-blocks";
constexpr int kMaxValue = 1 << 30;

uint64_t Fnv1a(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char c : text) hash = (hash ^ c) * 0x100000001b3;
  return hash;
}

std::string FormatEnd(size_t num_lines, const std::string& above) {
  char text[64];
  std::snprintf(text, sizeof(text), "end %zu %016" PRIx64 "\n", num_lines, Fnv1a(above));
  return text;
}

bool ParseType(const std::string& name, DataType* type) {
  for (const DataType candidate : {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16}) {
    if (name != Name(candidate)) continue;
    *type = candidate;
    return true;
  }
  return false;
}

bool ParseLine(const std::string& line, MatmulShape* shape, MatmulAlgorithm* algorithm) {
  std::istringstream in(line);
  std::string element, y_type;
  if (!(in >> shape->num_rows >> shape->num_columns >> shape->depth >> element >> y_type >> shape->adds_to_y)) {
    return false;
  }
  for (const int value : {shape->num_rows, shape->num_columns, shape->depth}) {
    if (value < 1 || value > kMaxValue) return false;
  }
  shape->element = shape->y_type = DataType::kFloat32;
  if (element == kInt8Name && y_type == kInt32Name) {
    shape->numbers = MatmulNumbers::kInt8;
  } else if (element == kFp8Name && ParseType(y_type, &shape->y_type)) {
    shape->numbers = MatmulNumbers::kFp8;
  } else if (element == kFp8BlocksName && ParseType(y_type, &shape->y_type)) {
    shape->numbers = MatmulNumbers::kFp8Blocks;
  } else if (!ParseType(element, &shape->element) || !ParseType(y_type, &shape->y_type)) {
    return false;
  }
  for (uint64_t& word : *algorithm) {
    if (!(in >> std::hex >> word)) return false;
  }
  return (in >> std::ws).eof();
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

// Keeps other processes from the files of a folder that they lock in the same way. Gives up after five seconds, because
// an algorithm that is lost costs less than a start that waits.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder) : folder_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    constexpr int kTries = 500;
    for (int i = 0; folder_ >= 0 && i < kTries && flock(folder_, LOCK_EX | LOCK_NB) != 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  FolderLock(const FolderLock&) = delete;
  ~FolderLock() {
    if (folder_ >= 0) close(folder_);
  }

 private:
  const int folder_;
};

}  // namespace

const char* NameOfNumbers(const MatmulShape& shape) {
  switch (shape.numbers) {
    case MatmulNumbers::kInt8:
      return kInt8Name;
    case MatmulNumbers::kFp8:
      return kFp8Name;
    case MatmulNumbers::kFp8Blocks:
      return kFp8BlocksName;
    case MatmulNumbers::kElements:
      break;
  }
  return Name(shape.element);
}
const char* NameOfResults(const MatmulShape& shape) {
  return shape.numbers == MatmulNumbers::kInt8 ? kInt32Name : Name(shape.y_type);
}

int RowBucket(int num_rows) {
  return int(std::bit_ceil(unsigned(num_rows)));
}

MatmulCache::MatmulCache(std::string path, std::string machine) : path_(std::move(path)), machine_(std::move(machine)) {
  if (path_.empty()) return;
  const std::string problem = Read(&algorithms_);
  if (!problem.empty()) WriteLine(/*is_error=*/false, "ignoring " + path_ + ": " + problem);
}

std::string MatmulCache::Read(Algorithms* algorithms) const {
  std::ifstream in(path_, std::ios::binary);
  if (!in) return "";  // This is the first start.
  std::ostringstream text;
  text << in.rdbuf();
  return in ? Parse(text.str(), algorithms) : "it cannot be read";
}

const MatmulAlgorithm* MatmulCache::Find(const MatmulShape& shape) const {
  const auto found = algorithms_.find(shape);
  return found == algorithms_.end() ? nullptr : &found->second;
}

void MatmulCache::Insert(const MatmulShape& shape, const MatmulAlgorithm& algorithm) {
  algorithms_.insert_or_assign(shape, algorithm);
  if (path_.empty()) return;
  const FolderLock lock(FolderOf(path_));
  Algorithms of_others;
  Read(&of_others);  // A file that cannot be used is replaced.
  algorithms_.merge(of_others);
  const std::string error = Write();
  if (error.empty()) return;
  if (!has_complained_) WriteLine(/*is_error=*/false, "cannot write " + path_ + ": " + error);
  has_complained_ = true;
}

std::string MatmulCache::Parse(const std::string& text, Algorithms* result) const {
  std::istringstream in(text);
  std::string line, above;
  if (!std::getline(in, line) || line != kTitle) return "it is not a file of this program's version";
  above += line + "\n";
  if (!std::getline(in, line)) return "it is cut off";
  if (line != machine_) return "it was made on \"" + line + "\", this is \"" + machine_ + "\"";
  above += line + "\n";
  Algorithms algorithms;
  size_t num_lines = 0;
  while (std::getline(in, line)) {
    if (line.starts_with("end ")) {
      if (above + FormatEnd(num_lines, above) != text) return "its checksum is wrong";
      *result = std::move(algorithms);
      return "";
    }
    above += line + "\n";
    ++num_lines;
    MatmulShape shape{};
    MatmulAlgorithm algorithm{};
    if (!ParseLine(line, &shape, &algorithm)) return "line " + std::to_string(num_lines + 2) + " is malformed";
    algorithms.insert_or_assign(shape, algorithm);
  }
  return "it is cut off";
}

std::string MatmulCache::Format() const {
  std::ostringstream out;
  out << kTitle << "\n" << machine_ << "\n";
  for (const auto& [shape, algorithm] : algorithms_) {
    out << std::dec << shape.num_rows << " " << shape.num_columns << " " << shape.depth << " " << NameOfNumbers(shape)
        << " " << NameOfResults(shape) << " " << shape.adds_to_y << std::hex;
    for (const uint64_t word : algorithm) out << " " << word;
    out << "\n";
  }
  const std::string above = out.str();
  return above + FormatEnd(algorithms_.size(), above);
}

// The file is replaced atomically: a reader sees the old file or the new one, never a part.
// Processes in other containers may have the same process id, so the system chooses the name of the new file.
std::string MatmulCache::Write() const {
  std::string temporary = path_ + ".XXXXXX";
  const int file = mkostemp(temporary.data(), O_CLOEXEC);
  if (file < 0) return std::strerror(errno);
  const std::string text = Format();
  int error = 0;  // The first one.
  const auto check = [&error](bool worked) {
    if (!worked && error == 0) error = errno != 0 ? errno : EIO;
  };
  errno = 0;  // A write that stores only a part does not set it.
  check(fchmod(file, 0644) == 0);
  check(write(file, text.data(), text.size()) == ssize_t(text.size()));
  check(close(file) == 0);
  if (error == 0) check(std::rename(temporary.c_str(), path_.c_str()) == 0);
  if (error == 0) return "";
  std::remove(temporary.c_str());
  return std::strerror(error);
}

}  // namespace quire::cuda
