"""What the documents show is what happens."""

import re
import shlex
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.main import get_command

from headrace.cli.main import app

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")


def test_the_command_reference_is_fresh():
    """docs/cli.md is what `make docs` would write now."""
    result = subprocess.run([sys.executable, "-P", ROOT / "docs" / "make_cli_reference.py", "--check"], check=False)
    assert result.returncode == 0, "run `make docs`"


def test_the_worked_example_of_the_format(tmp_path):
    """The shell session in docs/format.md prints what it says."""
    text = (ROOT / "docs" / "format.md").read_text(encoding="utf-8")
    session = re.search(r"```console\n(\$ printf.*?)```", text, re.DOTALL).group(1)
    script, _, printed = session.partition("f['chunks/crc32'][:])\"\n")
    script = re.sub(r"^\$ ", "", script, flags=re.MULTILINE) + "f['chunks/crc32'][:])\"\n"
    script = script.replace("headrace build", f"{shlex.quote(sys.executable)} -P -m headrace build")
    script = script.replace("python -c", f"{shlex.quote(sys.executable)} -P -c")
    result = subprocess.run(["/bin/sh", "-ec", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert printed
    assert result.stdout.endswith(printed)


@pytest.mark.parametrize("line", re.findall(r"^headrace (\w+ .*?)(?: +#.*)?$", README + GUIDE, re.MULTILINE))
def test_the_commands_that_are_shown_parse(line):
    """Each command line of the README and the guide has known options and the arguments it needs."""
    name, *arguments = shlex.split(line)
    command = get_command(app).commands[name]
    if hasattr(command, "commands"):
        command, arguments = command.commands[arguments[0]], arguments[1:]
    if "--help" not in arguments:
        command.make_context(name, arguments)


def test_every_public_name_of_the_readme_exists():
    """`headrace.X` in the README is an attribute of the package, or a module in it."""
    import headrace

    names = set(re.findall(r"headrace\.([A-Za-z_]+)", README))
    assert {"open", "build", "Plan"} <= names
    assert [name for name in names if not hasattr(headrace, name) and find_spec(f"headrace.{name}") is None] == []


def test_the_readme_names_every_extra():
    """Each optional dependency of the package stands in the README by its name."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert [name for name in extras if f"`{name}`" not in README and f"[{name}]" not in README] == []


def test_the_links_of_the_guide_lead_somewhere():
    """A link is the heading of a section, or a file beside the guide."""
    headings = {line.lstrip("# ").lower().replace(" ", "-") for line in GUIDE.splitlines() if line.startswith("#")}
    links = re.findall(r"\]\(([^)]+)\)", GUIDE)
    assert len(links) >= 6
    for link in links:
        assert link.removeprefix("#") in headings if link.startswith("#") else (ROOT / "docs" / link).is_file()
