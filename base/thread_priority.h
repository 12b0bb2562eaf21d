// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_THREAD_PRIORITY_H_
#define QUIRE_BASE_THREAD_PRIORITY_H_

namespace quire {

// Lets the calling thread give way to other threads of the machine: it gets about a tenth of the time of a thread with
// the usual priority that wants the same core. There is no way back. Further calls do nothing.
void LowerPriorityOfThread();

}  // namespace quire

#endif  // QUIRE_BASE_THREAD_PRIORITY_H_
