// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_FLAG_REFERENCE_H_
#define QUIRE_TESTS_FLAG_REFERENCE_H_

#include <string>
#include <vector>

#include "base/settings.h"

namespace quire {

// Tables of a program's flags in Markdown, as the documentation shows them: all flags by group with the whole help, or
// `names` with its first sentence.
std::string FlagTables(const Settings& settings);
std::string ShortFlagTable(const Settings& settings, const std::vector<std::string>& names);

// The part of file `path` (from the repository's root) between the lines "<!-- SECTION -->" and
// "<!-- end -->" that follows. With QUIRE_UPDATE_GOLDEN in the environment it is replaced by `text` before that.
std::string MadeSection(const std::string& path, const std::string& section, const std::string& text);

}  // namespace quire

#endif  // QUIRE_TESTS_FLAG_REFERENCE_H_
