#pragma once
#include "op.h"

namespace fuseline {

Definitions optimizer_definitions();
Definitions norm_definitions();
Definitions gelu_definitions();

}  // namespace fuseline
