// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_PYTHON_LENT_ARRAY_H_
#define QUIRE_KERNELS_PYTHON_LENT_ARRAY_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "kernels/python/borrowed_tensor.h"

namespace quire {

// Makes the Python type of arrays in this module's own memory, on the CPU or a GPU. Other libraries borrow them through
// __dlpack__ and __dlpack_device__. The memory lives until the array and all borrowers are gone. Returns a new
// reference, or null with an exception on failure.
PyObject* MakeLentArrayType();

// Makes a contiguous array of that type with the shape, element type and device of `like`. Returns null and sets a
// Python exception when there is no memory.
PyObject* NewLentArray(PyObject* lent_array_type, const BorrowedTensor& like);

}  // namespace quire

#endif  // QUIRE_KERNELS_PYTHON_LENT_ARRAY_H_
