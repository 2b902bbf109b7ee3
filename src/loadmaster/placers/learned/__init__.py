"""Learned placers. Importing this package needs no PyTorch; placing with them does (``loadmaster[learn]``)."""
