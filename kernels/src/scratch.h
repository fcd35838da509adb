// Scratch memory of each thread, that grows and is kept: fresh memory costs page faults on every step.
//
// There are two pieces a thread: a node may hold one for the length of its run while the tasks it starts, of which its
// own thread runs some, hold the other. All operators share them, so that a thread keeps as much as its largest needs.
#pragma once
#include <cstdint>

namespace fuseline {

// Uninitialised, aligned to a cache line, valid until the thread asks the same function again.
float* run_scratch(int64_t floats);
float* task_scratch(int64_t floats);

// Held by all threads together, in bytes.
int64_t scratch_bytes();

}  // namespace fuseline
