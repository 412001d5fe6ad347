"""The parts that all benchmarks share: arena, command line, figures, targets, tables."""
