// What an operator demands of the shapes of its inputs, and what follows for its outputs.
//
// A shape is a text, the same in the Python record of the operator: axes separated by commas, each
//   3     a size
//   N     a letter: the same size wherever it stands
//   B|1   that size, or 1
//   *R    any number of axes: the same ones wherever *R stands
// and as a whole
//   ""    anything              "1"   one element, in whatever rank; an output has the shape [1]
//   ()    a scalar              …?    or a tensor without elements, which stands for an absent one
//   ^…    what broadcasts to …  …/…   one of two forms; where both fit and say different things, it says nothing
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fuseline {

using Shape = std::vector<int64_t>;

// A size, or -1 with a name that may be empty.
struct Dimension {
  int64_t size = -1;
  std::string symbol;
};
using Dimensions = std::vector<Dimension>;

struct Axis {
  enum Kind { kSize, kSymbol, kSymbolOrOne, kPack } kind;
  int64_t value;  // the size, or the letter's place in the alphabet
};

struct Bindings {
  std::array<std::optional<Dimension>, 26> sizes;
  std::array<std::optional<Dimensions>, 26> packs;
  size_t form = 0;  // that fitted, of several
};

class Pattern {
 public:
  explicit Pattern(const char* text);

  // Whether the shape fits what is bound; binds the letters met for the first time.
  bool match(const Dimensions& shape, Bindings& bindings) const;
  // The shape itself, where every letter is bound.
  std::optional<Dimensions> resolve(const Bindings& bindings) const;
  // "[N] = [4]", for messages.
  std::string expectation(const Bindings& bindings) const;

 private:
  std::vector<std::vector<Axis>> forms_;
  bool anything_ = false, one_element_ = false, may_be_absent_ = false, broadcasts_ = false;
  std::string text_;
};

}  // namespace fuseline
