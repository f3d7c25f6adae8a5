"""Compiled arithmetic of the CPU's kernels."""
