// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_FUZZ_TEMPLATE_MUTATOR_H_
#define QUIRE_TESTS_FUZZ_TEMPLATE_MUTATOR_H_

#include <string>

#include "tests/random.h"

namespace quire {

// Changes the text of a chat template. Half of the changes insert a whole statement, with which it mostly stays a
// template. The others keep some lines, or repeat, remove, insert or change a piece of the text.
std::string ChangedTemplate(std::string text, Random* random);

}  // namespace quire

#endif  // QUIRE_TESTS_FUZZ_TEMPLATE_MUTATOR_H_
