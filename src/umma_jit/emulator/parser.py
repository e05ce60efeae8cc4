"""Tokens to kernels: declarations, scopes, labels, operands (PTX ISA, chapters 4 to 7 and 11)."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field

from umma_jit.emulator.errors import PtxSyntaxError, UnsupportedInstructionError
from umma_jit.emulator.lexer import Token, tokenize
from umma_jit.emulator.nodes import (
    Address,
    Immediate,
    Instruction,
    KernelCode,
    Label,
    Negated,
    Operand,
    Parameter,
    PredicatePair,
    Register,
    Sink,
    Special,
    Symbol,
    TensorAddress,
    Variable,
    Vector,
)

__all__ = ["TYPE_BYTES", "ModuleCode", "parse"]

TYPE_BYTES = {
    **{f"{kind}{bits}": bits // 8 for kind in "bus" for bits in (8, 16, 32, 64)},
    "b128": 16,
    "f16": 2,
    "bf16": 2,
    "f32": 4,
    "tf32": 4,
    "f64": 8,
    "f16x2": 4,
    "bf16x2": 4,
    "b1024": 128,
}
_BANKS = {1: "b8", 2: "b16", 4: "b32", 8: "b64", 16: "b128"}
_SPACES = {".shared": "shared", ".global": "global", ".const": "const", ".local": "local", ".param": "param"}
_LINKING = {".visible", ".weak", ".extern", ".common"}


@dataclass(frozen=True)
class ModuleCode:
    """A parsed module: its kernels by name, its target and version."""

    kernels: dict[str, KernelCode]
    variables: dict[str, Variable]
    target: str
    version: str


def parse(text: str) -> ModuleCode:
    """Parse a PTX module.

    Raises
    ------
    PtxSyntaxError
        Names the line and what was expected there.
    """
    return _Parser(tokenize(text)).module()


class _Scope:
    """Names of one block; inline assembly opens blocks that redeclare registers and labels."""

    def __init__(self, parent: _Scope | None, number: int) -> None:
        self.parent = parent
        self.number = number
        self.registers: dict[str, Register] = {}
        self.labels: set[str] = set()

    def register(self, name: str) -> Register | None:
        scope: _Scope | None = self
        while scope is not None:
            found = scope.registers.get(name)
            if found is not None:
                return found
            scope = scope.parent
        return None

    def label(self, name: str) -> str | None:
        """The unique form of a label visible here."""
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.labels:
                return scope.unique(name)
            scope = scope.parent
        return None

    def unique(self, name: str) -> str:
        return name if self.number == 0 else f"{name}#{self.number}"


@dataclass
class _Body:
    """What parsing a kernel's body collects."""

    instructions: list[Instruction] = field(default_factory=list)
    scopes: list[_Scope] = field(default_factory=list)  # of each instruction
    labels: dict[str, int] = field(default_factory=dict)
    banks: dict[str, int] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    branch_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    target_scopes: dict[str, _Scope] = field(default_factory=dict)
    location: tuple[str, int] | None = None
    scope_count: int = 0


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.files: dict[str, str] = {}
        self.kernels: dict[str, KernelCode] = {}
        self.variables: dict[str, Variable] = {}
        self.target = ""
        self.version = ""

    # ---- tokens --------------------------------------------------------------------------------------

    def next(self) -> Token:
        token = self.tokens[self.at]
        self.at += 1
        return token

    def peek(self) -> Token:
        return self.tokens[self.at]

    def accept(self, text: str) -> bool:
        if self.tokens[self.at].text == text and self.tokens[self.at].kind != "string":
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> Token:
        token = self.next()
        if token.text != text:
            raise PtxSyntaxError(token.line, f"expected {text!r}, found {_shown(token)}")
        return token

    def word(self, what: str) -> Token:
        token = self.next()
        if token.kind != "word":
            raise PtxSyntaxError(token.line, f"expected {what}, found {_shown(token)}")
        return token

    def integer(self) -> int:
        token = self.next()
        if token.kind != "number" or not re.fullmatch(r"0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+U?", token.text):
            raise PtxSyntaxError(token.line, f"expected an integer, found {_shown(token)}")
        return _integer(token.text)

    def skip_block(self) -> None:
        """From just after an opening brace to just after its match."""
        depth = 1
        while depth:
            token = self.next()
            if token.kind == "end":
                raise PtxSyntaxError(token.line, "the text ends inside a block")
            if token.kind == "punct":
                depth += (token.text == "{") - (token.text == "}")

    # ---- module --------------------------------------------------------------------------------------

    def module(self) -> ModuleCode:
        while self.peek().kind != "end":
            token = self.next()
            text = token.text
            if token.kind == "loc":
                self.file_directive(token)
            elif text == ".version":
                self.version = self.next().text
            elif text == ".target":
                self.target = self.next().text
                while self.accept(","):
                    self.next()
            elif text == ".address_size":
                if self.integer() != 64:
                    raise PtxSyntaxError(token.line, "expected .address_size 64")
            elif text in _LINKING:
                continue
            elif text == ".entry":
                self.entry()
            elif text == ".func":
                self.function()
            elif text in _SPACES:
                self.at -= 1
                external = self.tokens[self.at - 1].text == ".extern"
                for variable in self.variable_declaration(external):
                    self.variables[variable.name] = variable
            elif text == ".section":
                while self.next().text != "{":
                    pass
                self.skip_block()
            elif text in (".pragma", ".alias"):
                while self.next().text != ";":
                    pass
            elif text == ";":
                continue
            else:
                raise PtxSyntaxError(token.line, f"expected a directive, found {_shown(token)}")
        return ModuleCode(self.kernels, self.variables, self.target, self.version)

    def file_directive(self, token: Token) -> None:
        match = re.match(r'\.file\s+(\d+)\s+"([^"]*)"', token.text)
        if match:
            self.files[match[1]] = match[2]

    def function(self) -> None:
        """Device functions are only ever called by what is refused at its call; declarations are common."""
        while True:
            token = self.next()
            if token.kind == "end":
                raise PtxSyntaxError(token.line, "the text ends inside a function")
            if token.text == ";" and token.kind == "punct":
                return
            if token.text == "{" and token.kind == "punct":
                self.skip_block()
                return

    def variable_declaration(self, external: bool = False) -> list[Variable]:
        """``.shared .align 16 .b8 name[64] = {…}, other;``."""
        first = self.next()
        space = _SPACES[first.text]
        alignment = 0
        element = 0
        lanes = 1
        while self.peek().kind == "dot":
            token = self.next()
            name = token.text[1:]
            if name == "align":
                alignment = self.integer()
            elif name in ("v2", "v4", "v8"):
                lanes = int(name[1:])
            elif name in TYPE_BYTES:
                element = TYPE_BYTES[name]
            elif name == "pred":
                element = 1
            elif name not in ("ptr", "attribute", "managed", "volatile"):
                raise PtxSyntaxError(token.line, f"expected a type, found {token.text}")
            elif name == "attribute":
                self.expect("(")
                while not self.accept(")"):
                    self.next()
        if not element:
            raise PtxSyntaxError(first.line, "a variable needs a type")
        found = []
        while True:
            name = self.word("a variable's name").text
            count = 1
            if self.peek().text == "<":  # a group of variables: name<10>
                self.next()
                group = self.integer()
                self.expect(">")
                found += [
                    Variable(f"{name}{n}", space, element * lanes, alignment or element * lanes) for n in range(group)
                ]
            else:
                while self.accept("["):
                    count *= 0 if self.peek().text == "]" else self.integer()
                    self.expect("]")
                initial = self.initialiser(element) if self.accept("=") else b""
                size = element * lanes * count or len(initial)
                found.append(
                    Variable(
                        name,
                        space,
                        size,
                        alignment or element * lanes,
                        initial.ljust(size, b"\0") if initial else b"",
                        external,
                    )
                )
            if not self.accept(","):
                break
        self.expect(";")
        return found

    def initialiser(self, element: int) -> bytes:
        if self.accept("{"):
            data = b""
            while not self.accept("}"):
                data += self.initialiser(element)
                self.accept(",")
            return data
        negative = self.accept("-")
        token = self.next()
        if token.kind != "number":
            raise PtxSyntaxError(token.line, f"expected a number as initial value, found {_shown(token)}")
        value = _number(token, negative)
        return (value.bits & ((1 << 8 * element) - 1)).to_bytes(element, "little")

    # ---- kernels -------------------------------------------------------------------------------------

    def entry(self) -> None:
        name = self.word("a kernel's name").text
        parameters = self.parameters() if self.accept("(") else ()
        directives: dict[str, tuple[int, ...]] = {}
        while not self.accept("{"):
            token = self.next()
            if token.kind == "punct" and token.text == ";":
                return  # a declaration
            if token.kind != "dot":
                raise PtxSyntaxError(token.line, f"expected a directive or '{{', found {_shown(token)}")
            numbers: list[int] = []
            if token.text == ".pragma":
                while self.next().text != ";":
                    pass
            while self.peek().kind == "number":
                numbers.append(self.integer())
                if not self.accept(","):
                    break
            directives[token.text[1:]] = tuple(numbers)
        body = _Body()
        self.block(body, _Scope(None, 0))
        self.kernels[name] = KernelCode(
            name=name,
            parameters=parameters,
            instructions=_resolve(body),
            labels=body.labels,
            banks=body.banks,
            variables={**self.variables, **body.variables},
            directives=directives,
            branch_targets={
                key: tuple(_target(body.target_scopes[key], label) or label for label in labels)
                for key, labels in body.branch_targets.items()
            },
        )

    def parameters(self) -> tuple[Parameter, ...]:
        found: list[Parameter] = []
        offset = 0
        while not self.accept(")"):
            self.expect(".param")
            element = alignment = 0
            pointer = False
            while self.peek().kind == "dot":
                token = self.next()
                text = token.text[1:]
                if text == "align":
                    value = self.integer()
                    alignment = alignment if pointer else value  # after .ptr it describes the pointee
                elif text == "ptr":
                    pointer = True
                elif text in TYPE_BYTES:
                    element = TYPE_BYTES[text]
                elif text not in ("global", "shared", "const", "local", "generic"):
                    raise PtxSyntaxError(token.line, f"expected a parameter's type, found {token.text}")
            token = self.word("a parameter's name")
            if not element:
                raise PtxSyntaxError(token.line, f"parameter {token.text} has no type")
            size = element
            if self.accept("["):
                size = element * self.integer()
                self.expect("]")
            alignment = alignment or element
            offset = -(-offset // alignment) * alignment
            found.append(Parameter(token.text, offset, size, alignment))
            offset += size
            self.accept(",")
        return tuple(found)

    def block(self, body: _Body, scope: _Scope) -> None:
        """Statements up to the closing brace."""
        while True:
            token = self.peek()
            if token.kind == "end":
                raise PtxSyntaxError(token.line, "the text ends inside a kernel")
            if token.kind == "punct" and token.text == "}":
                self.next()
                return
            if token.kind == "punct" and token.text == "{":
                self.next()
                body.scope_count += 1
                self.block(body, _Scope(scope, body.scope_count))
            elif token.kind == "punct" and token.text == ";":
                self.next()
            elif token.kind == "loc":
                self.next()
                self.location(body, token)
            elif token.text == ".reg":
                self.registers(body, scope)
            elif token.text in _SPACES:
                for variable in self.variable_declaration():
                    body.variables[variable.name] = variable
            elif token.text in _LINKING:
                self.next()
            elif token.text in (".pragma", ".callprototype"):
                while self.next().text != ";":
                    pass
            elif token.kind == "word" and self.tokens[self.at + 1].text == ":":
                self.at += 2
                self.label(body, scope, token)
            elif token.kind == "word" or token.text == "@":
                self.instruction(body, scope)
            else:
                raise PtxSyntaxError(token.line, f"expected an instruction, found {_shown(token)}")

    def location(self, body: _Body, token: Token) -> None:
        match = re.match(r"\.loc\s+(\d+)\s+(\d+)", token.text)
        if match:
            # Line 0 stands for code that belongs to no line of the source.
            line = int(match[2])
            body.location = (self.files.get(match[1], match[1]), line) if line else None
        else:
            self.file_directive(token)

    def label(self, body: _Body, scope: _Scope, token: Token) -> None:
        if self.peek().text in (".branchtargets", ".calltargets", ".callprototype"):
            kind = self.next().text
            names = []
            while not self.accept(";"):
                names.append(self.next().text)
            if kind == ".branchtargets":
                body.branch_targets[token.text] = tuple(name for name in names if name != ",")
                body.target_scopes[token.text] = scope
            return
        if token.text in scope.labels:
            raise PtxSyntaxError(token.line, f"label {token.text} is defined twice")
        scope.labels.add(token.text)
        body.labels[scope.unique(token.text)] = len(body.instructions)

    def registers(self, body: _Body, scope: _Scope) -> None:
        """``.reg .b32 %r<500>;`` or ``.reg .pred p, q;``."""
        first = self.next()
        kind = self.next().text[1:]
        lanes = 1
        if kind in ("v2", "v4"):
            lanes = int(kind[1:])
            kind = self.next().text[1:]
        bank = "pred" if kind == "pred" else _BANKS.get(TYPE_BYTES.get(kind, 0), "")
        if not bank or lanes != 1:
            raise UnsupportedInstructionError(first.line, f".reg .{kind}", "scalar registers of 8 to 128 bits")
        while True:
            name = self.word("a register's name").text
            if self.accept("<"):
                count = self.integer()
                self.expect(">")
                names = [f"{name}{n}" for n in range(count)]
            else:
                names = [name]
            start = body.banks.get(bank, 0)
            for slot, each in enumerate(names, start):
                scope.registers[each] = Register(each, kind, bank, slot)
            body.banks[bank] = start + len(names)
            if not self.accept(","):
                break
        self.expect(";")

    # ---- instructions --------------------------------------------------------------------------------

    def instruction(self, body: _Body, scope: _Scope) -> None:
        guard = None
        if self.accept("@"):
            negated = self.accept("!")
            token = self.word("a predicate register")
            register = scope.register(token.text)
            if register is None or register.bank != "pred":
                raise PtxSyntaxError(token.line, f"{token.text} is no predicate register")
            guard = (register, negated)
        first = self.word("an opcode")
        opcode = first.text
        operands: list[Operand] = []
        while True:
            token = self.peek()
            if token.kind == "dot":
                opcode += self.next().text
            elif token.text == ";" and token.kind == "punct":
                self.next()
                break
            elif token.text == "," and token.kind == "punct":
                self.next()
            else:
                operands.append(self.operand(scope))
        body.instructions.append(
            Instruction(
                opcode=opcode,
                parts=tuple(opcode.split(".")),
                operands=tuple(operands),
                guard=guard,
                line=first.line,
                location=body.location,
                index=len(body.instructions),
            )
        )
        body.scopes.append(scope)

    def operand(self, scope: _Scope) -> Operand:
        token = self.next()
        if token.kind == "number":
            return _number(token, negative=False)
        if token.kind == "word":
            return self.after_word(scope, token)
        if token.text == "-":
            return _number(self.next(), negative=True)
        if token.text == "!":
            inner = self.operand(scope)
            if not isinstance(inner, Register):
                raise PtxSyntaxError(token.line, "expected a predicate register after '!'")
            return Negated(inner)
        if token.text in "{(" and token.kind == "punct":
            close = "}" if token.text == "{" else ")"
            elements: list[Operand] = []
            while not self.accept(close):
                elements.append(self.operand(scope))
                self.accept(",")
            return Vector(tuple(elements))
        if token.text == "[":
            return self.bracket(scope)
        raise PtxSyntaxError(token.line, f"expected an operand, found {_shown(token)}")

    def after_word(self, scope: _Scope, token: Token) -> Operand:
        value = self.name(scope, token)
        if self.accept("|"):
            return PredicatePair(value, self.operand(scope))
        if isinstance(value, Symbol) and self.peek().text in ("+", "-") and self.peek().kind == "punct":
            return Symbol(value.name, self.displacement())
        return value

    def name(self, scope: _Scope, token: Token) -> Operand:
        if token.text == "_":
            return Sink()
        register = scope.register(token.text)
        if register is not None:
            return register
        if token.text == "WARP_SZ":
            return Immediate(32)
        if token.text.startswith("%"):
            return Special(token.text)
        return Symbol(token.text)

    def displacement(self) -> int:
        """``+ 16``, ``+ -16`` or ``- 16``, any number of them."""
        total = 0
        while self.peek().kind == "punct" and self.peek().text in ("+", "-"):
            sign = -1 if self.next().text == "-" else 1
            if self.accept("-"):
                sign = -sign
            total += sign * self.integer()
        return total

    def bracket(self, scope: _Scope) -> Operand:
        token = self.next()
        if token.kind == "number":
            base: Operand = _number(token, negative=False)
        elif token.kind == "word":
            base = self.name(scope, token)
        else:
            raise PtxSyntaxError(token.line, f"expected an address, found {_shown(token)}")
        if not isinstance(base, (Register, Symbol, Immediate)):
            raise PtxSyntaxError(token.line, f"{token.text} cannot be an address")
        address = Address(base, self.displacement())
        if self.accept(","):
            coordinates = self.operand(scope)
            self.expect("]")
            if not isinstance(coordinates, Vector):
                coordinates = Vector((coordinates,))
            return TensorAddress(address, coordinates.elements)
        self.expect("]")
        return address


def _resolve(body: _Body) -> tuple[Instruction, ...]:
    """Turn the names that are labels into `Label`s, and refuse names that are nothing."""
    resolved = []
    for instruction, scope in zip(body.instructions, body.scopes, strict=True):
        if instruction.parts[0] not in ("bra", "brx"):
            resolved.append(instruction)
            continue
        operands: list[Operand] = []
        for operand in instruction.operands:
            if isinstance(operand, Symbol):
                label = _target(scope, operand.name)
                if label is None and operand.name in body.branch_targets:
                    label = operand.name
                if label is None:
                    raise PtxSyntaxError(instruction.line, f"there is no label {operand.name}")
                operands.append(Label(label))
            else:
                operands.append(operand)
        resolved.append(
            Instruction(
                instruction.opcode,
                instruction.parts,
                tuple(operands),
                instruction.guard,
                instruction.line,
                instruction.location,
                instruction.index,
            )
        )
    return tuple(resolved)


def _target(scope: _Scope, name: str) -> str | None:
    return scope.label(name)


def _integer(text: str) -> int:
    text = text.rstrip("U")
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    if text[:2] in ("0b", "0B"):
        return int(text, 2)
    if len(text) > 1 and text[0] == "0":
        return int(text, 8)
    return int(text)


def _number(token: Token, negative: bool) -> Immediate:
    text = token.text
    if token.kind != "number":
        raise PtxSyntaxError(token.line, f"expected a number, found {_shown(token)}")
    if text[:2] in ("0f", "0F"):
        return Immediate(int(text[2:], 16) ^ (negative << 31), "f32")
    if text[:2] in ("0d", "0D"):
        return Immediate(int(text[2:], 16) ^ (negative << 63), "f64")
    if re.search(r"[.eE]", text) and not text.startswith(("0x", "0X")):
        value = -float(text) if negative else float(text)
        return Immediate(int.from_bytes(struct.pack("<d", value), "little"), "f64")
    try:
        value_int = _integer(text)
    except ValueError:
        raise PtxSyntaxError(token.line, f"{text} is no number") from None
    return Immediate(-value_int if negative else value_int)


def _shown(token: Token) -> str:
    return "the end of the text" if token.kind == "end" else repr(token.text)
