// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_LOG_OUTPUT_H_
#define QUIRE_BASE_LOG_OUTPUT_H_

#include <cstdint>
#include <string_view>

// The lines of the log go to standard error. In a program that serves requests, no thread may wait for whoever reads
// its output. Such a program calls StartLogThreads, and from then on threads of their own write the lines. In other
// programs, every line is written by the thread that logs it. All functions are thread-safe.

namespace quire {

// The size of the queue for each of standard output and standard error. A line has about 150 bytes.
inline constexpr int kMaxQueuedLogBytes = 1 << 20;

// Starts the threads that write standard error and standard output. What the process and its libraries print to the C
// stream `stderr` goes through the log too, as lines of level warning. Three kinds of output do not, and the thread
// that prints them waits for the reader: std::cerr, messages with which glibc ends the process (such as "stack smashing
// detected"), and Abseil's messages about a mutex that is used wrongly, which end the process too.
//
// When a signal such as SIGSEGV or SIGABRT ends the process, it first waits for the lines in the queue, for at most a
// second; not when the stack has overflowed. Standard descriptors that are closed are opened on /dev/null, so that no
// other file gets their numbers. Call it once, in main.
void StartLogThreads();

// Writes one line with its newline.
void WriteLogLine(std::string_view line);

// Writes the line with which the process ends, also when the queue is full, and waits until it has been written, for at
// most a second.
void WriteLastLogLine(std::string_view line);

// Writes `text` to standard output, after the lines of the log. Waits until it has been written, for at most a second.
void WriteStandardOutput(std::string_view text);

// Waits until all lines have been written, for at most a second. Call it before the process ends.
void FlushLog();

// The number of lines that were dropped because standard error did not take them.
int64_t NumDroppedLogLines();

}  // namespace quire

#endif  // QUIRE_BASE_LOG_OUTPUT_H_
