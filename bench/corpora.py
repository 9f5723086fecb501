"""What the benchmarks read and build with: the GPT-2 vocabulary, and corpora built by the command itself."""

import compileall
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from harness import Process, run_process

import headrace
from corpus import OUT
from headrace.testing.gpt2 import write_gpt2


def compile_package() -> None:
    """Compile headrace to bytecode, as its installation from a wheel does.

    From a source tree, and where PYTHONDONTWRITEBYTECODE is set, every process would compile it anew.
    """
    compileall.compile_dir(Path(headrace.__file__).parent, quiet=1)


def gpt2() -> Path:
    """Write GPT-2's tokenizer.json and tokenizer_config.json, and `plain.json`, the same without special tokens.

    Returns:
        Their folder.
    """
    folder = write_gpt2(OUT / "gpt2")
    document = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    document["added_tokens"] = [token for token in document["added_tokens"] if not token["special"]]
    (folder / "plain.json").write_text(json.dumps(document), encoding="utf-8")
    return folder


def build(source: Path, output: Path, *options: str | Path, workers: int = 1) -> Process:
    """Run `headrace build` in a fresh process; what lay at `output` is removed first, and not timed.

    Args:
        source: a file or folder.
        output: the corpus folder.
        options: more of the command's.
        workers: processes.

    Returns:
        The process; its standard output is one event a line, as JSON.
    """
    shutil.rmtree(output, ignore_errors=True)
    return run_process([*_COMMAND, "build", source, "-o", output, "--workers", str(workers), "--json", *options])


def report(events: str) -> dict[str, object]:
    """Return the closing report of a build from its events."""
    return json.loads(events.splitlines()[-1])


_COMMAND: Sequence[str] = (sys.executable, "-P", "-m", "headrace")
