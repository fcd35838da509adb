// Plain C entry points of the block of memory (block.cc). A run belongs to the thread that begins it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#define FUSELINE_BLOCK extern "C" __attribute__((visibility("default")))

// Give the runtime's sessions their memory; "" or why that cannot be.
FUSELINE_BLOCK const char* fuseline_block_install();
// Between 1 and 0 the runtime's allocator has to ask for memory, so that it is known by the place from which it does;
// 1 where it is known.
FUSELINE_BLOCK int fuseline_block_watch(int begin);

// Begin a run whose pieces of memory, in the order in which they are taken, lie at these offsets of a block of `size`
// bytes; -1: outside of it, -2: wherever there is room. What comes behind the last of them lies outside too.
// A recorded run tells afterwards what it took. 0: the block is taken, and the run has none.
FUSELINE_BLOCK int fuseline_block_begin(int64_t count, const int64_t* bytes, const int64_t* offsets, int64_t size,
                                        int record);
// End it: how many pieces lay in the block, how many found no room there, and how many were recorded.
FUSELINE_BLOCK void fuseline_block_end(int64_t* placed, int64_t* overflowed, int64_t* recorded);
// The pieces that were recorded last.
FUSELINE_BLOCK void fuseline_block_pieces(int64_t* bytes, int64_t* first, int64_t* last);

namespace fuseline {

// What asks for memory in place of the C library's functions, and gives it back.
using TakeMemory = int (*)(void**, size_t alignment, size_t bytes);
using GiveBack = void (*)(void*);

// Have the library that holds `inside` call these for posix_memalign and free; gives those that it called before.
// "" or why that cannot be: then nothing has changed.
std::string interpose(const void* inside, TakeMemory take, GiveBack give_back, TakeMemory* taken, GiveBack* given_back);

}  // namespace fuseline
