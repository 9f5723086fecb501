"""Fetch a tokenizer from the Hugging Face hub, or find it in the hub's cache."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from headrace.errors import TokenizerError

__all__ = ["DOWNLOAD_SECONDS", "fetch_tokenizer", "looks_like_hub_name"]

DOWNLOAD_SECONDS = 120.0
"""How long a download may take, in seconds."""
_UNREACHABLE = "http://127.0.0.1:9"
"""The discard port: refuses at once."""

# gigatoken's own loader, which knows tokens and the cache's layout, but neither a time limit nor HF_HUB_OFFLINE. So it
# runs in a process that can be ended.
_CHILD = """
import json, sys
from gigatoken.gigatoken_rs import hub_file
def fetch(name):
    try:
        return {"path": str(hub_file(sys.argv[1], name))}
    except Exception as error:
        return {"kind": type(error).__name__, "error": str(error)}
json.dump({name: fetch(name) for name in sys.argv[2:]}, sys.stdout)
"""


def looks_like_hub_name(name: str) -> bool:
    """Whether a name is shaped like `organisation/model` or the older `model`."""
    from gigatoken.gigatoken_rs import looks_like_repo_id  # noqa: PLC0415  # only for names that are no path

    return looks_like_repo_id(name)


def fetch_tokenizer(name: str) -> Path:
    """Path of a hub model's tokenizer.json in the hub's cache, its tokenizer_config.json (where it has one) beside it.

    Args:
        name: `organisation/model`. `HF_HOME`, `HF_TOKEN`, `HF_ENDPOINT` and `HF_HUB_OFFLINE` count as usual.

    Raises:
        TokenizerError: there is no such tokenizer, or it cannot be reached within `DOWNLOAD_SECONDS`.
    """
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}
    environment = dict(os.environ)
    if offline:
        environment["HF_ENDPOINT"] = _UNREACHABLE
    tokenizer, config = _run(name, environment)
    if "error" in tokenizer:
        reason = "HF_HUB_OFFLINE is set, and it is not in the hub's cache" if offline else _one_line(tokenizer["error"])
        raise TokenizerError(_failure(name, reason))
    if "error" in config and config["kind"] != "FileNotFoundError" and not offline:
        raise TokenizerError(_failure(name, _one_line(config["error"])))
    return Path(tokenizer["path"])


def _run(name: str, environment: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    wanted = ("tokenizer.json", "tokenizer_config.json")
    command = [sys.executable, "-P", "-c", _CHILD, name, *wanted]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=DOWNLOAD_SECONDS, check=True)
    except subprocess.TimeoutExpired:
        raise TokenizerError(_failure(name, f"the hub did not answer within {DOWNLOAD_SECONDS:.0f} s")) from None
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines()
        raise TokenizerError(_failure(name, lines[-1] if lines else f"exit {error.returncode}")) from None
    answer = json.loads(done.stdout)
    return answer[wanted[0]], answer[wanted[1]]


def _failure(name: str, reason: str) -> str:
    return (
        f"{name!r} is no file or folder here, and as the name of a Hugging Face hub model it could not be loaded: "
        f"{reason}. Pass the path of a tokenizer.json"
    )


def _one_line(message: str) -> str:
    """A message of the loader without its source location and its numbering of causes."""
    lines = message.partition("\nLocation:")[0].splitlines()
    causes = (line.strip().removeprefix("Caused by:") for line in lines)
    return ": ".join(cause.lstrip("0123456789: ") for cause in causes if cause)
