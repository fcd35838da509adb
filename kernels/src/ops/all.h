#pragma once
#include "op.h"

namespace fuseline {

Definitions optimizer_definitions();
Definitions norm_definitions();
Definitions gelu_definitions();
Definitions embedding_definitions();
Definitions embedding_rows_definitions();
Definitions cross_entropy_definitions();
Definitions linear_loss_definitions();
Definitions row_definitions();
Definitions weight_gradient_definitions();
Definitions attention_definitions();
Definitions attention_rows_definitions();
Definitions linear_definitions();

}  // namespace fuseline
