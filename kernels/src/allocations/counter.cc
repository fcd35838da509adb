// Counts what a process takes from malloc, for measurements of peaks: loaded in front of the C library (LD_PRELOAD).
//
// Every contender is measured by the same counter, whatever allocator it has on top. Large pieces only differ from what
// was asked for by the rounding of pages, so that predictions can be compared to the byte count.
#include <errno.h>
#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
}

namespace {

std::atomic<int64_t> g_live{0}, g_peak{0};

void counted(int64_t bytes) {
  const int64_t live = g_live += bytes;
  int64_t peak = g_peak.load(std::memory_order_relaxed);
  while (live > peak && !g_peak.compare_exchange_weak(peak, live)) {
  }
}

void* taken(void* pointer) {
  if (pointer != nullptr) counted(static_cast<int64_t>(malloc_usable_size(pointer)));
  return pointer;
}

void given_back(void* pointer) {
  if (pointer != nullptr) g_live -= static_cast<int64_t>(malloc_usable_size(pointer));
}

}  // namespace

#define FUSELINE_EXPORT extern "C" __attribute__((visibility("default")))

FUSELINE_EXPORT void* malloc(size_t size) { return taken(__libc_malloc(size)); }
FUSELINE_EXPORT void* calloc(size_t count, size_t size) { return taken(__libc_calloc(count, size)); }
FUSELINE_EXPORT void* memalign(size_t alignment, size_t size) { return taken(__libc_memalign(alignment, size)); }
FUSELINE_EXPORT void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

FUSELINE_EXPORT int posix_memalign(void** result, size_t alignment, size_t size) {
  void* pointer = memalign(alignment, size);
  if (pointer == nullptr) return ENOMEM;
  *result = pointer;
  return 0;
}

FUSELINE_EXPORT void* realloc(void* pointer, size_t size) {
  given_back(pointer);
  void* moved = __libc_realloc(pointer, size);
  // What could not grow is still there.
  if (moved == nullptr && size != 0) return taken(pointer), nullptr;
  return taken(moved);
}

FUSELINE_EXPORT void free(void* pointer) {
  given_back(pointer);
  __libc_free(pointer);
}

// Memory that does not come from malloc, told by whoever takes it: positive, and negative when it is given back.
FUSELINE_EXPORT void fuseline_allocations_count(int64_t bytes) { counted(bytes); }

// Bytes alive now.
FUSELINE_EXPORT int64_t fuseline_allocations_live() { return g_live.load(); }
// The most that was alive since the last call of `fuseline_allocations_begin`.
FUSELINE_EXPORT int64_t fuseline_allocations_peak() { return g_peak.load(); }
FUSELINE_EXPORT void fuseline_allocations_begin() { g_peak = g_live.load(); }
