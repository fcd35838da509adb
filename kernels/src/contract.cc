#include "contract.h"

#include <cstdlib>

namespace fuseline {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end = text.find(separator); end != std::string::npos; end = text.find(separator, begin)) {
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  parts.push_back(text.substr(begin));
  return parts;
}

Axis parse_axis(const std::string& text) {
  if (text[0] == '*') return {Axis::kPack, text[1] - 'A'};
  if (text[0] >= '0' && text[0] <= '9') return {Axis::kSize, std::atoll(text.c_str())};
  return {text.size() > 1 ? Axis::kSymbolOrOne : Axis::kSymbol, text[0] - 'A'};
}

// Sizes that are not known yet agree with everything, and learn.
bool agree(Dimension& bound, const Dimension& found) {
  if (bound.size >= 0 && found.size >= 0) return bound.size == found.size;
  if (bound.size < 0 && (found.size >= 0 || bound.symbol.empty())) bound = found;
  return true;
}

bool bind(std::optional<Dimension>& bound, const Dimension& found) {
  if (bound) return agree(*bound, found);
  bound = found;
  return true;
}

bool bind_pack(std::optional<Dimensions>& bound, Dimensions found) {
  if (!bound) {
    bound = std::move(found);
    return true;
  }
  if (bound->size() != found.size()) return false;
  for (size_t axis = 0; axis < found.size(); ++axis)
    if (!agree((*bound)[axis], found[axis])) return false;
  return true;
}

bool bind_axis(const Axis& axis, const Dimension& found, Bindings& bindings) {
  if (axis.kind == Axis::kSize) return found.size < 0 || found.size == axis.value;
  if (axis.kind == Axis::kSymbolOrOne && found.size == 1) return true;
  return bind(bindings.sizes[axis.value], found);
}

bool match_form(const std::vector<Axis>& form, const Dimensions& shape, Bindings& bindings) {
  size_t next = 0;
  for (size_t index = 0; index < form.size(); ++index) {
    const size_t after = form.size() - index - 1;
    if (shape.size() < next + after + (form[index].kind == Axis::kPack ? 0 : 1)) return false;
    if (form[index].kind == Axis::kPack) {
      const Dimensions pack(shape.begin() + next, shape.end() - after);
      if (!bind_pack(bindings.packs[form[index].value], pack)) return false;
      next = shape.size() - after;
    } else if (!bind_axis(form[index], shape[next++], bindings)) {
      return false;
    }
  }
  return next == shape.size();
}

bool match_broadcast(const std::vector<Axis>& form, const Dimensions& shape, Bindings& bindings) {
  if (shape.size() > form.size()) return false;
  const size_t missing = form.size() - shape.size();
  for (size_t axis = 0; axis < shape.size(); ++axis)
    if (shape[axis].size != 1 && !bind_axis(form[missing + axis], shape[axis], bindings)) return false;
  return true;
}

bool may_have_elements(const Dimensions& shape, int64_t count) {
  for (const Dimension& dimension : shape) {
    if (dimension.size < 0) return true;
    if (dimension.size != count) return false;
  }
  return true;
}

bool empty(const Dimensions& shape) {
  for (const Dimension& dimension : shape)
    if (dimension.size == 0) return true;
  return false;
}

bool same(const Bindings& a, const Bindings& b) {
  for (size_t letter = 0; letter < a.sizes.size(); ++letter) {
    if (a.sizes[letter].has_value() != b.sizes[letter].has_value()) return false;
    if (a.sizes[letter] && (a.sizes[letter]->size != b.sizes[letter]->size ||
                            a.sizes[letter]->symbol != b.sizes[letter]->symbol))
      return false;
  }
  return true;
}

std::string text_of(const Dimension& dimension, const std::string& unknown) {
  if (dimension.size >= 0) return std::to_string(dimension.size);
  return dimension.symbol.empty() ? unknown : dimension.symbol;
}

}  // namespace

Pattern::Pattern(const char* text) : text_(text) {
  std::string rest = text_;
  anything_ = rest.empty();
  one_element_ = rest == "1";
  if (!rest.empty() && rest.back() == '?') {
    may_be_absent_ = true;
    rest.pop_back();
  }
  if (!rest.empty() && rest[0] == '^') {
    broadcasts_ = true;
    rest.erase(0, 1);
  }
  text_ = rest;
  if (anything_) return;
  for (const std::string& form : split(rest, '/')) {
    forms_.emplace_back();
    if (form == "()") continue;
    for (const std::string& axis : split(form, ',')) forms_.back().push_back(parse_axis(axis));
  }
}

bool Pattern::match(const Dimensions& shape, Bindings& bindings) const {
  if (anything_ || (may_be_absent_ && empty(shape))) return true;
  if (one_element_) return may_have_elements(shape, 1);
  const auto fits = [&](size_t form, Bindings& into) {
    return broadcasts_ ? match_broadcast(forms_[form], shape, into) : match_form(forms_[form], shape, into);
  };
  if (forms_.size() == 1) return fits(0, bindings);
  Bindings first = bindings, second = bindings;
  const bool fits_first = fits(0, first), fits_second = fits(1, second);
  if (!fits_first && !fits_second) return false;
  if (fits_first && fits_second && !same(first, second)) return true;
  bindings = std::move(fits_first ? first : second);
  bindings.form = fits_first ? 0 : 1;
  return true;
}

std::optional<Dimensions> Pattern::resolve(const Bindings& bindings) const {
  if (forms_.empty() || may_be_absent_ || broadcasts_) return std::nullopt;
  Dimensions result;
  for (const Axis& axis : forms_[forms_.size() > 1 ? bindings.form : 0]) {
    if (axis.kind == Axis::kSize) {
      result.push_back({axis.value, ""});
    } else if (axis.kind == Axis::kPack) {
      const std::optional<Dimensions>& pack = bindings.packs[axis.value];
      if (!pack) return std::nullopt;
      result.insert(result.end(), pack->begin(), pack->end());
    } else {
      if (!bindings.sizes[axis.value]) return std::nullopt;
      result.push_back(*bindings.sizes[axis.value]);
    }
  }
  return result;
}

std::string Pattern::expectation(const Bindings& bindings) const {
  if (one_element_) return "one element";
  std::string result = broadcasts_ ? "what broadcasts to " : "";
  for (size_t form = 0; form < forms_.size(); ++form) {
    std::string names, sizes;
    for (const Axis& axis : forms_[form]) {
      const std::string letter = axis.kind == Axis::kSize ? std::to_string(axis.value) : std::string(1, 'A' + axis.value);
      const std::string name = axis.kind == Axis::kPack         ? "*" + letter
                               : axis.kind == Axis::kSymbolOrOne ? letter + "|1"
                                                                 : letter;
      names += (names.empty() ? "" : ",") + name;
      std::string size = name;
      if (axis.kind == Axis::kPack && bindings.packs[axis.value]) {
        size.clear();
        for (const Dimension& dimension : *bindings.packs[axis.value])
          size += (size.empty() ? "" : ",") + text_of(dimension, "?");
        if (size.empty()) continue;
      } else if (axis.kind == Axis::kSymbol && bindings.sizes[axis.value]) {
        size = text_of(*bindings.sizes[axis.value], letter);
      }
      sizes += (sizes.empty() ? "" : ",") + size;
    }
    result += (form > 0 ? " or [" : "[") + names + "]" + (sizes == names ? "" : " = [" + sizes + "]");
  }
  return result + (may_be_absent_ ? ", or no elements" : "");
}

}  // namespace fuseline
