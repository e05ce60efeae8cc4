"""What the instructions do, by chapter of the PTX ISA."""
