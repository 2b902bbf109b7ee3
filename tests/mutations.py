"""Files made wrong at random: by what their format can hold, and by plain damage to their bytes."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

DEEP: Any = []
for _ in range(90):
    DEEP = [DEEP]

HOSTILE: list[Any] = [
    None, True, False, 0, 1, -1, 3, 0.5, -0.0, 1e-320, 5e-324, 1e20, 1e99, 1e150, 1.7e308, 2**31, 2**63, 2**64,
    -(2**63), 10**25, 10**308, 10**400, -(10**400), float("nan"), float("inf"), "", "0", "x", "op1",
    "a" * 300, "\0", "\n", "é\U0001f600", "9" * 5000, "1e400", "²", "٣",
    [], {}, [[]], [None], [1], ["x"], [[0, 0]], {"a": 1}, {"": None}, DEEP,
]  # fmt: skip
"""Values that no place in a file expects, or that it expects and cannot bear."""

WORDS = [
    "", "x", "-1", "1e309", "1e-320", "9" * 400, "9" * 5000, "nan", "inf", "0x", "\0", "é", '"', "'", "[", "]",
    "{", "}", "[[[[", "<", ">", "&", ",", ",,,", "=", "\n", "\n\n", "=1", "true", "1979-05-27", "[" * 2000,
    "a" * 140_000, "#", "*", "\ud7ff", "\u2028", "\x0b", "10 GB", "1 parsec", "unsupported", "estimate",
]  # fmt: skip
"""Texts that mean something to some format, and some that are too much for it."""


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) of a tree of lists and dicts."""
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, entry in list(entries):
        yield value, key
        yield from places(entry)


def mutated_tree(base: Any, rng: random.Random) -> Any:
    """A copy with one to three changes: values replaced, swapped, deleted, repeated, renamed."""
    tree = copy.deepcopy(base)
    for _ in range(rng.choice([1, 1, 2, 3])):
        found = list(places(tree))
        if not found:
            return rng.choice(HOSTILE)
        holder, key = rng.choice(found)
        what = rng.randrange(8)
        if what == 0:
            del holder[key]
        elif what == 1 and isinstance(holder, list):
            holder.insert(rng.randrange(len(holder) + 1), copy.deepcopy(holder[key]))
        elif what == 2 and isinstance(holder, dict):
            holder[rng.choice(["", "x", "name", "format", key + " "])] = holder.pop(key)
        elif what == 3:
            other, place = rng.choice(found)
            holder[key] = copy.deepcopy(other[place]) if _holds(other, place) else None
        elif what == 4 and isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
            holder[key] = rng.choice([-holder[key], holder[key] * 10**200, holder[key] + 1])
        else:
            holder[key] = copy.deepcopy(rng.choice(HOSTILE))
    return tree


def _holds(holder: Any, key: Any) -> bool:
    return key in holder if isinstance(holder, dict) else key < len(holder)


def mutated_json(base: Any, rng: random.Random) -> bytes:
    """The text of a mutated tree; one in five is damaged as bytes as well."""
    text = json.dumps(mutated_tree(base, rng)).encode()
    if rng.random() < 0.1 and b'": ' in text:  # a key twice
        key = rng.choice(list(base)) if isinstance(base, dict) else "x"
        text = text.replace(b"{", b'{"' + key.encode() + b'": 1, ', 1)
    return damaged(text, rng) if rng.random() < 0.2 else text


def mutated_text(base: str, rng: random.Random) -> bytes:
    """Words of a text replaced, inserted, deleted and repeated, lines too."""
    text = base
    for _ in range(rng.choice([1, 1, 2, 3])):
        lines = text.split("\n")
        i = rng.randrange(len(lines))
        line, word = lines[i], rng.choice(WORDS)
        at, to = sorted((rng.randrange(len(line) + 1), rng.randrange(len(line) + 1)))
        what = rng.randrange(7)
        if what == 0:
            del lines[i]
        elif what == 1:
            lines.insert(rng.randrange(len(lines) + 1), line)
        elif what == 2:
            lines[i] = line[:at] + word + line[at:]
        elif what == 3:
            lines[i] = line[:at] + line[to:]
        elif what == 4 and "=" in line:
            lines[i] = line.split("=")[0] + "= " + word
        elif what == 5 and '"' in line:  # what stands in quotes
            parts = line.split('"')
            parts[rng.randrange(len(parts))] = word
            lines[i] = '"'.join(parts)
        else:
            lines[i] = line[:at] + word + line[to:]
        text = "\n".join(lines)
    content = text.encode("utf-8", "replace")
    return damaged(content, rng) if rng.random() < 0.15 else content


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Bytes flipped, cut off, repeated or put in."""
    found = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 8])):
        at = rng.randrange(len(found) + 1)
        what = rng.randrange(5)
        if what == 0 and rng.random() < 0.5:
            del found[at:]
        elif what == 1:
            found[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9)))
        elif what == 2:
            to = min(len(found), at + rng.randrange(1, 40))
            found[at:at] = found[at:to]
        elif what == 3:
            del found[at : at + rng.randrange(1, 9)]
        elif at < len(found):
            found[at] = rng.choice([0, 255, 128, found[at] ^ (1 << rng.randrange(8)), rng.randrange(256)])
    return bytes(found)
