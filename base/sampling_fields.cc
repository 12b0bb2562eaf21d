// SPDX-License-Identifier: Apache-2.0

#include "base/sampling_fields.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/number_text.h"

namespace quire {

std::string SamplingField::RangeText() const {
  if (high == std::numeric_limits<float>::max()) return absl::StrCat("at least ", NumberText(low), " and finite");
  return absl::StrCat("in ", has_low ? "[" : "(", NumberText(low), ", ", NumberText(high), "]");
}

std::string SamplingField::OptionName() const {
  return absl::StrCat("--", absl::StrReplaceAll(name, {{"_", "-"}}));
}

}  // namespace quire
