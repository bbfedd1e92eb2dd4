#!/usr/bin/env python3
"""Prints the golden vectors of the content fingerprint as JSON.

It follows the construction in words, not the Go code, so that the two check each other:

    content   = XXH3-64(seed 1337, the block's token ids, each a little-endian uint32)
    prefix[0] = content[0], or XXH3-64(seed 1337, LE64(parent) || LE64(content[0])) behind a parent
    prefix[i] = XXH3-64(seed 1337, LE64(prefix[i-1]) || LE64(content[i]))

Tokens that do not fill a block are dropped. usage: generate.py > golden_vectors.json
"""

import base64
import json
import struct

import xxhash

SEED = 1337
# XXH3 takes another path for each of these lengths of a block, in bytes of 4 per token: up to 3 (none
# here), 4-8, 9-16, 17-128, 129-240, and longer, in stripes of 64 and blocks of 1024 bytes.
BLOCK_SIZES = [1, 2, 3, 4, 5, 7, 8, 16, 31, 32, 33, 40, 60, 61, 64, 128, 256, 257, 512]
EXTREME_IDS = [0, 1, 2**16 - 1, 2**16, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1]

CONSTRUCTION = (
    "content = XXH3-64(seed 1337, tokens as little-endian uint32); "
    "prefix[0] = content[0], or XXH3-64(seed 1337, LE64(parent) then LE64(content[0])) with a parent; "
    "prefix[i] = XXH3-64(seed 1337, LE64(prefix[i-1]) then LE64(content[i])); "
    "a trailing partial block is dropped; numbers are decimal uint64 in strings; "
    "prefix_hex and prefix_base64 are the wire form, 8 bytes big-endian"
)


def xxh3(data):
    return xxhash.xxh3_64_intdigest(data, seed=SEED)


def chain(name, tokens, block_size, parent=None):
    contents, prefixes = [], []
    prefix = parent
    for start in range(0, len(tokens) - block_size + 1, block_size):
        block = tokens[start : start + block_size]
        content = xxh3(struct.pack(f"<{block_size}I", *block))
        prefix = content if prefix is None else xxh3(struct.pack("<QQ", prefix, content))
        contents.append(content)
        prefixes.append(prefix)
    wire = [struct.pack(">Q", p) for p in prefixes]
    return {
        "name": name,
        "block_size": block_size,
        "parent": None if parent is None else str(parent),
        "token_ids": tokens,
        "content": [str(c) for c in contents],
        "prefix": [str(p) for p in prefixes],
        "prefix_hex": [w.hex() for w in wire],
        "prefix_base64": [base64.b64encode(w).decode() for w in wire],
    }


def spread(n, salt):
    """n token ids all over the 32-bit range, the same on every run."""
    ids, state = [], salt
    for _ in range(n):
        state = (6364136223846793005 * state + 1442695040888963407) % 2**64
        ids.append(state >> 32)
    return ids


def chains():
    yield chain("single_full_block", list(range(1, 17)), 16)
    yield chain("partial_tail_dropped", list(range(1, 21)), 16)
    yield chain("two_block_chain", list(range(1, 33)), 16)
    yield chain("multi_block_chain", list(range(64)), 16)
    yield chain("parent_chain", list(range(50, 82)), 16, parent=0xDEADBEEF)
    yield chain("partial_only_no_blocks", list(range(10)), 16)
    yield chain("no_tokens", [], 16)
    yield chain("parent_zero", list(range(16)), 16, parent=0)
    yield chain("parent_of_all_ones", list(range(16)), 16, parent=2**64 - 1)
    yield chain("parent_without_blocks", list(range(15)), 16, parent=7)
    for extreme in EXTREME_IDS:
        yield chain(f"id_{extreme}", [extreme] * 32, 16)
    for size in BLOCK_SIZES:
        whole = spread(3 * size + size // 2, size)
        yield chain(f"size_{size}", whole, size)
        first = chain("", whole[:size], size)
        yield chain(f"size_{size}_behind_first", whole[size:], size, parent=int(first["prefix"][0]))
        mixed = (EXTREME_IDS * (size // 4 + 1))[: 2 * size]
        yield chain(f"size_{size}_extreme_ids", mixed, size)


def main():
    lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in chains())
    print(f'{{"construction":{json.dumps(CONSTRUCTION)},"chains":[\n{lines}\n]}}')


if __name__ == "__main__":
    main()
