"""How a graph is run: its plan, the sessions, the memory that it works on, and who feeds it."""
