// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_QUANTIZED_READER_H_
#define QUIRE_WORKER_MODEL_QUANTIZED_READER_H_

#include <string>

#include "absl/status/statusor.h"
#include "worker/model/quantization_config.h"
#include "worker/model/quantize.h"
#include "worker/model/tensor_reader.h"

namespace quire {

// Reads the quantized matrices of a checkpoint, in the format that config.json names. packed_numbers.h describes how
// the formats pack numbers. `weight` is always the name that the matrix has when it is not quantized, which ends
// with ".weight". The tensors must outlive it.
class QuantizedReader {
 public:
  QuantizedReader(const CheckpointQuantization& quantization, TensorReader* tensors)
      : quantization_(quantization), tensors_(*tensors), gptq_zeros_stored_less_(quantization.zeros_stored_less) {}

  // Returns whether a product takes the numbers of the matrix as they are stored: whole numbers, or FP8 that is kept.
  bool Stores(const std::string& weight) const;

  // Returns whether TensorReader::Take can read such a matrix as floating-point numbers as well.
  bool CanDequantize() const {
    return quantization_.format == CheckpointFormat::kGgufQ4_0 || quantization_.format == CheckpointFormat::kFp8;
  }

  // Reads a matrix [rows, cols]. If tensors are missing or wrong, the error names one of them. Scales of groups that
  // are longer than 128 columns are repeated, so that the groups have 128. REQUIRES: Stores(weight).
  absl::StatusOr<QuantizedMatrix> Read(const std::string& weight, int rows, int cols);

  // If the matrix [rows, cols] is stored as numbers of 8 bits with groups, which no product takes, makes floating-point
  // numbers of it, in the type of its scales. TensorReader::Take returns them under the name `weight` until its
  // Release. Otherwise does nothing.
  absl::Status Dequantize(const std::string& weight, int rows, int cols);

 private:
  // Returns whether the matrix is stored quantized, and not as FP8 that TensorReader converts.
  bool IsStored(const std::string& weight) const;
  absl::StatusOr<QuantizedMatrix> ReadInt8(const std::string& weight, int rows, int cols);
  // Reads a matrix with groups of any length. Sets the type of the scales in the file.
  absl::StatusOr<QuantizedMatrix> ReadGroups(const std::string& weight, int rows, int cols, DataType* scale_type);
  absl::StatusOr<QuantizedMatrix> ReadPackQuantized(const std::string& weight, int rows, int cols,
                                                    DataType* scale_type);
  // Reads a matrix of GPTQ or AWQ, which differ in the order of numbers in their words.
  absl::StatusOr<QuantizedMatrix> ReadByInputs(const std::string& weight, int rows, int cols, DataType* scale_type);

  absl::StatusOr<QuantizedMatrix> ReadGgufQ4(const std::string& weight, int rows, int cols);

  // Reads one scale per row, or one for the whole matrix, into a scale per row.
  absl::StatusOr<std::vector<float>> Int8Scales(const std::string& weight, int rows);
  // If the file has zero points of a matrix that has none or the middle ones by its format, checks that they are those.
  // `groups` is the count of scales of a row.
  absl::Status CheckSymmetricZeros(const std::string& weight, int rows, int groups);
  // Sorts the columns by their group, which the tensor says for each column (desc_act, actorder). Without the tensor,
  // column k belongs to group k / group, and it is an error if config.json says otherwise.
  absl::Status OrderColumns(const std::string& name, QuantizedMatrix* matrix);
  // Makes the zero points of GPTQ from the words that it stores. If the words and the numbers of the matrix do not tell
  // the version of the format, it comes from the last matrix that told it, or from config.json.
  absl::Status ReadGptqZeros(const Tensor& tensor, int rows, int groups, QuantizedMatrix* matrix);
  // The columns that share a scale in the file.
  int StoredGroup(int cols) const { return quantization_.group == 0 ? cols : quantization_.group; }

  const CheckpointQuantization quantization_;
  TensorReader& tensors_;
  int gptq_zeros_stored_less_;  // For weights that are not symmetric; see GptqZerosStoredLess.
};

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_QUANTIZED_READER_H_
