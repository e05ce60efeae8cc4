"""Where the state spaces lie among generic addresses (this emulator's choice; programs must not depend on it)."""

from __future__ import annotations

__all__ = ["LOCAL_WINDOW", "PARAM_WINDOW", "SHARED_WINDOW", "WINDOW_SIZE"]

WINDOW_SIZE = 1 << 32
PARAM_WINDOW = 0x7D00_0000_0000
LOCAL_WINDOW = 0x7E00_0000_0000
SHARED_WINDOW = 0x7F00_0000_0000
