#ifndef QUIRE_BASE_FILE_LIMIT_H_
#define QUIRE_BASE_FILE_LIMIT_H_

#include <cstdint>

namespace quire {

// Raises the number of files that this process may have open to the largest that the system allows it (the hard limit
// of RLIMIT_NOFILE), but at most to a million. Every connection is an open file.
void RaiseFileLimit();

// Returns that number.
int64_t FileLimit();

}  // namespace quire

#endif  // QUIRE_BASE_FILE_LIMIT_H_
