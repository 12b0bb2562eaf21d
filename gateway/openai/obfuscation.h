// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_OBFUSCATION_H_
#define QUIRE_GATEWAY_OPENAI_OBFUSCATION_H_

#include <cstddef>
#include <string>

namespace quire {

// Appends a member that makes the event from `begin` on a multiple of 64 bytes long, so that its length tells little
// about its text. The text of the member means nothing. REQUIRES: the event ends with the brace and two line breaks
// that follow.
void AppendObfuscation(size_t begin, std::string* out);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_OBFUSCATION_H_
