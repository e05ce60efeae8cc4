"""PTX text to tokens with their lines (PTX ISA, chapter 4)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from umma_jit.emulator.errors import PtxSyntaxError

__all__ = ["Token", "tokenize"]


@dataclass(frozen=True)
class Token:
    """One token.

    Attributes
    ----------
    kind
        ``"word"`` (identifiers, registers, opcodes' first part), ``"dot"`` (``.modifier``), ``"number"``,
        ``"string"``, ``"loc"`` (a whole ``.loc`` line), ``"punct"`` or ``"end"``.
    """

    kind: str
    text: str
    line: int


# Opcode parts are separate "dot" tokens, since some compilers leave a blank inside an opcode. ``.128x256b`` is a
# modifier and no number. A special register keeps its component: ``%tid.x``.
_TOKEN = re.compile(
    r"""
    (?P<skip>[ \t\r\f]+|//[^\n]*|/\*.*?\*/)
  | (?P<newline>\n)
  | (?P<loc>\.loc\b[^\n]*|\.file\b[^\n]*)
  | (?P<dot>\.[A-Za-z_][\w$]*(?:::[\w$]+)*|\.\d+[A-Za-z][\w$]*(?:::[\w$]+)*)
  | (?P<number>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?
      |\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+U?)
  | (?P<word>%[A-Za-z_$][\w$]*(?:\.[xyzw]\b)?|[A-Za-z_$][\w$]*)
  | (?P<string>"(?:\\.|[^"\\])*")
  | (?P<punct>[{}()\[\],;:@!|+\-<>=~*/&^?])
    """,
    re.VERBOSE | re.DOTALL,
)


def tokenize(text: str) -> list[Token]:
    """Split a PTX module.

    Raises
    ------
    PtxSyntaxError
        A character that begins no token.
    """
    tokens: list[Token] = []
    append = tokens.append
    line = 1
    position = 0
    match_at = _TOKEN.match
    size = len(text)
    while position < size:
        match = match_at(text, position)
        if match is None:
            raise PtxSyntaxError(line, f"unexpected character {text[position]!r}")
        kind = match.lastgroup
        position = match.end()
        if kind == "newline":
            line += 1
        elif kind == "skip":
            if match.group().startswith("/*"):
                line += match.group().count("\n")
        else:
            append(Token(str(kind), match.group(), line))
    append(Token("end", "", line))
    return tokens
