// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_FILE_LIMIT_H_
#define QUIRE_BASE_FILE_LIMIT_H_

namespace quire {

// Raises the number of files that this process may have open to the largest that the system allows it (the hard limit
// of RLIMIT_NOFILE), but at most to a million. Every connection is an open file.
void RaiseFileLimit();

}  // namespace quire

#endif  // QUIRE_BASE_FILE_LIMIT_H_
