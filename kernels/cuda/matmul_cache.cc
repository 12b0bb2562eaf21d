// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/matmul_cache.h"

#include <unistd.h>

#include <bit>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <utility>

#include "kernels/cuda/line_writer.h"

namespace quire::cuda {
namespace {

constexpr char kTitle[] = "quire matmul algorithms 1";
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
  if (!ParseType(element, &shape->element) || !ParseType(y_type, &shape->y_type)) return false;
  for (uint64_t& word : *algorithm) {
    if (!(in >> std::hex >> word)) return false;
  }
  return (in >> std::ws).eof();
}

}  // namespace

int RowBucket(int num_rows) {
  return int(std::bit_ceil(unsigned(num_rows)));
}

MatmulCache::MatmulCache(std::string path, std::string machine) : path_(std::move(path)), machine_(std::move(machine)) {
  if (path_.empty()) return;
  std::ifstream in(path_, std::ios::binary);
  if (!in) return;  // This is the first start.
  std::ostringstream text;
  text << in.rdbuf();
  const std::string problem = in ? Parse(text.str()) : "it cannot be read";
  if (!problem.empty()) WriteLine(/*is_error=*/false, "ignoring " + path_ + ": " + problem);
}

const MatmulAlgorithm* MatmulCache::Find(const MatmulShape& shape) const {
  const auto found = algorithms_.find(shape);
  return found == algorithms_.end() ? nullptr : &found->second;
}

void MatmulCache::Insert(const MatmulShape& shape, const MatmulAlgorithm& algorithm) {
  algorithms_.insert_or_assign(shape, algorithm);
  if (!path_.empty()) Write();
}

std::string MatmulCache::Parse(const std::string& text) {
  std::istringstream in(text);
  std::string line, above;
  if (!std::getline(in, line) || line != kTitle) return "it is not a file of this program's version";
  above += line + "\n";
  if (!std::getline(in, line)) return "it is cut off";
  if (line != machine_) return "it was made on \"" + line + "\", this is \"" + machine_ + "\"";
  above += line + "\n";
  std::map<MatmulShape, MatmulAlgorithm> algorithms;
  size_t num_lines = 0;
  while (std::getline(in, line)) {
    if (line.starts_with("end ")) {
      if (above + FormatEnd(num_lines, above) != text) return "its checksum is wrong";
      algorithms_ = std::move(algorithms);
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
    out << std::dec << shape.num_rows << " " << shape.num_columns << " " << shape.depth << " " << Name(shape.element)
        << " " << Name(shape.y_type) << " " << shape.adds_to_y << std::hex;
    for (const uint64_t word : algorithm) out << " " << word;
    out << "\n";
  }
  const std::string above = out.str();
  return above + FormatEnd(algorithms_.size(), above);
}

// The file is replaced atomically: a reader sees the old file or the new one, never a part.
void MatmulCache::Write() {
  const std::string temporary = path_ + "." + std::to_string(getpid());
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  out << Format();
  out.close();
  if (out && std::rename(temporary.c_str(), path_.c_str()) == 0) return;
  std::remove(temporary.c_str());
  if (!has_complained_) WriteLine(/*is_error=*/false, "cannot write " + path_);
  has_complained_ = true;
}

}  // namespace quire::cuda
