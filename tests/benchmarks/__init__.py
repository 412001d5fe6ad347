"""Tests of the benchmarks' tools; what they measure is no test's business."""
