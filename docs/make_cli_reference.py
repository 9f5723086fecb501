"""Write `docs/cli.md` from the commands themselves. Usage: make_cli_reference.py [--check]."""

import sys
from collections.abc import Iterator
from pathlib import Path

from click import Context, Parameter
from typer import main as typer_main
from typer.core import TyperGroup

from headrace.cli.main import app

REFERENCE = Path(__file__).with_name("cli.md")
HEADER = """# The commands

Made by `make docs` from the commands; a test compares. Exit codes: 0 all is well, 1 a failure (a one-line summary and at
most `--max-reported` places on stderr), 2 wrong usage, 130 interrupted.
"""


def reference() -> str:
    """The reference as Markdown."""
    group = typer_main.get_command(app)
    assert isinstance(group, TyperGroup)  # noqa: S101  # several commands make a group
    return "\n".join([HEADER, *_sections("headrace", group)])


def _sections(prefix: str, group: TyperGroup) -> Iterator[str]:
    for name, command in group.commands.items():
        called = f"{prefix} {name}"
        if isinstance(command, TyperGroup):
            yield from _sections(called, command)
            continue
        context = Context(command, info_name=called)
        usage = " ".join(command.collect_usage_pieces(context))
        rows = [_row(parameter, context) for parameter in command.get_params(context)]
        table = "\n".join(["| | |", "|---|---|", *rows])
        yield f"## {called}\n\n```\n{called} {usage}\n```\n\n{_prose(command.help)}\n\n{table}\n"


def _prose(text: str | None) -> str:
    paragraphs = (text or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _row(parameter: Parameter, context: Context) -> str:
    record = parameter.get_help_record(context) or (parameter.name or "", "")
    name, text = (" ".join(str(part).split()).replace("|", "\\|") for part in record)
    return f"| `{name}` | {text} |"


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(REFERENCE.read_text(encoding="utf-8") != reference())
    REFERENCE.write_text(reference(), encoding="utf-8")
