"""`make demo`: the running Python's standard library becomes a verified corpus, batches come out of it, and a model is trained.

Usage: demo.py FOLDER   (what it holds from an earlier run is removed)
"""

import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import zlib
from importlib.util import find_spec
from pathlib import Path

import as_described

import headrace

MANY = 12
"""Arguments of a command that are shown."""
WINDOW, BATCH, SEED = 1024, 8, 1337


def command(*arguments: str) -> None:
    """Show a command, run it, and stop if it fails."""
    shown = list(arguments[:2]) + (["..."] if len(arguments) > MANY else []) + list(arguments[2:][-MANY:])
    print(f"\n$ headrace {shlex.join(shown)}", flush=True)
    code = subprocess.run([sys.executable, "-P", "-m", "headrace", *arguments], check=False).returncode
    if code:
        sys.exit(code)


def standard_library() -> list[str]:
    """Modules and packages of the running Python, without what was installed beside them."""
    library = Path(sysconfig.get_paths()["stdlib"])
    packages = [
        str(path)
        for path in sorted(library.iterdir())
        if path.is_dir() and path.name not in {"site-packages", "dist-packages"} and any(path.rglob("*.py"))
    ]
    return [f"{library}/*.py", *packages]


def batches(corpus: headrace.Corpus) -> None:
    """Ten batches, then one window in words, then the rate."""
    plan = headrace.Plan(
        order="blocks",
        token_count=corpus.token_count,
        window=WINDOW,
        batch_size=BATCH,
        seed=SEED,
        corpus=str(corpus.fingerprint),
    )
    loader = headrace.Loader(corpus, plan)
    print(f"\n{plan.windows:,} windows of {WINDOW} tokens an epoch; ten batches of {BATCH}:")
    for step in range(10):
        batch = loader.batch(step)
        print(f"step={step} shape={batch.input_ids.shape} checksum={zlib.crc32(batch.input_ids.tobytes()):08x}")
    command("show", str(corpus.path), "--window", str(loader.batch(9).starts[0]), "--length", "96")
    steps = 300
    begin = time.perf_counter()
    for step in range(steps):
        loader.batch(step)
    seconds = time.perf_counter() - begin
    print(
        f"\n{steps * BATCH * WINDOW / seconds / 1e6:,.0f} million tokens a second out of the loader, warm, one thread"
    )


def training(corpus: str, scratch: str) -> None:
    """A tiny GPT-2 for some seconds, where what it needs is installed."""
    missing = [name for name in ("torch", "transformers", "tqdm", "matplotlib", "tomli_w") if find_spec(name) is None]
    if missing:
        print(f"\nNo training run: {', '.join(missing)} not installed (pip install 'headrace[train]', or make test)")
        return
    sizes = ["--config", "tiny", "--window", "128", "--batch", "8", "--steps", "40", "--warmup", "5", "--lr", "3e-3"]
    command("train", corpus, "-o", f"{scratch}/run", *sizes, "--device", "cpu")


def main() -> int:
    """Run the demo; returns the exit code."""
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    options = ["--format", "text", "--include", "*.py", "--shard-tokens", "2000000", "--on-bad-input", "skip"]
    command("build", *standard_library(), "-o", str(folder), *options)
    command("verify", str(folder))
    command("info", str(folder), "--window", str(WINDOW))
    with headrace.open(folder) as corpus:
        batches(corpus)
        print("\nThe same in memory, from examples/as_described.py:")
        with tempfile.TemporaryDirectory() as scratch:
            code = as_described.main(scratch)
            training(str(folder), scratch)
        print(
            f"\nshards={len(corpus.entries)} tokens={corpus.token_count} fingerprint={corpus.fingerprint}",
        )
    return code


if __name__ == "__main__":
    sys.exit(main())
