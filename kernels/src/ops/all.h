#pragma once
#include "op.h"

namespace fuseline {

Definitions optimizer_definitions();
Definitions norm_definitions();
Definitions gelu_definitions();
Definitions embedding_definitions();
Definitions cross_entropy_definitions();
Definitions row_definitions();

}  // namespace fuseline
