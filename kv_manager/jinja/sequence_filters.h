// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_JINJA_SEQUENCE_FILTERS_H_
#define QUIRE_KV_MANAGER_JINJA_SEQUENCE_FILTERS_H_

#include <string_view>

#include "kv_manager/jinja/filters.h"

namespace quire::jinja {

// Finds a filter of lists, generators and dictionaries. Returns null when there is none with this name.
Filter FindSequenceFilter(std::string_view name);

}  // namespace quire::jinja

#endif  // QUIRE_KV_MANAGER_JINJA_SEQUENCE_FILTERS_H_
