"""Decode on a CUDA device: a paged pool, a work list per form, selection, attention and storing, all under a graph."""
