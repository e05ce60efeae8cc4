"""Conformance of the emulator with what other compilers emit."""
