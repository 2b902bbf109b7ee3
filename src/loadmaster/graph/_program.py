"""A ``.pt2`` file from a stranger: what is in it that would run code, before PyTorch reads it.

``torch.export.load`` unpickles weights and constants where the archive says so, example inputs where they are no
plain tensors, evaluates expressions of sizes as Python, and takes any function of the package ``torch`` as an
operator. So a program is read only if it has plain weights, expressions that are arithmetic, and operators that are
operators; and whatever PyTorch loads then, it loads with ``weights_only``.
"""

from __future__ import annotations

import ast
import logging
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from loadmaster.errors import InputError
from loadmaster.files import parse_json, read_archive, shown

__all__ = ["check_program", "weights_only"]

WHAT = "a program that torch.export.save wrote"
FORCED = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
OPERATOR = re.compile(
    r"torch\.ops\.(?!load_library)[a-z][a-z0-9_]*\.[A-Za-z_]\w*(\.[A-Za-z]\w*)?"
    r"|torch\.sym_(int|float|max|min|not|sum|sqrt|ite|fresh_size)|torch\._sym_sqrt"
    r"|_operator\.(getitem|add|sub|mul|truediv|floordiv|mod|neg|pow|pos|abs|eq|ne|lt|le|gt|ge|and_|or_|xor|not_"
    r"|invert|lshift|rshift|index)"
    r"|math\.[a-z]\w*"
)
FUNCTIONS = re.compile(
    "Add|Mul|Pow|Max|Min|Mod|Abs|Integer|Float|Rational|Symbol|Eq|Ne|Le|Lt|Ge|Gt|Not|And|Or|Piecewise|Where|Identity|"
    "PythonMod|FloorDiv|CeilDiv|CleanDiv|ModularIndexing|IntTrueDiv|FloatTrueDiv|PowByNatural|TruncToInt|TruncToFloat|"
    "FloorToInt|CeilToInt|RoundToInt|RoundDecimal|ToFloat|LShift|RShift|floor|ceiling|ExprCondPair|Tuple|"
    "(Equality|Unequality|(Strict)?(Less|Greater)Than)|OpaqueUnaryFn_(sqrt|exp|log)"
)
"""What sympy and PyTorch make of sizes."""
EXPRESSION = re.compile(r"[A-Za-z0-9_ .,+*/()<>=!&|~%-]{0,2000}")
ATTRIBUTE = re.compile(r"\.\s*[A-Za-z_]|__")
NAME = re.compile(r"'[A-Za-z]\w*'")
POWER = re.compile(r"\*\*|Pow|LShift")
CALL = re.compile(r"([A-Za-z_]\w*)\s*\(")
_turn = threading.Lock()


def check_program(path: str | Path) -> None:
    """Refuse a file that would have PyTorch run code.

    Raises
    ------
    InputError : it is no such file, or holds what is unpickled, evaluated or called.
    """
    parts = read_archive(path, WHAT, ".json", "weights")
    models = [name for name in parts if "/models/" in f"/{name}"]
    if not models:
        raise InputError(f"{path}: is not {WHAT} (it has no models/*.json)")
    for name, content in parts.items():
        for key, value in _pairs(parse_json(content, f"{path}: {name}")):
            _check(path, key, value)


def _check(path: str | Path, key: str, value: Any) -> None:
    if key == "use_pickle" and value:
        raise _refused(path, "weights or constants that are pickled")
    if key == "path_name" and not re.fullmatch(r"(weight|tensor)_\d+", str(value)):
        raise _refused(path, f"an object of its own ({shown(value)})")
    if key == "target" and isinstance(value, str) and not OPERATOR.fullmatch(value):
        raise _refused(path, f"the operator {shown(value)}")
    if key == "expr_str" and not _is_arithmetic(str(value)):
        raise _refused(path, f"the expression {shown(value)}")


def _refused(path: str | Path, what: str) -> InputError:
    return InputError(
        f"{path}: holds {what}, which PyTorch would run as code: export the model to ONNX instead"
    )


def _is_arithmetic(text: str) -> bool:
    """Whether an expression of sizes is one: numbers, names and known functions."""
    bare = NAME.sub("x", text)
    if not EXPRESSION.fullmatch(bare) or ATTRIBUTE.search(bare):
        return False
    # A number of more digits than there is memory.
    if POWER.search(bare) and (re.search(r"\d{3}", bare) or _is_tower(bare)):
        return False
    return all(FUNCTIONS.fullmatch(name) for name in CALL.findall(bare))


def _is_tower(text: str) -> bool:
    """Whether a power has a power for its exponent, as in 9**9**9, or powers of powers of powers."""
    try:
        powers = [node for node in ast.walk(ast.parse(text, mode="eval")) if _operands(node)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    for node in powers:
        below = [[inner for inner in ast.walk(part) if _operands(inner)] for part in _operands(node)]
        if any(below[1:]) or len(below[0]) > 1:
            return True
    return False


def _operands(node: ast.AST) -> list[ast.expr]:
    """Base and exponent of a power; of anything else, nothing."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return [node.left, node.right]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and POWER.match(node.func.id):
        return [*node.args, *(word.value for word in node.keywords)]
    return []


def _pairs(value: Any) -> Iterator[tuple[str, Any]]:
    """Every key of every object, with its value."""
    todo = [value]
    while todo:
        found = todo.pop()
        if isinstance(found, dict):
            yield from found.items()
            todo += found.values()
        elif isinstance(found, list):
            todo += found


@contextmanager
def weights_only(path: str | Path) -> Iterator[None]:
    """Have PyTorch load nothing but tensors meanwhile, whatever its own code asks for, and keep its log to itself."""
    with _turn:
        before, level = os.environ.get(FORCED), logging.root.manager.disable
        os.environ[FORCED] = "1"
        logging.disable(
            max(level, logging.WARNING)
        )  # else it logs the traceback of what we say in a sentence
        try:
            yield
        except Exception as error:
            if "weights_only" in str(error):  # what it advises then is what must not be done
                raise _refused(path, "example inputs or constants that are not plain tensors") from None
            raise
        finally:
            logging.disable(level)
            if before is None:
                del os.environ[FORCED]
            else:
                os.environ[FORCED] = before
