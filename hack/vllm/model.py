"""Writes a tiny model without weights (the engine makes random ones) and two LoRA adapters for it.

usage: model.py FOLDER     writes FOLDER/model, FOLDER/adapters/sql and FOLDER/adapters/chat
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

VOCABULARY = 1024
HIDDEN = 64
LAYERS = 2
RANK = 8
SPECIAL = ["<unk>", "<s>", "</s>"]  # ids 0, 1 and 2

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": 128,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 8192,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "bfloat16",
}


def write(path: Path, content: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1))


def model(folder: Path) -> None:
    write(folder / "config.json", CONFIG)
    words = SPECIAL + [f"w{i}" for i in range(len(SPECIAL), VOCABULARY)]
    added = [
        {"id": i, "content": s, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        for i, s in enumerate(SPECIAL)
    ]
    write(
        folder / "tokenizer.json",
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "normalizer": None,
            "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": None,
            "decoder": None,
            "model": {"type": "WordLevel", "vocab": {w: i for i, w in enumerate(words)}, "unk_token": "<unk>"},
        },
    )
    write(
        folder / "tokenizer_config.json",
        {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"},
    )


def adapter(folder: Path, seed: int) -> None:
    write(
        folder / "adapter_config.json",
        {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": "tiny",
            "r": RANK,
            "lora_alpha": RANK,
            "lora_dropout": 0.0,
            "bias": "none",
            "target_modules": ["o_proj"],
        },
    )
    torch.manual_seed(seed)
    heads = CONFIG["num_attention_heads"] * CONFIG["head_dim"]
    weights = {}
    for layer in range(LAYERS):
        prefix = f"base_model.model.model.layers.{layer}.self_attn.o_proj"
        weights[f"{prefix}.lora_A.weight"] = torch.randn(RANK, heads, dtype=torch.bfloat16)
        weights[f"{prefix}.lora_B.weight"] = torch.randn(HIDDEN, RANK, dtype=torch.bfloat16)
    save_file(weights, folder / "adapter_model.safetensors")


def main(folder: Path) -> None:
    model(folder / "model")
    adapter(folder / "adapters" / "sql", 1)
    adapter(folder / "adapters" / "chat", 2)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
