"""The descriptors that tensor-core instructions take, as values one can build, read and print.

==============================  ====================  ==========================================
class                           instruction           PTX ISA
==============================  ====================  ==========================================
:class:`SharedMemoryDescriptor`  ``tcgen05.mma/cp``    9.7.16.4.1, Tables 40 and 41
:class:`WgmmaDescriptor`         ``wgmma.mma_async``   9.7.15.5.1.2.2
:class:`InstructionDescriptor`   ``tcgen05.mma``       9.7.16.4.2, Table 42; shapes: Table 39
==============================  ====================  ==========================================

Every class is frozen and checks its fields when it is made, so one that exists can be encoded. ``encode``
gives the integer that the hardware sees, ``decode`` is its exact inverse, ``str`` lists the fields with
their bits, and ``summary`` is one line for a comment in generated source.

The emulator does not use this package. It decodes descriptors by itself, from the manual, so that a mistake
made here cannot cancel out there.
"""

from __future__ import annotations

from ._fields import DescriptorFieldError
from ._instruction import InstructionDescriptor, MatrixFormat, MmaKind
from ._shared_memory import SharedMemoryDescriptor, SwizzleMode, WgmmaDescriptor

__all__ = [
    "DescriptorFieldError",
    "InstructionDescriptor",
    "MatrixFormat",
    "MmaKind",
    "SharedMemoryDescriptor",
    "SwizzleMode",
    "WgmmaDescriptor",
]
