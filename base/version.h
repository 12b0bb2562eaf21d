// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_VERSION_H_
#define QUIRE_BASE_VERSION_H_

namespace quire {

// All programs of this tree have this version.
inline constexpr char kVersion[] = "0.1.0";

}  // namespace quire

#endif  // QUIRE_BASE_VERSION_H_
