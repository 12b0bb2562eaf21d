// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_RANK_DIGEST_H_
#define QUIRE_WORKER_RANK_DIGEST_H_

#include <vector>

#include "quire/v1/worker.pb.h"

namespace quire {

// The manager compares digests of what the ranks of a group have, because the ranks above 0 send no more than these.

// Sets the digest of everything in the result but the time.
void SetDigest(v1::StepResult* result);
// Removes everything that a rank above 0 does not send.
void KeepDigestAlone(v1::StepResult* result);
// Sets the digest of rows, labels and last results in the header. It depends neither on times nor on the sizes of the
// pool and of chunks. If the rank is above 0, removes everything but the header. Does nothing without chunks.
void SetDigest(int rank, std::vector<v1::InventoryChunk>* inventory);

}  // namespace quire

#endif  // QUIRE_WORKER_RANK_DIGEST_H_
