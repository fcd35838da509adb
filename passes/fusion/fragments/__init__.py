"""Pieces of patterns that several fusions share."""
