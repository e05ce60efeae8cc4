"""Kernels that the fixtures are compiled from; importing them needs Triton."""
