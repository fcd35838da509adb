"""How things are measured: in turns, with intervals, and in processes of their own where memory counts."""
