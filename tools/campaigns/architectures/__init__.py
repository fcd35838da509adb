"""The architectures of the zoo, by what they read."""
