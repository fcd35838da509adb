// One block of memory for the values of a run, each at a place found beforehand.
//
// A run on new shapes is recorded: what is taken and given back, in which order; what finds room in the block lies there
// already. Where much more is needed than there is, the block gives back what is free in it, so that it does not come on
// top of what lies outside. From that the caller finds a place for every value, and hands the places over with the next run on such
// shapes. What a run does besides goes where there is room, or outside: it is never wrong, only larger.
//
// Stock ONNX Runtime takes our allocator; of the training build, whose environment is not within reach, the calls of
// posix_memalign and free are ours. Runs that nobody began here take their memory as ever.
#include "block.h"

#include <errno.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

#include "op.h"

// Memory that no counter in front of the C library sees is told to it.
extern "C" __attribute__((weak)) void fuseline_allocations_count(int64_t bytes);

namespace fuseline {
namespace {

constexpr size_t kPage = 4096, kLine = 64;
constexpr size_t kMapped = 1 << 16;  // pieces from here on go back to the system at once, however the heap is cut up
constexpr int64_t kOutside = -1, kAnywhere = -2;
constexpr int64_t kMuchOf = 8;  // an eighth of the block beside it is not worth the page faults of giving it back

struct Piece {
  int64_t bytes, first, last;  // taken and given back at these moments; last is -1 for what outlives the run
};

struct Run {
  bool recording = false, placing = false;
  bool full = false;  // the block has far too little room: what comes lies outside
  std::vector<int64_t> bytes, offsets;
  size_t next = 0;
  int64_t placed = 0, overflowed = 0, moment = 0, beyond = 0;  // bytes outside the block now
  std::vector<Piece> pieces;
  std::unordered_map<void*, size_t> alive;
};

// Of the run in this thread. Plain pointers: memory is given back until after the thread's last breath.
thread_local Run* t_run = nullptr;
thread_local Run* t_recorded = nullptr;

TakeMemory g_take = posix_memalign;
GiveBack g_give_back = std::free;

// Everything that outlives the static objects of this library lies in it, and is never destroyed.
struct Shared {
  std::mutex lock;
  bool taken = false;                          // by the run of some thread
  bool emptying = false;                       // what is free in it goes back to the system
  std::map<char*, size_t> placed;              // what lies in the block now
  std::unordered_map<void*, size_t> mapped;    // what was asked of the system directly
  std::atomic<char*> begin{nullptr}, end{nullptr};
  std::atomic<size_t> mappings{0};
};

Shared& shared() {
  static auto* found = new Shared;
  return *found;
}

size_t rounded(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

void count(int64_t bytes) {
  if (fuseline_allocations_count != nullptr) fuseline_allocations_count(bytes);
}

void* map(size_t bytes) {
  void* found = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (found == MAP_FAILED) return nullptr;
  count(static_cast<int64_t>(bytes));
  return found;
}

void unmap(void* memory, size_t bytes) {
  munmap(memory, bytes);
  count(-static_cast<int64_t>(bytes));
}

// Memory outside the block; nullptr where there is none.
void* outside(size_t bytes, bool give_back) {
  void* found = nullptr;
  if (give_back && bytes >= kMapped) {
    const size_t whole = rounded(bytes, kPage);
    found = map(whole);
    if (found == nullptr) return nullptr;
    const std::lock_guard<std::mutex> lock(shared().lock);
    shared().mapped.emplace(found, whole);
    ++shared().mappings;
  } else if (g_take(&found, kLine, bytes) != 0) {
    return nullptr;
  }
  return found;
}

bool in_block(const void* memory) {
  const auto* place = static_cast<const char*>(memory);
  return place >= shared().begin && place < shared().end;
}

// So many bytes at this offset of the block; nullptr where something lies there.
void* place_at(int64_t offset, size_t bytes) {
  Shared& block = shared();
  const std::lock_guard<std::mutex> lock(block.lock);
  char* begin = block.begin + offset;
  const auto behind = block.placed.lower_bound(begin);
  const bool after = behind == block.placed.end() || behind->first >= begin + bytes;
  const bool before =
      behind == block.placed.begin() || std::prev(behind)->first + std::prev(behind)->second <= begin;
  if (!after || !before || begin + bytes > block.end) return nullptr;
  block.placed.emplace_hint(behind, begin, rounded(bytes, kLine));
  return begin;
}

// So many bytes in the smallest gap of the block that holds them.
void* place_anywhere(size_t bytes) {
  Shared& block = shared();
  const std::lock_guard<std::mutex> lock(block.lock);
  const size_t whole = rounded(bytes, kLine);
  char *found = nullptr, *free_from = block.begin;
  size_t smallest = SIZE_MAX;
  const auto consider = [&](char* until) {
    const auto room = static_cast<size_t>(until - free_from);
    if (room >= whole && room < smallest) found = free_from, smallest = room;
  };
  for (const auto& [begin, taken] : block.placed) {
    consider(begin);
    free_from = begin + taken;
  }
  consider(block.end);
  if (found != nullptr) block.placed.emplace(found, whole);
  return found;
}

// Give the pages between two addresses of the block back to the system, where they come back as zeros when asked for.
void forget(char* from, char* until) {
  char* first = from + (kPage - reinterpret_cast<uintptr_t>(from) % kPage) % kPage;
  char* last = until - reinterpret_cast<uintptr_t>(until) % kPage;
  if (first < last) madvise(first, static_cast<size_t>(last - first), MADV_DONTNEED);
}

// Give back what is free in the block, now and until the run ends.
void empty() {
  Shared& block = shared();
  const std::lock_guard<std::mutex> lock(block.lock);
  block.emptying = true;
  char* free_from = block.begin;
  for (const auto& [begin, taken] : block.placed) {
    forget(free_from, begin);
    free_from = begin + taken;
  }
  forget(free_from, block.end);
}

void* take(Run& run, size_t bytes) {
  const size_t index = run.next++;
  const int64_t offset = index < run.offsets.size() ? run.offsets[index] : kOutside;
  void* found = nullptr;
  if (run.placing && offset != kOutside) {
    if (offset >= 0 && static_cast<int64_t>(bytes) <= run.bytes[index]) found = place_at(offset, bytes);
    if (found == nullptr && !run.full) found = place_anywhere(bytes);
    ++(found != nullptr ? run.placed : run.overflowed);
  }
  // Whether a piece outlives a run is not known in the first one.
  const bool ends = offset != kOutside || run.offsets.empty();
  if (found == nullptr) found = outside(bytes, ends);
  if (found != nullptr && run.recording) {
    run.alive[found] = run.pieces.size();
    run.pieces.push_back({static_cast<int64_t>(bytes), run.moment++, kOutside});
    if (!in_block(found)) run.beyond += static_cast<int64_t>(bytes);
    if (run.placing && !run.full && run.beyond > (shared().end - shared().begin) / kMuchOf) {
      run.full = true;
      empty();
    }
  }
  return found;
}

// Memory may come back long after its run, and in another thread.
void give_back(void* memory) {
  if (memory == nullptr) return;
  if (t_run != nullptr && t_run->recording) {
    const auto found = t_run->alive.find(memory);
    if (found != t_run->alive.end()) {
      Piece& piece = t_run->pieces[found->second];
      piece.last = t_run->moment++;
      t_run->alive.erase(found);
      if (!in_block(memory)) t_run->beyond -= piece.bytes;
    }
  }
  Shared& block = shared();
  if (in_block(memory)) {
    const std::lock_guard<std::mutex> lock(block.lock);
    const auto found = block.placed.find(static_cast<char*>(memory));
    if (found == block.placed.end()) return;
    if (block.emptying) forget(found->first, found->first + found->second);
    block.placed.erase(found);
    return;
  }
  if (block.mappings > 0 && reinterpret_cast<uintptr_t>(memory) % kPage == 0) {
    const std::lock_guard<std::mutex> lock(block.lock);
    const auto found = block.mapped.find(memory);
    if (found != block.mapped.end()) {
      unmap(memory, found->second);
      block.mapped.erase(found);
      --block.mappings;
      return;
    }
  }
  g_give_back(memory);
}

// -- for a runtime that takes an allocator

void* allocate(abi::Allocator*, size_t bytes) {
  if (bytes == 0) return nullptr;
  void* found = t_run != nullptr ? take(*t_run, bytes) : outside(bytes, false);
  // The runtime takes no null pointer: as with its own allocator, there is an exception.
  if (found == nullptr) throw std::bad_alloc();
  return found;
}

void release(abi::Allocator*, void* memory) { give_back(memory); }

OrtMemoryInfo* g_info = nullptr;
const OrtMemoryInfo* info(const abi::Allocator*) { return g_info; }
abi::Allocator g_allocator{abi::kApiVersion, allocate, release, info, nullptr};

// -- for one that takes none

// Where the runtime's own allocator asks for memory. Others in its library do so too, and may give it back by an
// address of `free` that they noted long before: what they take is none of ours.
std::atomic<void*> g_asked_from{nullptr};
thread_local bool t_watching = false;

int take_aligned(void** result, size_t alignment, size_t bytes) {
  void* from = __builtin_return_address(0);
  if (t_watching) g_asked_from = from;
  if (t_run == nullptr || from != g_asked_from || alignment > kLine || bytes == 0)
    return g_take(result, alignment, bytes);
  *result = take(*t_run, bytes);
  return *result != nullptr ? 0 : ENOMEM;
}

std::string reason(OrtStatus* status) {
  if (status == nullptr) return "";
  const std::string text = abi::call(runtime(), abi::GetErrorMessage{}, status);
  abi::call(runtime(), abi::ReleaseStatus{}, status);
  return text;
}

std::string install() {
  if (runtime() == nullptr) return "no session has been made yet";
  OrtEnv* environment = nullptr;  // the one there is, for the rest of the process
  std::string failed = reason(abi::call(runtime(), abi::CreateEnv{}, abi::kFatal, "fuseline", &environment));
  if (!failed.empty()) return interpose(runtime()[0], take_aligned, give_back, &g_take, &g_give_back);
  failed = reason(abi::call(runtime(), abi::CreateCpuMemoryInfo{}, abi::kDeviceAllocator, 0, &g_info));
  if (failed.empty()) failed = reason(abi::call(runtime(), abi::RegisterAllocator{}, environment, &g_allocator));
  return failed;
}

// A block of so many bytes at least; whoever calls has the lock, and nothing lies in the block.
bool make_room(size_t bytes) {
  Shared& block = shared();
  char* begin = block.begin;
  const auto had = static_cast<size_t>(block.end - begin);
  if (bytes <= had) return had > 0;
  if (begin != nullptr) unmap(begin, had);
  begin = static_cast<char*>(map(rounded(bytes, kPage)));
  block.begin = begin;
  block.end = begin != nullptr ? begin + rounded(bytes, kPage) : nullptr;
  return begin != nullptr;
}

}  // namespace
}  // namespace fuseline

using namespace fuseline;

const char* fuseline_block_install() {
  static const std::string failed = install();
  return failed.c_str();
}

int fuseline_block_watch(int begin) {
  t_watching = begin != 0;
  return g_info != nullptr || g_asked_from != nullptr;
}

int fuseline_block_begin(int64_t count, const int64_t* bytes, const int64_t* offsets, int64_t size, int record) {
  Shared& block = shared();
  auto run = std::make_unique<Run>();
  run->recording = record != 0;
  run->bytes.assign(bytes, bytes + count);
  run->offsets.assign(offsets, offsets + count);
  {
    // Not where another thread runs, or something of an earlier run is still there.
    const std::lock_guard<std::mutex> lock(block.lock);
    run->placing = !block.taken && block.placed.empty() && make_room(static_cast<size_t>(size));
    block.taken |= run->placing;
  }
  t_run = run.release();
  return t_run->placing;
}

void fuseline_block_end(int64_t* placed, int64_t* overflowed, int64_t* recorded) {
  std::unique_ptr<Run> run(t_run);
  t_run = nullptr;
  *placed = run->placed;
  *overflowed = run->overflowed;
  *recorded = static_cast<int64_t>(run->pieces.size());
  if (run->placing) {
    const std::lock_guard<std::mutex> lock(shared().lock);
    shared().taken = shared().emptying = false;
  }
  delete t_recorded;
  t_recorded = run->recording ? run.release() : nullptr;
}

void fuseline_block_pieces(int64_t* bytes, int64_t* first, int64_t* last) {
  const std::unique_ptr<Run> run(t_recorded);
  t_recorded = nullptr;
  for (const Piece& piece : run->pieces) {
    *bytes++ = piece.bytes;
    *first++ = piece.first;
    *last++ = piece.last;
  }
}
