// Operands of products in bf16: rounded to the nearest (ties to even) and laid out as the product reads them, pairs of
// neighbours along the depth side by side in 32 bits.
#include "compute/bf16.h"

namespace fuseline::FUSELINE_ISA {
namespace {

typedef uint32_t Words __attribute__((vector_size(64)));
typedef uint16_t Halves __attribute__((vector_size(32)));
typedef uint64_t Doubles __attribute__((vector_size(64)));
typedef uint32_t EightWords __attribute__((vector_size(32)));
constexpr int64_t kWords = 16;

// The upper half of each word becomes the nearest bf16, the lower half zero.
FL_INLINE Words rounded(Words bits) {
  const Words nearest = bits + 0x7FFFu + ((bits >> 16) & 1u);
  return ((bits & 0x7FFFFFFFu) > 0x7F800000u ? bits | 0x00400000u : nearest) & 0xFFFF0000u;
}

uint32_t rounded(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (bits | 0x00400000u) & 0xFFFF0000u;
  return (bits + 0x7FFFu + ((bits >> 16) & 1u)) & 0xFFFF0000u;
}

FL_INLINE Words load_words(const void* from) {
  Words value;
  memcpy(&value, from, sizeof value);
  return value;
}

// Eight pairs of sixteen floats.
FL_INLINE EightWords pairs_of(const float* from) {
  const Doubles both = (Doubles)rounded(load_words(from));
  return __builtin_convertvector((both >> 16 & 0xFFFFull) | (both >> 32), EightWords);
}

FL_INLINE Words sixteen_pairs(const float* from) {
  const EightWords low = pairs_of(from), high = pairs_of(from + kWords);
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

uint32_t pair_at(const Bf16Pack& a, int64_t item, int64_t pair) {
  uint32_t halves[2] = {};
  for (int64_t i = 0; i < 2 && 2 * pair + i < a.depth; ++i) {
    const int64_t k = 2 * pair + i, at = a.along_rows ? item * a.stride + k : k * a.stride + item;
    halves[i] = a.from_bf16 != nullptr ? static_cast<uint32_t>(a.from_bf16[at]) << 16 : rounded(a.from[at]);
  }
  return halves[0] >> 16 | halves[1];
}

// Four rows of sixteen pairs become columns of four, `width` apart.
FL_INLINE void store_transposed(const Words row[4], uint32_t* to, int64_t width) {
  const Words ab_low = __builtin_shufflevector(row[0], row[1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
  const Words ab_high =
      __builtin_shufflevector(row[0], row[1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
  const Words cd_low = __builtin_shufflevector(row[2], row[3], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
  const Words cd_high =
      __builtin_shufflevector(row[2], row[3], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
  const Words column[4] = {
      __builtin_shufflevector(ab_low, cd_low, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29),
      __builtin_shufflevector(ab_low, cd_low, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31),
      __builtin_shufflevector(ab_high, cd_high, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29),
      __builtin_shufflevector(ab_high, cd_high, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)};
#pragma GCC unroll 4
  for (int64_t lane = 0; lane < 4; ++lane)
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i)
      memcpy(to + (4 * lane + i) * width, reinterpret_cast<const uint32_t*>(&column[i]) + 4 * lane, 16);
}

// Items whose depth is contiguous, four at a time.
void pack_rows(const Bf16Pack& a, int64_t first, int64_t count, uint32_t* to, int64_t width) {
  const int64_t pairs = pairs_in(a.depth), whole = a.depth / (2 * kWords) * kWords;
  for (int64_t item = 0; item < width; item += 4) {
    const bool full = item + 4 <= count && a.from != nullptr;
    for (int64_t pair = 0; full && pair < whole; pair += kWords) {
      Words row[4];
#pragma GCC unroll 4
      for (int64_t i = 0; i < 4; ++i) {
        const int64_t at = (first + item + i) * a.stride + 2 * pair;
        row[i] = sixteen_pairs(a.from + at);
        if (a.copy != nullptr) memcpy(a.copy + at, &row[i], sizeof row[i]);
      }
      store_transposed(row, to + pair * width + item, width);
    }
    for (int64_t i = item; i < item + 4; ++i)
      for (int64_t pair = full ? whole : 0; pair < pairs; ++pair)
        to[pair * width + i] = i < count ? pair_at(a, first + i, pair) : 0;
    for (int64_t i = item; a.copy != nullptr && i < min(item + 4, count); ++i)
      for (int64_t k = full ? 2 * whole : 0; k < a.depth; ++k) {
        const int64_t at = (first + i) * a.stride + k;
        a.copy[at] = static_cast<uint16_t>(rounded(a.from[at]) >> 16);
      }
  }
}

FL_INLINE Words words_of(const Bf16Pack& a, int64_t k, int64_t item) {
  if (a.from_bf16 == nullptr) return rounded(load_words(a.from + k * a.stride + item));
  Halves halves;
  memcpy(&halves, a.from_bf16 + k * a.stride + item, sizeof halves);
  return __builtin_convertvector(halves, Words) << 16;
}

// Items that lie side by side, their depth apart: two rows of memory at a time give the pairs of all of them.
void pack_columns(const Bf16Pack& a, int64_t first, int64_t count, uint32_t* to, int64_t width) {
  const int64_t whole = a.depth / 2, pairs = pairs_in(a.depth), block = pairs * width;
  for (int64_t pair = 0; pair < whole; ++pair)
    for (int64_t item = 0; item < count; item += kWords) {
      // A vector may reach over into the next block, or out of this chunk into memory that is there all the same.
      if (first + item + kWords > a.items) {
        for (int64_t i = item; i < count; ++i) to[i / width * block + pair * width + i % width] = pair_at(a, first + i, pair);
        break;
      }
      const Words both = words_of(a, 2 * pair, first + item) >> 16 | words_of(a, 2 * pair + 1, first + item);
      uint32_t lanes[kWords];
      memcpy(lanes, &both, sizeof lanes);
      for (int64_t i = 0; i < kWords && item + i < count;) {
        const int64_t column = (item + i) % width, run = min(min(width - column, kWords - i), count - item - i);
        memcpy(to + (item + i) / width * block + pair * width + column, lanes + i, sizeof(uint32_t) * run);
        i += run;
      }
    }
  for (int64_t pair = whole; pair < pairs; ++pair)
    for (int64_t i = 0; i < count; ++i) to[i / width * block + pair * width + i % width] = pair_at(a, first + i, pair);
}

}  // namespace

int64_t bf16_pack_size(const Bf16Pack& a, int64_t begin, int64_t end) {
  const int64_t width = a.left ? kLeftRows : kPanel;
  return (end - begin + width - 1) / width * width * pairs_in(a.depth);
}

void bf16_pack(const Bf16Pack& a, int64_t begin, int64_t end) {
  const int64_t width = a.left ? kLeftRows : kPanel, pairs = pairs_in(a.depth), count = min(end, a.items) - begin;
  uint32_t* to = a.to + begin * pairs;
  if (a.along_rows) {
    for (int64_t item = 0; item < count; item += width)
      pack_rows(a, begin + item, min(width, count - item), to + item * pairs, width);
    return;
  }
  if (count % width != 0) memset(to + count / width * width * pairs, 0, sizeof(uint32_t) * width * pairs);
  pack_columns(a, begin, count, to, width);
}

}  // namespace fuseline::FUSELINE_ISA
