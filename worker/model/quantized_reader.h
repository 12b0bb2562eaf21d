#ifndef QUIRE_WORKER_MODEL_QUANTIZED_READER_H_
#define QUIRE_WORKER_MODEL_QUANTIZED_READER_H_

#include <string>

#include "absl/status/statusor.h"
#include "worker/model/quantization_config.h"
#include "worker/model/quantize.h"
#include "worker/model/tensor_reader.h"

namespace quire {

// Reads the quantized matrices of a checkpoint, in the format that config.json names. packed_int4.h describes how the
// formats store numbers of 4 bits. `weight` is always the name that the matrix has when it is not quantized, which ends
// with ".weight". The tensors must outlive it.
class QuantizedReader {
 public:
  QuantizedReader(const CheckpointQuantization& quantization, TensorReader* tensors)
      : quantization_(quantization), tensors_(*tensors) {}

  // Whether the matrix is stored as whole numbers, or as FP8 that is kept.
  bool Stores(const std::string& weight) const;

  // Whether TensorReader::Take can read such a matrix as floating-point numbers as well.
  bool CanDequantize() const {
    return quantization_.format == CheckpointFormat::kGgufQ4_0 || quantization_.format == CheckpointFormat::kFp8;
  }

  // Reads a matrix [rows, cols]. If tensors are missing or wrong, the error names one of them. Scales of groups that
  // are longer than 128 columns are repeated, so that the groups have 128. REQUIRES: Stores(weight).
  absl::StatusOr<QuantizedMatrix> Read(const std::string& weight, int rows, int cols);

 private:
  absl::StatusOr<QuantizedMatrix> ReadInt8(const std::string& weight, int rows, int cols);
  absl::StatusOr<QuantizedMatrix> ReadPackQuantized(const std::string& weight, int rows, int cols);
  // Of GPTQ and AWQ, which differ in the order of numbers in their words.
  absl::StatusOr<QuantizedMatrix> ReadByInputs(const std::string& weight, int rows, int cols);

  absl::StatusOr<QuantizedMatrix> ReadGgufQ4(const std::string& weight, int rows, int cols);

  // Reads one scale per row, or one for the whole matrix, into a scale per row.
  absl::StatusOr<std::vector<float>> Int8Scales(const std::string& weight, int rows);
  // Sorts the columns by their group, which the tensor says for each column (desc_act, actorder). Without the tensor,
  // column k belongs to group k / group.
  absl::Status OrderColumns(const std::string& name, QuantizedMatrix* matrix);
  // Makes the zero points of GPTQ from the words that it stores.
  absl::Status ReadGptqZeros(const Tensor& tensor, int rows, int groups, QuantizedMatrix* matrix) const;
  // The columns that share a scale in the file.
  int StoredGroup(int cols) const { return quantization_.group == 0 ? cols : quantization_.group; }

  const CheckpointQuantization quantization_;
  TensorReader& tensors_;
};

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_QUANTIZED_READER_H_
