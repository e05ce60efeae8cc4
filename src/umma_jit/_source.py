"""Config → `KernelSource`: find the templates, render one with Jinja, say how to compile the result.

The rules of the templates, enforced here:

- The context is one object, ``cfg``; a misspelt field is an error (``StrictUndefined``), never an empty string.
- ``{{ raw("include/math.cuh") }}`` inserts a plain CUDA header byte for byte. It is not parsed: Jinja would read the
  ``{{0}}`` of a C++ initialiser as an expression and silently write ``0``.
- Booleans render as ``true`` and ``false``, integers and strings as themselves. Anything else (a float, whose digits
  would be Python's choice, ``None``, a list, an enum) is refused: the config says how it is spelt in C++.
- A line that begins with ``//%`` is a control line: ``//% if cfg.causal``.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Protocol

from ._arch import parse_arch
from ._settings import settings
from .errors import TemplateError

if TYPE_CHECKING:
    import jinja2

__all__ = ["KernelConfig", "KernelSource", "render", "templates_directory"]


class KernelConfig(Protocol):
    """What `render` needs of a config; the rest of its fields are between it and its template."""

    @property
    def template(self) -> str:
        """Path of the template below ``templates/``, such as ``"sm100a/attention_fwd.cu.jinja"``."""

    @property
    def entry(self) -> str:
        """Name of the ``extern "C"`` kernel that the template defines."""


@dataclass(frozen=True, kw_only=True)
class KernelSource:
    """A rendered source, and how to compile it.

    Attributes
    ----------
    text : str
        CUDA C++ that includes nothing.
    entry : str
        The kernel's name, not mangled.
    arch : str
        The full target, such as ``"sm_100a"``.
    options : tuple of str
        NVRTC's options, without the target, which depends on the kind of image wanted.
    """

    text: str
    entry: str
    arch: str
    options: tuple[str, ...]

    @property
    def file_name(self) -> str:
        """The name under which the compiler, and so its messages, know this source."""
        return f"{self.entry}.cu"

    def excerpt(self, line: int, context: int = 3) -> str:
        """Return the numbered lines around one line, which is marked.

        Parameters
        ----------
        line : int
            Counted from 1.
        context : int
            How many neighbours to show on each side.
        """
        return numbered_excerpt(self.text, line, context)


_BACK = "#line"
"""Where an inserted header ends, until :func:`render` knows the line."""


def numbered_excerpt(text: str, line: int, context: int = 3) -> str:
    """Return the numbered lines of `text` around `line` (counted from 1), which is marked with ``>``."""
    lines = text.splitlines()
    first, last = max(1, line - context), min(len(lines), line + context)
    return "\n".join(
        f"{'>' if number == line else ' '} {number:5d} | {lines[number - 1]}" for number in range(first, last + 1)
    )


@functools.cache
def templates_directory() -> Path:
    """Return the directory that holds the templates.

    A wheel carries them inside the package; an editable install or a checkout has them beside ``src/``.

    Raises
    ------
    TemplateError
        Neither is there.
    """
    package = Path(__file__).resolve().parent
    candidates = (package / "templates", package.parents[1] / "templates")
    for candidate in candidates:
        if candidate.is_dir():
            return candidate
    looked = " and ".join(str(candidate) for candidate in candidates)
    raise TemplateError("templates/", f"not found; looked in {looked}. Install umma-jit again")


def render(config: KernelConfig, arch: str) -> KernelSource:
    """Render the template of a config for one architecture.

    Parameters
    ----------
    config : KernelConfig
        Becomes ``cfg`` in the template, and is all that the template sees.
    arch : str
        The full target, such as ``"sm_100a"``.

    Raises
    ------
    UnsupportedArchError
        `arch` is not a full name that is known.
    TemplateError
        The template is missing, is no valid template, or asks for something that the config does not have.
    """
    parse_arch(arch)
    text = _number_lines(render_text(config.template, config), f"{config.entry}.cu")
    return KernelSource(text=text, entry=config.entry, arch=arch, options=compile_options())


def _number_lines(text: str, file_name: str) -> str:
    """Complete the ``#line`` directives: what follows an inserted header counts as lines of the rendered source."""
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if line == _BACK:
            lines[number - 1] = f'#line {number + 1} "{file_name}"'
    return "\n".join(lines)


def compile_options() -> tuple[str, ...]:
    """Return NVRTC's options for every kernel here, without the target."""
    # Everything is device code: `-default-device` spares the headers a __device__ on each function.
    options = ("--std=c++17", "-default-device")
    return (*options, "-lineinfo") if settings().lineinfo else options


def render_text(template: str, config: object) -> str:
    """Render one template with ``cfg`` as its context; see `render` for what it raises."""
    import jinja2

    environment = _environment(templates_directory())
    try:
        return environment.get_template(template).render(cfg=config)
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(error.name or template, error.message or "syntax error", error.lineno) from error
    except jinja2.TemplateNotFound as error:
        raise TemplateError(template, f"no such file: {error.name}") from error
    except (jinja2.TemplateError, TypeError, AttributeError) as error:
        line = _template_line(error, template)
        raise TemplateError(template, str(error), line) from error


def _template_line(error: BaseException, template: str) -> int | None:
    """Return the template's line in which an exception arose: Jinja rewrites tracebacks to name it."""
    line = None
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename.endswith(template):
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line


@functools.cache
def _environment(root: Path) -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(root),
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        line_statement_prefix="//%",
        autoescape=False,  # noqa: S701 - the output is CUDA, which HTML escapes would break
    )
    environment.globals.clear()  # `range`, `lipsum`, … : loops belong in C++, where the compiler sees them
    environment.globals["raw"] = functools.partial(_raw, root)
    return environment


def _raw(root: Path, path: str) -> str:
    """Return a file's text as it is; the global ``raw`` of the templates.

    It stands between ``#line`` directives, so that the compiler's messages and line information name the file itself.
    """
    relative = PurePosixPath(path)
    if relative.is_absolute() or ".." in relative.parts:
        raise TypeError(f"raw({path!r}): expected a path below templates/")
    try:
        text = (root / relative).read_text(encoding="utf-8")
    except OSError as error:
        raise TypeError(f"raw({path!r}): {error.strerror or error}") from error
    return f'#line 1 "{path}"\n{text}{_BACK}'


def _finalize(value: Any) -> Any:
    """Spell a value in C++, or refuse it; called by Jinja for every ``{{ … }}``."""
    import jinja2

    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int)) and not isinstance(value, Enum):
        return value
    if isinstance(value, jinja2.Undefined):
        return value  # raises when it is turned into text, with its own good message
    raise TypeError(
        f"a template cannot print {value!r} of type {type(value).__name__}: bool, int and str only; "
        "let the config spell it as C++"
    )


def undeclared_names(template: str) -> frozenset[str]:
    """Return the names that a template takes from its context or from the globals."""
    import jinja2.meta

    root = templates_directory()
    environment = _environment(root)
    text = (root / template).read_text(encoding="utf-8")
    return frozenset(jinja2.meta.find_undeclared_variables(environment.parse(text)))
