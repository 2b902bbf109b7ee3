"""What is packed into the page of a report."""

import base64
import json
import re
import struct
import zlib

import numpy as np


def unpacked(page):
    """The header and the arrays."""
    packed = re.search(r'<script id="data"[^>]*>([^<]*)</script>', page)[1]
    block = zlib.decompress(base64.b64decode(packed))
    length = struct.unpack_from("<I", block)[0]
    header = json.loads(block[4 : 4 + length])
    types = {"f4": "<f4", "i4": "<i4", "u1": "|u1"}
    arrays = {
        name: np.frombuffer(block, types[kind], count, 4 + length + offset)
        for name, (kind, offset, count) in header["arrays"].items()
    }
    return header, arrays
