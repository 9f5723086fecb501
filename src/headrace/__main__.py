"""`python -m headrace`: the command."""

from headrace.cli.main import run

run()
