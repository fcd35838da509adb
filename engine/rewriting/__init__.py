"""How passes change graphs: the rewriter, what builds nodes, and the shapes that rewrites take."""
