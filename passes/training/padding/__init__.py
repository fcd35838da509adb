"""How `eliminate-padding` finds the tokens that are computed, and computes with them alone."""
