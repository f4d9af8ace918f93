"""One script for each table and figure, and the benchmarks."""
