"""Compile the conformance kernels with Triton and keep their PTX as fixtures.

    python tests/conformance/generate.py [NAME ...]

Needs ``triton`` and no GPU. It writes ``fixtures/*.ptx`` and ``fixtures/manifest.json``; the tests read only these.
A name regenerates only the fixtures that begin with it, into the same manifest.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from kernels.spec import Const, Scalar, Spec, Tiles  # noqa: E402

FIXTURES = HERE / "fixtures"


def build(spec: Spec) -> tuple[str, dict[str, Any]]:
    """Compile, and describe the launch."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource

    signature: dict[str, str] = {}
    constants: dict[str, Any] = {}
    attributes: dict[tuple[int, ...], list[Any]] = {}
    for index, (name, argument) in enumerate(spec.arguments.items()):
        if isinstance(argument, Const):
            signature[name] = "constexpr"
            constants[name] = argument.value
            continue
        if isinstance(argument, Tiles):
            block = ",".join(map(str, argument.block))
            layout = "" if argument.layout is None else f",{argument.layout!r}"
            signature[name] = f"tensordesc<{argument.dtype}[{block}]{layout}>"
            continue
        signature[name] = argument.kind if isinstance(argument, Scalar) else argument
        by_16 = not isinstance(argument, Scalar) or (argument.kind.startswith("i") and argument.value % 16 == 0)
        if by_16:
            attributes[index,] = [["tt.divisibility", 16]]
    gluon = spec.kernel.is_gluon()
    source = (GluonASTSource if gluon else ASTSource)(spec.kernel, signature, constants, attributes)
    compiled = triton.compile(source, target=GPUTarget("cuda", spec.arch, 32), options=spec.options)
    meta = compiled.metadata
    maps = iter(meta.tensordesc_meta or ())
    parameters: list[dict[str, Any]] = []
    for name, argument in spec.arguments.items():
        if isinstance(argument, Const):
            continue
        if isinstance(argument, Scalar):
            parameters.append({"scalar": argument.value, "type": argument.kind, "name": name})
        elif isinstance(argument, Tiles):
            layout = next(maps)
            parameters.append(
                {
                    "tiles": argument.array,
                    "box": list(layout["block_size"]),
                    "swizzle": int(layout["swizzle"]),
                    "fp4_padded": bool(layout["fp4_padded"]),
                }
            )
            rank = len(argument.shape)
            strides = [1]
            for extent in argument.shape[:0:-1]:
                strides.insert(0, strides[0] * extent)
            parameters += [{"scalar": n, "type": "i32", "name": f"{name}.shape"} for n in argument.shape]
            parameters += [{"scalar": strides[i], "type": "i64", "name": f"{name}.stride"} for i in range(rank)]
        else:
            parameters.append({"array": name, "type": argument})
    parameters += [{"scratch": meta.global_scratch_size}, {"scratch": meta.profile_scratch_size}]
    text = shorten(compiled.asm["ptx"])
    grid = (*spec.grid, 1, 1)[:3]
    return text, {
        "name": spec.name,
        "file": f"{spec.name}.ptx",
        "compiler": f"{'Gluon' if gluon else 'Triton'} {triton.__version__}",
        "arch": f"sm_{spec.arch}a",
        "entry": meta.name,
        "grid": [grid[0] * meta.num_ctas, *grid[1:]],
        "cluster": [meta.num_ctas, 1, 1],
        "block": [32 * meta.num_warps, 1, 1],
        "shared_bytes": meta.shared,
        "parameters": parameters,
        "family": spec.family,
        "problem": spec.problem,
        "slow": spec.slow,
    }


def shorten(text: str) -> str:
    """Without debug information, comments and blank lines."""
    text = re.sub(r"^\s*\.section\b[^\n]*\n\s*\{.*?^\s*\}", "", text, flags=re.DOTALL | re.MULTILINE)
    lines = []
    for line in text.splitlines():
        bare = re.sub(r"\s*//.*$", "", line).rstrip()
        words = bare.split()
        if (
            words
            and words[0] not in (".loc", ".file")
            and not re.fullmatch(r"\$L__(tmp|func_end|func_begin)\d+:", bare)
        ):
            lines.append(bare)
    return "\n".join(lines) + "\n"


def main(prefixes: list[str]) -> None:
    """Write the fixtures."""
    import triton

    triton.knobs.compilation.disable_line_info = True
    from kernels import specs

    print(f"Triton {triton.__version__}")
    FIXTURES.mkdir(exist_ok=True)
    path = FIXTURES / "manifest.json"
    known = {entry["name"]: entry for entry in json.loads(path.read_text())} if path.exists() else {}
    wanted = {spec.name: spec for spec in specs.everything()}
    total = 0
    for name, spec in wanted.items():
        if prefixes and not name.startswith(tuple(prefixes)):
            continue
        text, known[name] = build(spec)
        (FIXTURES / f"{name}.ptx").write_text(text)
        total += len(text)
        print(f"{name:56} {len(text) / 1024:7.1f} KiB  {text.count(';'):6} statements")
    if not prefixes:
        for stale in set(known) - set(wanted):
            del known[stale]
        for file in FIXTURES.glob("*.ptx"):
            if file.stem not in known:
                file.unlink()
    entries = [known[name] for name in sorted(known)]
    path.write_text("[\n" + ",\n".join(json.dumps(entry) for entry in entries) + "\n]\n")
    print(f"{len(entries)} fixtures, {total / 1024:.0f} KiB of PTX written")


if __name__ == "__main__":
    main(sys.argv[1:])
