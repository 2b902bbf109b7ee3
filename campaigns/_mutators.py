"""Files made wrong at random: by what their format can hold, and by plain damage to their bytes."""

from __future__ import annotations

import copy
import json
import random
import xml.etree.ElementTree as ElementTree
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


def mutated_xml(base: bytes, rng: random.Random) -> bytes:
    """Elements of an XML file dropped, repeated, moved and renamed, attributes and texts replaced."""
    root = ElementTree.fromstring(base)
    for _ in range(rng.choice([1, 1, 2, 4])):
        every = [(parent, child) for parent in root.iter() for child in parent]
        if not every:
            break
        parent, child = rng.choice(every)
        what = rng.randrange(8)
        if what == 0:
            parent.remove(child)
        elif what == 1:
            parent.append(copy.deepcopy(child))
        elif what == 2:
            other = rng.choice(every)[1]
            if child not in other.iter() and other not in child.iter():
                parent.remove(child)
                other.append(child)
        elif what == 3:
            child.tag = rng.choice(["x", "net", "layer", "port", "dim", "data", "edge", "layers"])
        elif what == 4 and child.attrib:
            del child.attrib[rng.choice(list(child.attrib))]
        elif what == 5:
            child.text = _clean(rng.choice(WORDS))
        elif child.attrib:
            key = rng.choice(list(child.attrib))
            others = [e.attrib[key] for e in root.iter() if key in e.attrib]
            child.attrib[key] = _clean(
                rng.choice([*WORDS, *others, "-1", "0", "99999999999", "f32", "Const", "opset1"])
            )
    text = ElementTree.tostring(root)
    return damaged(text, rng) if rng.random() < 0.1 else text


def _clean(text: str) -> str:
    """Without what no XML file can hold."""
    return "".join(c for c in text if c.isprintable() or c in "\n\t")[:3000]


def mutated_message(base: Any, rng: random.Random) -> Any:
    """A copy of a protobuf message with fields changed anywhere in it."""
    message = type(base)()
    message.CopyFrom(base)
    for _ in range(rng.choice([1, 1, 2, 4])):
        owner = rng.choice(list(_messages(message)))
        fields = list(type(owner).DESCRIPTOR.fields)
        present = [field for field, _ in owner.ListFields()]
        field = rng.choice(present if present and rng.random() < 0.8 else fields)
        try:
            _change(owner, field, rng)
        except (ValueError, TypeError, OverflowError):
            continue
    return message


def _messages(message: Any) -> Iterator[Any]:
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for entry in value if _repeated(field) else [value]:
                yield from _messages(entry)


def _repeated(field: Any) -> bool:
    return bool(getattr(field, "is_repeated", None) if hasattr(field, "is_repeated") else field.label == 3)


def _change(owner: Any, field: Any, rng: random.Random) -> None:
    numbers = [0, 1, -1, 2, 3, 17, 10**6, 2**31 - 1, -(2**31), 2**40, 2**62, -(2**63)]
    texts = [
        "",
        "x",
        "y",
        "h",
        "w",
        "Relu",
        "If",
        "Loop",
        "MatMul",
        "Expand",
        "Tile",
        "Range",
        "a" * 5000,
        "../x",
        "\0",
    ]
    if rng.random() < 0.15:
        owner.ClearField(field.name)
        return
    value = getattr(owner, field.name)
    if _repeated(field):
        if len(value) and rng.random() < 0.3:
            del value[rng.randrange(len(value))]
        elif field.message_type is not None:
            if len(value):
                value.add().CopyFrom(rng.choice(list(value)))
            else:
                value.add()
        elif len(value) and rng.random() < 0.7:
            value[rng.randrange(len(value))] = _scalar(field, rng, numbers, texts)
        else:
            value.append(_scalar(field, rng, numbers, texts))
    elif field.message_type is not None:
        value.SetInParent()
    else:
        setattr(owner, field.name, _scalar(field, rng, numbers, texts))


def _scalar(field: Any, rng: random.Random, numbers: list[int], texts: list[str]) -> Any:
    if field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64):
        return rng.choice(numbers)
    if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32, field.CPPTYPE_ENUM):
        return rng.choice([0, 1, 2, 7, 8, 11, 16, 99, -1, 2**31 - 1])
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return rng.choice([0.0, -1.0, 1e38, float("nan"), float("inf")])
    if field.cpp_type == field.CPPTYPE_STRING:
        text = rng.choice(texts)
        return text.encode() if field.type == field.TYPE_BYTES else text
    return True
