"""What kind of file somebody has given in place of the one that was meant."""

from __future__ import annotations

from pathlib import Path

__all__ = ["kind_of"]

SUFFIXES = {
    ".bin": ("a file of weights", "give the model's .xml"),
    ".csv": ("a table", "give it as the costs"),
    ".html": ("a web page", "give the plan that it shows"),
    ".md": ("a text", ""),
    ".onnx": ("an ONNX model", ""),
    ".onnx_data": ("a file of weights", "give the model's .onnx"),
    ".data": ("a file of weights", "give the model's .onnx"),
    ".pb": ("a TensorFlow model", "convert it to ONNX or OpenVINO's IR"),
    ".pdmodel": ("a Paddle model", "convert it to ONNX or OpenVINO's IR"),
    ".pt": ("a PyTorch file", "save the model with torch.export.save as .pt2"),
    ".pt2": ("a PyTorch program", ""),
    ".pth": ("a PyTorch file", "save the model with torch.export.save as .pt2"),
    ".py": ("a Python program", ""),
    ".safetensors": ("a file of weights", "export the model to ONNX, OpenVINO's IR or .pt2"),
    ".tflite": ("a TensorFlow Lite model", "convert it to ONNX or OpenVINO's IR"),
    ".toml": ("a TOML file", "give one that describes devices as the cluster"),
    ".txt": ("a text", ""),
    ".xml": ("an XML file", ""),
    ".yaml": ("a YAML file", ""),
    ".yml": ("a YAML file", ""),
}
"""End of the name -> what it is, and what to do."""

BEGINNINGS = (
    (b"\x89PNG", "an image"),
    (b"\xff\xd8\xff", "an image"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "a compressed file"),
    (b"%PDF", "a PDF file"),
    (b"\x7fELF", "a program"),
    (b"<?xml", "an XML file"),
    (b"<!DOCTYPE", "a web page"),
    (b"<html", "a web page"),
    (b"SQLite format", "a database"),
)
"""How content begins -> what it is."""


def kind_of(path: str | Path, content: bytes) -> tuple[str, str] | None:
    """What a file is that is not JSON, and what to do about it; None where nothing tells.

    >>> kind_of("net.bin", b"\\x00\\x01")
    ('a file of weights', "give the model's .xml")
    """
    known = SUFFIXES.get(Path(str(path)).suffix.lower())
    if known is not None:
        return known
    for beginning, kind in BEGINNINGS:
        if content.startswith(beginning):
            return kind, ""
    if b"\0" in content[:4096]:
        return "a binary file", ""
    return None
