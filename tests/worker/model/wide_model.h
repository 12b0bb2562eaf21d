// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_WORKER_MODEL_WIDE_MODEL_H_
#define QUIRE_TESTS_WORKER_MODEL_WIDE_MODEL_H_

#include <string>

#include "tests/worker/model/model_files.h"

namespace quire {

// Writes a checkpoint of the family of a model of tests/golden/models, in bfloat16, with random matrices and
// `num_columns` columns in the last matrices of attention, or a few more, and of dense MLPs. So these have slices, for
// which the models of tests/golden are too small. REQUIRES: `num_columns` is a multiple of 2048.
void WriteWideModel(const std::string& name, int num_columns, const TestDirectory& directory);

}  // namespace quire

#endif  // QUIRE_TESTS_WORKER_MODEL_WIDE_MODEL_H_
