#ifndef QUIRE_BASE_WORKER_PROTOCOL_H_
#define QUIRE_BASE_WORKER_PROTOCOL_H_

#include <cstdint>

namespace quire {

// Numbers of worker.proto that manager and worker must agree on. A worker refuses to start beyond them and a manager
// refuses one that did: it keeps something for each row and block, and a worker's word must not cost it its memory.

inline constexpr uint32_t kWorkerProtocolVersion = 1;
inline constexpr int kMaxWorkerMessageBytes = 64 << 20;
// Plans of a session that may be unanswered at the same time: one runs, one waits.
inline constexpr int kMaxPlansInFlight = 2;
inline constexpr int kMaxWorkerBlocks = 1 << 24;
inline constexpr int kMaxWorkerBlockSize = 1 << 16;  // Tokens.
inline constexpr int kMaxWorkerRows = 1 << 16;       // Sequences that run at the same time.
inline constexpr int kMaxCandidates = 1024;          // Of one beam in one step.

}  // namespace quire

#endif  // QUIRE_BASE_WORKER_PROTOCOL_H_
