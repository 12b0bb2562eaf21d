// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_JINJA_TEXT_FILTERS_H_
#define QUIRE_KV_MANAGER_JINJA_TEXT_FILTERS_H_

#include <string_view>

#include "kv_manager/jinja/filters.h"

namespace quire::jinja {

// Finds a filter that makes a text or reads one. Returns null when there is none with this name.
Filter FindTextFilter(std::string_view name);

}  // namespace quire::jinja

#endif  // QUIRE_KV_MANAGER_JINJA_TEXT_FILTERS_H_
