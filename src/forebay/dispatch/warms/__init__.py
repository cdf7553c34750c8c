"""The variants of the warm tier."""
