// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GRAMMAR_GUIDE_SOURCE_H_
#define QUIRE_GRAMMAR_GUIDE_SOURCE_H_

#include "grammar/grammar.h"
#include "quire/v1/inference.pb.h"

namespace quire::grammar {

// Returns the source of a guide of a request. A guide without a kind counts as json_object.
Source SourceOf(const v1::Guide& guide);

}  // namespace quire::grammar

#endif  // QUIRE_GRAMMAR_GUIDE_SOURCE_H_
