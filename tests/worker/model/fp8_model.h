// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_WORKER_MODEL_FP8_MODEL_H_
#define QUIRE_TESTS_WORKER_MODEL_FP8_MODEL_H_

#include "tests/worker/model/model_files.h"
#include "tools/make_model/model_shape.h"

namespace quire {

// Writes a random model of bfloat16 whose layers have matrices of FP8. A matrix has one scale, or one for each block of
// `block` x `block` weights if that is not 0.
void WriteFp8Model(const make_model::ModelShape& shape, int block, const TestDirectory& directory);

}  // namespace quire

#endif  // QUIRE_TESTS_WORKER_MODEL_FP8_MODEL_H_
