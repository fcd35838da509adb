// How a node's dropout is keyed: one seed per step, one stream per node.
#pragma once
#include "compute/kernels.h"
#include "op.h"

namespace fuseline {

inline int64_t dropout_key(int64_t seed, int64_t stream) {
  uint64_t x = static_cast<uint64_t>(seed) + static_cast<uint64_t>(stream + 1) * 0xD1342543DE82EF95ull;
  x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93ull;
  x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93ull;
  return static_cast<int64_t>(x ^ (x >> 32));
}

inline Dropout dropout_of(float ratio, int64_t key) {
  require(ratio >= 0 && ratio < 1, "ratio must be in [0, 1), not " + std::to_string(ratio));
  const double threshold = static_cast<double>(ratio) * 4294967296.0;
  return {static_cast<uint64_t>(key), static_cast<uint32_t>(threshold), 1.0f / (1.0f - ratio)};
}

}  // namespace fuseline
