"""The cells over a sequence with the pointwise part of a step in C, on the CPU."""
