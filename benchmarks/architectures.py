"""Small Hugging Face architectures with random weights, written in one form.

    python -m benchmarks.architectures bert xml bert.xml

Needs ``transformers``; nothing is fetched. :mod:`benchmarks.real_models` runs it.
"""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["build", "write"]


def build(name: str, *, masked: bool = False) -> tuple[Any, tuple[Any, ...]]:
    """A module that takes and gives tensors, and an example of its inputs.

    ``masked``: a decoder is given a mask of ones, as generation does it; without one it looks for packed sequences.
    """
    import torch
    import transformers as hf

    torch.manual_seed(0)
    ids, other = torch.randint(0, 100, (1, 16)), torch.randint(0, 100, (1, 16))
    image = torch.randn(1, 3, 64, 64)
    small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    inputs: tuple[Any, ...] = (ids,)
    if name == "bert":
        model = hf.BertModel(hf.BertConfig(vocab_size=200, **small))
    elif name == "gpt2":
        model = hf.GPT2Model(hf.GPT2Config(vocab_size=200, n_embd=64, n_layer=2, n_head=4, use_cache=False))
    elif name == "llama":
        model = hf.LlamaModel(hf.LlamaConfig(vocab_size=200, num_key_value_heads=2, use_cache=False, **small))
    elif name == "t5":
        config = hf.T5Config(
            vocab_size=200, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, use_cache=False
        )
        config._attn_implementation = "eager"  # the other one is more than torch.onnx can take apart
        model, inputs = hf.T5Model(config), (ids, other)
    elif name == "whisper":
        config = hf.WhisperConfig(
            vocab_size=200, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128, max_source_positions=50,
            use_cache=False, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        )  # fmt: skip
        model, inputs = hf.WhisperModel(config), (torch.randn(1, 80, 100), other)
    elif name == "vit":
        model, inputs = hf.ViTModel(hf.ViTConfig(image_size=64, patch_size=16, **small)), (image,)
    elif name == "convnext":
        config = hf.ConvNextConfig(depths=[1, 1, 2, 1], hidden_sizes=[16, 32, 64, 128])
        model, inputs = hf.ConvNextModel(config), (image,)
    else:
        raise SystemExit(f"there is no architecture {name!r}")
    names = {"t5": ("input_ids", "decoder_input_ids"), "whisper": ("input_features", "decoder_input_ids")}
    return _plain(model.eval(), names.get(name, ()), masked and name in ("gpt2", "llama", "whisper")), inputs


def _plain(model: Any, names: tuple[str, ...], masked: bool) -> Any:
    """The model with tensors in and its last hidden state out."""
    import torch

    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, first: Any, second: Any = None) -> Any:
            if second is None:
                mask = {"attention_mask": torch.ones_like(first)} if masked else {}
                return self.model(first, **mask, return_dict=False)[0]
            mask = {"decoder_attention_mask": torch.ones_like(second)} if masked else {}
            both = dict(zip(names, (first, second), strict=True))
            return self.model(**both, **mask, return_dict=False)[0]

    return Plain().eval()


def write(name: str, form: str, target: str) -> None:
    """Write an architecture in a form."""
    import torch

    # The older exporter knows no aten::diff, by which packed sequences are looked for.
    model, inputs = build(name, masked=form == "old.onnx")
    if form == "old.onnx":
        torch.onnx.export(model, inputs, target, dynamo=False)
    elif form == "new.onnx":
        torch.onnx.export(model, inputs, target, dynamo=True, verbose=False)
    else:
        program = torch.export.export(model, inputs)
        if form == "pt2":
            torch.export.save(program, target)
        else:
            import openvino as ov

            ov.save_model(ov.convert_model(program), target, compress_to_fp16=False)


if __name__ == "__main__":
    write(*sys.argv[1:4])
