#ifndef QUIRE_KERNELS_PYTHON_LENT_ARRAY_H_
#define QUIRE_KERNELS_PYTHON_LENT_ARRAY_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "kernels/python/borrowed_tensor.h"

namespace quire {

// The Python type of an array in memory of this module, on the CPU or a GPU, that other libraries borrow through
// __dlpack__ and __dlpack_device__. Its memory lives as long as it or any borrower. New reference; null and an
// exception on failure.
PyObject* MakeLentArrayType();

// An array of that type with the shape, element type and device of `like`, without gaps. Null, and a Python exception,
// when there is no memory.
PyObject* NewLentArray(PyObject* lent_array_type, const BorrowedTensor& like);

}  // namespace quire

#endif  // QUIRE_KERNELS_PYTHON_LENT_ARRAY_H_
