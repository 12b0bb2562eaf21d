// SPDX-License-Identifier: Apache-2.0

#include "kernels/python/borrowed_tensor.h"

namespace quire {
namespace {

constexpr uint32_t kMajorVersion = 1;

// Calls __dlpack_device__() of the array. This comes before __dlpack__, because the device decides whether a stream is
// passed.
bool AskDevice(PyObject* array, dlpack::Device* device) {
  PyObject* const answer = PyObject_CallMethod(array, "__dlpack_device__", nullptr);
  if (answer == nullptr) return false;
  PyObject* const pair = PySequence_Tuple(answer);
  Py_DECREF(answer);
  if (pair == nullptr) return false;
  int type = 0, index = 0;
  const bool is_ok = PyArg_ParseTuple(pair, "ii", &type, &index);
  Py_DECREF(pair);
  *device = {type, index};
  return is_ok;
}

// Returns the number that __dlpack__ uses for a CUDA stream. 0 is not a valid number; 1 is the legacy default stream.
PyObject* StreamNumber(void* stream) {
  return stream == nullptr ? PyLong_FromLong(1) : PyLong_FromVoidPtr(stream);
}

PyObject* CallDlpack(PyObject* array, bool asks_version, bool has_stream, void* stream) {
  PyObject* capsule = nullptr;
  PyObject* const method = PyObject_GetAttrString(array, "__dlpack__");
  PyObject* const no_arguments = PyTuple_New(0);
  PyObject* const keywords = PyDict_New();
  PyObject* const version = asks_version ? Py_BuildValue("(II)", kMajorVersion, 0) : nullptr;
  PyObject* const number = has_stream ? StreamNumber(stream) : nullptr;
  bool is_ok = method != nullptr && no_arguments != nullptr && keywords != nullptr;
  is_ok =
      is_ok && (!asks_version || (version != nullptr && PyDict_SetItemString(keywords, "max_version", version) == 0));
  is_ok = is_ok && (!has_stream || (number != nullptr && PyDict_SetItemString(keywords, "stream", number) == 0));
  if (is_ok) capsule = PyObject_Call(method, no_arguments, keywords);
  Py_XDECREF(method);
  Py_XDECREF(no_arguments);
  Py_XDECREF(keywords);
  Py_XDECREF(version);
  Py_XDECREF(number);
  return capsule;
}

// Replaces a refusal to export, which names no argument, by an error that names one.
void ExplainRefusal(const char* name) {
  if (!PyErr_ExceptionMatches(PyExc_BufferError)) return;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_Format(PyExc_ValueError, "%s cannot be exported through DLPack: %S", name, value != nullptr ? value : type);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
}

}  // namespace

BorrowedTensor::~BorrowedTensor() {
  if (managed_ != nullptr && managed_->deleter != nullptr) managed_->deleter(managed_);
  if (versioned_ != nullptr && versioned_->deleter != nullptr) versioned_->deleter(versioned_);
}

bool BorrowedTensor::Borrow(PyObject* array, const char* name, void* stream) {
  name_ = name;
  dlpack::Device device;
  if (!AskDevice(array, &device)) return false;
  const bool has_stream = device.type == dlpack::kCuda || device.type == dlpack::kCudaManaged;
  PyObject* capsule = CallDlpack(array, true, has_stream, stream);
  if (capsule == nullptr && PyErr_ExceptionMatches(PyExc_TypeError)) {  // The array does not know max_version.
    PyErr_Clear();
    capsule = CallDlpack(array, false, has_stream, stream);
  }
  if (capsule == nullptr) {
    ExplainRefusal(name);
    return false;
  }
  const bool is_ok = Take(capsule);
  Py_DECREF(capsule);
  return is_ok;
}

// From here on this object owns the tensor and must release it.
bool BorrowedTensor::Take(PyObject* capsule) {
  using dlpack::ManagedTensor, dlpack::VersionedManagedTensor;
  if (PyCapsule_IsValid(capsule, VersionedManagedTensor::kName)) {
    auto* const tensor =
        static_cast<VersionedManagedTensor*>(PyCapsule_GetPointer(capsule, VersionedManagedTensor::kName));
    if (PyCapsule_SetName(capsule, VersionedManagedTensor::kUsedName) != 0) return false;
    versioned_ = tensor;
    if (tensor->version.major != kMajorVersion) {
      PyErr_Format(PyExc_ValueError, "%s is exported by DLPack %u.%u, must be by 1.x or older", name_.c_str(),
                   tensor->version.major, tensor->version.minor);
      return false;
    }
    tensor_ = &tensor->tensor;
    return true;
  }
  if (PyCapsule_IsValid(capsule, ManagedTensor::kName)) {
    auto* const tensor = static_cast<ManagedTensor*>(PyCapsule_GetPointer(capsule, ManagedTensor::kName));
    if (PyCapsule_SetName(capsule, ManagedTensor::kUsedName) != 0) return false;
    managed_ = tensor;
    tensor_ = &tensor->tensor;
    return true;
  }
  PyErr_Format(PyExc_TypeError, "%s.__dlpack__() did not return a new DLPack capsule", name_.c_str());
  return false;
}

int64_t BorrowedTensor::stride(int dimension) const {
  if (tensor_->strides != nullptr) return tensor_->strides[dimension];
  int64_t stride = 1;
  for (int i = dimension + 1; i < num_dimensions(); ++i) stride *= size(i);
  return stride;
}

bool BorrowedTensor::has_contiguous_rows() const {
  for (int i = 0; i < num_dimensions(); ++i) {
    if (size(i) == 0) return true;  // The strides of empty arrays have no meaning.
  }
  const int last = num_dimensions() - 1;
  return size(last) == 1 || stride(last) == 1;
}

std::string BorrowedTensor::Shape() const {
  std::string text = "[";
  for (int i = 0; i < num_dimensions(); ++i) text += (i > 0 ? ", " : "") + std::to_string(size(i));
  return text + "]";
}

}  // namespace quire
