"""Random trainable graphs: the same function in torch says what loss and gradients have to be."""
