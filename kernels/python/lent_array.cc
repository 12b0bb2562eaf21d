// SPDX-License-Identifier: Apache-2.0

#include "kernels/python/lent_array.h"

#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "kernels/python/gpu.h"

namespace quire {
namespace {

constexpr size_t kAlignment = 256;  // DLPack asks for this alignment.

// Memory that the Python object and its borrowers share. The borrowers may outlive the interpreter.
struct Storage {
  std::vector<int64_t> shape, strides;
  dlpack::ElementType type;
  dlpack::Device device;
  void* data = nullptr;

  bool is_on_cpu() const { return device.type == dlpack::kCpu; }
  ~Storage() { is_on_cpu() ? std::free(data) : gpu::Free(device.index, data); }
};
using SharedStorage = std::shared_ptr<Storage>;

struct LentArray {
  PyObject_HEAD;
  SharedStorage* storage;
};

template <typename Managed>
void DeleteManaged(Managed* managed) {
  delete static_cast<SharedStorage*>(managed->context);
  delete managed;
}

// Destructor of capsules: deletes the tensor of a capsule that nobody has consumed.
template <typename Managed>
void DeleteCapsule(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, Managed::kName)) return;
  auto* const managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, Managed::kName));
  managed->deleter(managed);
}

template <typename Managed>
PyObject* MakeCapsule(const SharedStorage& storage) {
  auto* const managed = new Managed{};
  managed->context = new SharedStorage(storage);
  managed->deleter = DeleteManaged<Managed>;
  if constexpr (requires { managed->version; }) managed->version = {1, 0};
  managed->tensor = {.data = storage->data,
                     .device = storage->device,
                     .num_dimensions = int32_t(storage->shape.size()),
                     .type = storage->type,
                     .shape = storage->shape.data(),
                     .strides = storage->strides.data(),
                     .byte_offset = 0};
  PyObject* const capsule = PyCapsule_New(managed, Managed::kName, DeleteCapsule<Managed>);
  if (capsule == nullptr) managed->deleter(managed);
  return capsule;
}

const SharedStorage& StorageOf(PyObject* self) {
  return *reinterpret_cast<LentArray*>(self)->storage;
}

PyObject* Dlpack(PyObject* self, PyObject* arguments, PyObject* keywords) {
  static const char* const kNames[] = {"stream", "max_version", "dl_device", "copy", nullptr};
  PyObject *stream = Py_None, *max_version = Py_None, *device = Py_None, *copy = Py_None;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$OOOO:__dlpack__", const_cast<char**>(kNames), &stream,
                                   &max_version, &device, &copy)) {
    return nullptr;
  }
  const SharedStorage& storage = StorageOf(self);  // No stream has to wait, because forward has finished its work.
  if (copy == Py_True) {
    PyErr_SetString(PyExc_BufferError, "this array makes no copies");
    return nullptr;
  }
  if (device != Py_None) {
    int type = 0, index = 0;
    if (!PyArg_ParseTuple(device, "ii", &type, &index)) return nullptr;
    if (type != storage->device.type || index != storage->device.index) {
      PyErr_Format(PyExc_BufferError, "this array is on device (%d, %d) and does not move to (%d, %d)",
                   storage->device.type, storage->device.index, type, index);
      return nullptr;
    }
  }
  int major = 0, minor = 0;
  if (max_version != Py_None && !PyArg_ParseTuple(max_version, "ii", &major, &minor)) return nullptr;
  return major >= 1 ? MakeCapsule<dlpack::VersionedManagedTensor>(storage)
                    : MakeCapsule<dlpack::ManagedTensor>(storage);
}

PyObject* DlpackDevice(PyObject* self, PyObject* /*arguments*/) {
  const dlpack::Device device = StorageOf(self)->device;
  return Py_BuildValue("(ii)", int(device.type), int(device.index));
}

PyObject* RefuseNew(PyTypeObject* /*type*/, PyObject* /*arguments*/, PyObject* /*keywords*/) {
  PyErr_SetString(PyExc_TypeError, "paged_attention.Array is made by forward only");
  return nullptr;
}

void Deallocate(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  delete reinterpret_cast<LentArray*>(self)->storage;
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

PyMethodDef kMethods[] = {
    {"__dlpack__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(Dlpack)), METH_VARARGS | METH_KEYWORDS,
     "Lends the array in a DLPack capsule."},
    {"__dlpack_device__", DlpackDevice, METH_NOARGS, "The DLPack device type and index."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot kSlots[] = {
    {Py_tp_new, reinterpret_cast<void*>(RefuseNew)},
    {Py_tp_dealloc, reinterpret_cast<void*>(Deallocate)},
    {Py_tp_methods, kMethods},
    {Py_tp_doc, const_cast<char*>("An array that other libraries borrow through DLPack.")},
    {0, nullptr},
};

PyType_Spec kSpec = {"paged_attention.Array", sizeof(LentArray), 0, Py_TPFLAGS_DEFAULT, kSlots};

SharedStorage NewStorage(const BorrowedTensor& like) {
  auto storage = std::make_shared<Storage>();
  storage->type = like.type();
  storage->device = like.device();
  if (storage->device.type != dlpack::kCuda) storage->device = {dlpack::kCpu, 0};
  size_t bytes = (storage->type.bits * storage->type.lanes + 7) / 8;
  for (int i = 0; i < like.num_dimensions(); ++i) {
    storage->shape.push_back(like.size(i));
    bytes *= size_t(like.size(i));
  }
  storage->strides.resize(storage->shape.size());
  int64_t stride = 1;
  for (size_t i = storage->shape.size(); i-- > 0; stride *= storage->shape[i]) storage->strides[i] = stride;
  bytes = (bytes + kAlignment) / kAlignment * kAlignment;  // Room for at least one element.
  storage->data =
      storage->is_on_cpu() ? std::aligned_alloc(kAlignment, bytes) : gpu::Allocate(storage->device.index, bytes);
  if (storage->data == nullptr) throw std::bad_alloc();
  return storage;
}

}  // namespace

PyObject* MakeLentArrayType() {
  return PyType_FromSpec(&kSpec);
}

PyObject* NewLentArray(PyObject* lent_array_type, const BorrowedTensor& like) {
  try {
    SharedStorage storage = NewStorage(like);
    auto* const type = reinterpret_cast<PyTypeObject*>(lent_array_type);
    PyObject* const self = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (self != nullptr) reinterpret_cast<LentArray*>(self)->storage = new SharedStorage(std::move(storage));
    return self;
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  }
}

}  // namespace quire
