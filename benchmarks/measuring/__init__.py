"""What all benchmarks share: the arena, the questions, the figures, the targets, their tables."""
