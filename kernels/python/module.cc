// SPDX-License-Identifier: Apache-2.0

// The extension module paged_attention._kernels. It takes arrays through DLPack, checks them, and calls the forward
// functions. Users import paged_attention/__init__.py.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cmath>
#include <new>

#include "kernels/paged_attention.h"
#include "kernels/python/borrowed_tensor.h"
#include "kernels/python/gpu.h"
#include "kernels/python/lent_array.h"

namespace quire {
namespace {

PyObject* lent_array_type = nullptr;

enum Input { kOut, kQuery, kKeyCache, kValueCache, kBlockTables, kContextLens, kNumInputs };
constexpr const char* kInputNames[] = {"out", "query", "key_cache", "value_cache", "block_tables", "context_lens"};
constexpr int kNumDimensions[] = {3, 3, 4, 4, 2, 1};
constexpr const char* kDimensions[] = {"[num_seqs, num_heads, head_dim]",
                                       "[num_seqs, num_heads, head_dim]",
                                       "[num_blocks, block_size, num_kv_heads, head_dim]",
                                       "[num_blocks, block_size, num_kv_heads, head_dim]",
                                       "[num_seqs, max_blocks]",
                                       "[num_seqs]"};

// Sets the exception and returns false.
template <typename... Parts>
bool Fail(PyObject* exception, const Parts&... parts) {
  std::string message;
  ((message += parts), ...);
  PyErr_SetString(exception, message.c_str());
  return false;
}

std::string Text(int64_t number) {
  return std::to_string(number);
}

std::string Name(dlpack::ElementType type) {
  const char* const name = type.code == dlpack::kSigned     ? "int"
                           : type.code == dlpack::kUnsigned ? "uint"
                           : type.code == dlpack::kFloat    ? "float"
                           : type.code == dlpack::kBFloat   ? "bfloat"
                                                            : nullptr;
  if (name == nullptr) return "of DLPack type code " + Text(type.code);
  return name + Text(type.bits) + (type.lanes == 1 ? "" : "x" + Text(type.lanes));
}

bool IsOnHost(dlpack::Device device) {
  constexpr int32_t kPinned = 3;
  return device.type == dlpack::kCpu || device.type == kPinned;
}

std::string Name(dlpack::Device device) {
  if (IsOnHost(device)) return "the CPU";
  if (device.type == dlpack::kCuda) return "GPU " + Text(device.index);
  return "DLPack device (" + Text(device.type) + ", " + Text(device.index) + ")";
}

// The borrowed arrays of a call, and the argument struct that points into them.
class Call {
 public:
  // These three return false and set an exception on an error.
  bool Borrow(PyObject* const* arrays, void* stream);
  bool SetNumbers(PyObject* block_size, PyObject* max_context_len, PyObject* scale);
  bool SetArrays();

  PagedAttentionStatus Run(void* stream) const {
    if (IsOnHost(device())) return paged_attention_cpu_forward(args_);
    return gpu::Forward(args_, device().index, stream);
  }

 private:
  dlpack::Device device() const { return tensors_[kQuery].device(); }
  dlpack::ElementType TypeOf(int input) const {
    if (are_bfloat16_words_[input]) return {dlpack::kBFloat, 16, 1};
    return tensors_[input].type();
  }
  bool SetNumber(PyObject* number, const char* name, int64_t* to);
  bool CheckForm(int input) const;
  bool CheckType(int input) const;
  bool CheckSize(int input, int dimension, int64_t expected, const char* like) const;

  BorrowedTensor tensors_[kNumInputs];
  bool are_bfloat16_words_[kNumInputs] = {};
  PagedAttentionArgs args_ = {};
  int64_t block_size_ = 0;
  bool has_scale_ = false;
};

bool Call::Borrow(PyObject* const* arrays, void* stream) {
  for (int i = 0; i < kNumInputs; ++i) {
    PyObject* array = nullptr;
    int is_bfloat16_words = 0;
    if (!PyArg_ParseTuple(arrays[i], "Op", &array, &is_bfloat16_words)) return false;
    are_bfloat16_words_[i] = is_bfloat16_words != 0;
    if (!tensors_[i].Borrow(array, kInputNames[i], stream)) return false;
  }
  return true;
}

bool Call::SetNumber(PyObject* number, const char* name, int64_t* to) {
  PyObject* const index = PyNumber_Index(number);
  if (index == nullptr) {
    PyErr_Clear();
    return PyErr_Format(PyExc_TypeError, "%s is %R, must be an int", name, number) != nullptr;
  }
  int overflow = 0;
  *to = PyLong_AsLongLongAndOverflow(index, &overflow);
  Py_DECREF(index);
  if (overflow == 0) return !PyErr_Occurred();
  return PyErr_Format(PyExc_ValueError, "%s is %R, must be at most 2147483647", name, number) != nullptr;
}

bool Call::SetNumbers(PyObject* block_size, PyObject* max_context_len, PyObject* scale) {
  if (!SetNumber(block_size, "block_size", &block_size_)) return false;
  if (!SetNumber(max_context_len, "max_context_len", &args_.max_context_len)) return false;
  has_scale_ = scale != Py_None;
  if (!has_scale_) return true;
  args_.scale = PyFloat_AsDouble(scale);
  if (!PyErr_Occurred()) return true;
  PyErr_Clear();
  return PyErr_Format(PyExc_TypeError, "scale is %R, must be a number or None", scale) != nullptr;
}

// Checks the number of dimensions, the device, and that the last dimension is contiguous.
bool Call::CheckForm(int input) const {
  const BorrowedTensor& tensor = tensors_[input];
  const int last = kNumDimensions[input] - 1;
  if (tensor.num_dimensions() != kNumDimensions[input]) {
    return Fail(PyExc_ValueError, tensor.name(), " has shape ", tensor.Shape(), ", must have ",
                Text(kNumDimensions[input]), " dimensions ", kDimensions[input]);
  }
  if (!IsOnHost(tensor.device()) && tensor.device().type != dlpack::kCuda) {
    return Fail(PyExc_ValueError, tensor.name(), " is on ", Name(tensor.device()),
                ", must be on the CPU (1, 0) or an NVIDIA GPU (2, index)");
  }
  if (Name(tensor.device()) != Name(device())) {
    return Fail(PyExc_ValueError, tensor.name(), " is on ", Name(tensor.device()), ", must be on ", Name(device()),
                " like query");
  }
  if (!tensor.has_contiguous_rows()) {
    return Fail(PyExc_ValueError, tensor.name(), " has stride ", Text(tensor.stride(last)),
                " in its last dimension, must be 1: contiguous");
  }
  return true;
}

bool Call::CheckType(int input) const {
  const std::string type = Name(TypeOf(input));
  const char* const name = kInputNames[input];
  if (input == kQuery && type != "float32" && type != "bfloat16" && type != "float16") {
    return Fail(PyExc_TypeError, name, " is ", type, ", must be float32, bfloat16 or float16");
  }
  const bool is_index = input == kBlockTables || input == kContextLens;
  const std::string expected = is_index ? "int32" : Name(TypeOf(kQuery));
  if (type == expected) return true;
  return Fail(PyExc_TypeError, name, " is ", type, ", must be ", expected, is_index ? "" : " like query");
}

bool Call::CheckSize(int input, int dimension, int64_t expected, const char* like) const {
  const BorrowedTensor& tensor = tensors_[input];
  if (tensor.size(dimension) == expected) return true;
  return Fail(PyExc_ValueError, tensor.name(), " has shape ", tensor.Shape(), " ", kDimensions[input],
              ", its dimension ", Text(dimension), " must be ", Text(expected), " like ", like);
}

bool Call::SetArrays() {
  for (const int input : {kQuery, kKeyCache, kValueCache, kBlockTables, kContextLens, kOut}) {
    if (!CheckForm(input) || !CheckType(input)) return false;
  }
  const BorrowedTensor &query = tensors_[kQuery], &key = tensors_[kKeyCache], &value = tensors_[kValueCache];
  const BorrowedTensor &tables = tensors_[kBlockTables], &lens = tensors_[kContextLens];
  if (!CheckSize(kKeyCache, 3, query.size(2), "query's head_dim")) return false;
  for (int i = 0; i < 4; ++i) {
    if (!CheckSize(kValueCache, i, key.size(i), "key_cache's")) return false;
  }
  if (!CheckSize(kBlockTables, 0, query.size(0), "query's num_seqs")) return false;
  if (!CheckSize(kContextLens, 0, query.size(0), "query's num_seqs")) return false;
  if (block_size_ != key.size(1)) {
    return Fail(PyExc_ValueError, "block_size is ", Text(block_size_), ", must be ", Text(key.size(1)),
                ", dimension 1 of key_cache");
  }
  const std::string type = Name(TypeOf(kQuery));
  args_.query = query.data();
  args_.key_cache = key.data();
  args_.value_cache = value.data();
  args_.block_tables = static_cast<const int32_t*>(tables.data());
  args_.context_lens = static_cast<const int32_t*>(lens.data());
  args_.out = tensors_[kOut].data();
  for (int i = 0; i < 2; ++i) args_.query_strides[i] = query.stride(i);
  for (int i = 0; i < 3; ++i) args_.key_strides[i] = key.stride(i);
  for (int i = 0; i < 3; ++i) args_.value_strides[i] = value.stride(i);
  args_.block_tables_stride = tables.stride(0);
  args_.type = type == "float32" ? DataType::kFloat32 : type == "bfloat16" ? DataType::kBFloat16 : DataType::kFloat16;
  args_.num_seqs = query.size(0);
  args_.num_heads = query.size(1);
  args_.head_dim = query.size(2);
  args_.num_blocks = key.size(0);
  args_.block_size = key.size(1);
  args_.num_kv_heads = key.size(2);
  args_.max_blocks = tables.size(1);
  if (!has_scale_) args_.scale = 1 / std::sqrt(double(args_.head_dim));
  return true;
}

// forward(out, query, key_cache, value_cache, block_tables, context_lens, block_size, max_context_len, scale, stream).
// The first six are pairs: an object that exports the array, and whether its 16-bit words are bfloat16.
PyObject* Forward(PyObject* /*module*/, PyObject* arguments) {
  PyObject *arrays[kNumInputs], *block_size, *max_context_len, *scale;
  unsigned long long stream_number = 0;
  if (!PyArg_ParseTuple(arguments, "OOOOOOOOOK:forward", &arrays[kOut], &arrays[kQuery], &arrays[kKeyCache],
                        &arrays[kValueCache], &arrays[kBlockTables], &arrays[kContextLens], &block_size,
                        &max_context_len, &scale, &stream_number)) {
    return nullptr;
  }
  void* const stream = reinterpret_cast<void*>(uintptr_t(stream_number));
  try {
    Call call;
    if (!call.Borrow(arrays, stream) || !call.SetNumbers(block_size, max_context_len, scale) || !call.SetArrays()) {
      return nullptr;
    }
    PagedAttentionStatus status;
    bool is_out_of_memory = false;
    Py_BEGIN_ALLOW_THREADS;
    try {
      status = call.Run(stream);
    } catch (const std::bad_alloc&) {
      is_out_of_memory = true;
    }
    Py_END_ALLOW_THREADS;
    if (is_out_of_memory) return PyErr_NoMemory();
    if (status.ok()) Py_RETURN_NONE;
    const bool is_invalid = status.code == PagedAttentionStatus::kInvalidArgument;
    PyErr_SetString(is_invalid ? PyExc_ValueError : PyExc_RuntimeError, status.message.c_str());
    return nullptr;
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  }
}

PyObject* EmptyLike(PyObject* /*module*/, PyObject* array) {
  BorrowedTensor like;
  if (!like.Borrow(array, kInputNames[kQuery], nullptr)) return nullptr;
  return NewLentArray(lent_array_type, like);
}

PyMethodDef kMethods[] = {
    {"forward", Forward, METH_VARARGS, "Computes attention into the first argument."},
    {"empty_like", EmptyLike, METH_O, "An array that is lent through DLPack, its elements undefined."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef kModule = {
    PyModuleDef_HEAD_INIT, "_kernels", "See paged_attention.forward.", -1, kMethods, nullptr, nullptr, nullptr, nullptr,
};

}  // namespace
}  // namespace quire

PyMODINIT_FUNC PyInit__kernels() {
  PyObject* const module = PyModule_Create(&quire::kModule);
  if (module == nullptr) return nullptr;
  quire::lent_array_type = quire::MakeLentArrayType();
  if (quire::lent_array_type != nullptr) return module;
  Py_DECREF(module);
  return nullptr;
}
