// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_PYTHON_BORROWED_TENSOR_H_
#define QUIRE_KERNELS_PYTHON_BORROWED_TENSOR_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string>

#include "kernels/python/dlpack.h"

namespace quire {

// An array that another library lends through DLPack. The loan ends when this object is destroyed. Needs the GIL.
class BorrowedTensor {
 public:
  BorrowedTensor() = default;
  ~BorrowedTensor();
  BorrowedTensor(const BorrowedTensor&) = delete;
  BorrowedTensor& operator=(const BorrowedTensor&) = delete;

  // Borrows the array that `array` exports; `name` is used in messages. On a GPU, the producer makes `stream` wait for
  // the work that it has queued. Returns false and sets a Python exception on failure. REQUIRES: nothing has been
  // borrowed yet.
  bool Borrow(PyObject* array, const char* name, void* stream);

  int num_dimensions() const { return tensor_->num_dimensions; }
  int64_t size(int dimension) const { return tensor_->shape[dimension]; }
  int64_t stride(int dimension) const;  // In elements.
  // Whether consecutive elements of the last dimension are adjacent in memory.
  bool has_contiguous_rows() const;
  void* data() const { return static_cast<char*>(tensor_->data) + tensor_->byte_offset; }
  dlpack::Device device() const { return tensor_->device; }
  dlpack::ElementType type() const { return tensor_->type; }
  const std::string& name() const { return name_; }
  // For example "[2, 8, 64]".
  std::string Shape() const;

 private:
  bool Take(PyObject* capsule);

  std::string name_;
  const dlpack::Tensor* tensor_ = nullptr;  // Points into one of the following two.
  dlpack::ManagedTensor* managed_ = nullptr;
  dlpack::VersionedManagedTensor* versioned_ = nullptr;
};

}  // namespace quire

#endif  // QUIRE_KERNELS_PYTHON_BORROWED_TENSOR_H_
