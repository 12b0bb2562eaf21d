// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_WORKER_PROTOCOL_H_
#define QUIRE_BASE_WORKER_PROTOCOL_H_

#include <cstdint>

namespace quire {

// Limits in worker.proto that manager and worker must agree on. A worker refuses to start with larger numbers, and a
// manager refuses a worker that has them. The manager needs memory for every row and block of a worker, so a wrong
// description must not exhaust its memory.

inline constexpr uint32_t kWorkerProtocolVersion = 1;
inline constexpr uint32_t kGroupsProtocolVersion = 2;  // Of a worker whose model has other cache groups than one.
inline constexpr int kMaxWorkerMessageBytes = 64 << 20;
// The number of plans of a session that may be unanswered at the same time: one runs and one waits.
inline constexpr int kMaxPlansInFlight = 2;
inline constexpr int kMaxWorkerBlocks = 1 << 24;
inline constexpr int kMaxWorkerBlockSize = 1 << 16;  // In tokens.
inline constexpr int kMaxWorkerRows = 1 << 16;       // Sequences that run at the same time.
inline constexpr int kMaxCacheGroups = 8;
inline constexpr int kMaxBlocksPerSheet = 64;
inline constexpr int kMaxCandidates = 1024;          // Per beam and step.
inline constexpr uint32_t kMaxTopLogprobs = 1024;    // Alternatives per token.
inline constexpr int kMaxRecordBytes = 1 << 16;      // The manager stores such a record with a row.
inline constexpr int kMaxCacheRootBytes = 1 << 10;   // The name of a root of the prefix cache.
inline constexpr int kMaxGuideOwnerBytes = 1 << 10;  // Name of the tenants who share a guide.
// An inventory that is larger leaves out labels. Its chunks are closed at this size, but a row is never divided.
inline constexpr int64_t kMaxInventoryBytes = int64_t{512} << 20;
inline constexpr int kInventoryChunkBytes = 1 << 20;
inline constexpr int kMaxInventoryRowBytes = 16 << 20;

inline constexpr int kMaxRanks = 8;  // Ranks of a group.
inline constexpr int kMaxGroupIdBytes = 64;
inline constexpr int kMaxTransportAddressBytes = 4096;
inline constexpr int kGroupKeyBytes = 32;

inline constexpr int kMaxFailureMessageBytes = 1 << 10;  // Limit of the text that says why a sequence has failed.

// A session that ends because a step failed at one sequence has this name in the metadata of its ErrorInfo. The value
// is the manager's id of the sequence, in decimal.
inline constexpr char kFailedSequence[] = "sequence";

// The reason in the ErrorInfo of a session that ends because another one with a newer epoch was opened.
inline constexpr char kSessionTakenOver[] = "SESSION_TAKEN_OVER";
// The reason in the error of a session that ends because two ranks of a group have computed different results.
inline constexpr char kRanksDiffer[] = "RANKS_DIFFER";
// The reason in the ErrorInfo of a session that ends because another rank of the group is lost or has ended its own.
inline constexpr char kGroupPeerLost[] = "GROUP_PEER_LOST";
// The reason of the refusal when the term of the manager is over.
inline constexpr char kStaleTerm[] = "STALE_TERM";

}  // namespace quire

#endif  // QUIRE_BASE_WORKER_PROTOCOL_H_
