// SPDX-License-Identifier: Apache-2.0

#include "worker/model/rank_parts.h"

#include "absl/strings/str_cat.h"
#include "kernels/linear.h"
#include "worker/model/shard.h"

namespace quire {

int MatrixPart::NumSlices(int cols, int group) const {
  if (slice_unit == 0) return 1;
  return quire::NumSlices(whole_cols(cols), slice_unit, group) / (whole_cols(cols) / cols);
}

MatrixPart RowsOfRank(const ModelConfig& config, const std::string& name, int rows) {
  if (config.shard.size == 1) return {name, rows};
  return {name, rows, /*tensor_rows=*/rows * config.shard.size, /*first_row=*/rows * config.shard.rank};
}

std::vector<MatrixPart> ProjectionsOfRank(const ModelConfig& config, const std::string& prefix, const char* suffix) {
  const int kv_rows = config.num_kv_heads * config.head_dim;
  MatrixPart q = RowsOfRank(config, absl::StrCat(prefix, "q_proj", suffix), config.num_heads * config.head_dim);
  MatrixPart k = {absl::StrCat(prefix, "k_proj", suffix), kv_rows};
  if (config.shard.size > 1) {
    k.tensor_rows = config.shard.num_kv_heads * config.head_dim;
    k.first_row = FirstKvHead(config) * config.head_dim;
  }
  MatrixPart v = k;
  v.name = absl::StrCat(prefix, "v_proj", suffix);
  q.order = k.order = RotatedRows(config);
  return {q, k, v};
}

std::vector<MatrixPart> FusedProjectionsOfRank(const ModelConfig& config, const std::string& prefix) {
  const std::string name = prefix + "qkv_proj.weight";
  if (config.shard.size == 1) return {{name, config.qkv_rows()}};
  const ModelConfig whole = WholeOf(config);
  const int first_k = whole.num_heads * config.head_dim, first_v = first_k + whole.num_kv_heads * config.head_dim;
  std::vector<MatrixPart> parts = ProjectionsOfRank(config, prefix, ".weight");
  parts[1].first_row += first_k;
  parts[2].first_row += first_v;
  for (MatrixPart& part : parts) {
    part.name = name;
    part.tensor_rows = whole.qkv_rows();
  }
  return parts;
}

MatrixPart LastColumnsOfRank(const ModelConfig& config, const std::string& name, int slice_unit, int cols) {
  MatrixPart part = {name, config.hidden_size};
  part.slice_unit = slice_unit;
  if (config.shard.size == 1) return part;
  part.tensor_cols = cols * config.shard.size;
  part.first_col = cols * config.shard.rank;
  return part;
}

MatrixPart RowsInPlaceOfColumns(const ModelConfig& config, const MatrixPart& part) {
  MatrixPart rows = RowsOfRank(config, part.name, part.rows / config.shard.size);
  rows.slice_unit = part.slice_unit;
  return rows;
}

MatrixPart OutputPart(const ModelConfig& config, const std::string& name) {
  if (config.shard.size == 1) return {name, config.vocab_size};
  const IndexRange own = OwnVocabulary(config);
  return {name, own.size(), /*tensor_rows=*/config.vocab_size, /*first_row=*/own.begin};
}

}  // namespace quire
