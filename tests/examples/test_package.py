"""What `import headrace` loads, and what the package says it has."""

import inspect
import json
import subprocess
import sys

import pytest

import headrace

HEAVY = [
    *("torch", "jax", "transformers", "h5py", "lance", "ray", "pyarrow", "gigatoken", "tokenizers", "msgspec"),
    *("zstandard", "typer", "rich", "awkward", "click", "numpy", "multiprocessing"),
]


def loaded_by(code: str) -> set[str]:
    """The heavy packages in memory after running some code in a fresh process."""
    code += "\nimport sys, json; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout)) & set(HEAVY)


def test_importing_is_light():
    """The package by itself loads none of its dependencies."""
    assert loaded_by("import headrace") == set()


def test_a_plan_needs_no_storage():
    """Names load on first use, and only what they need: a plan is arithmetic."""
    code = "import headrace; headrace.Plan(order='blocks', token_count=1000, window=8, batch_size=2).starts(3)"
    assert loaded_by(code) == {"numpy"}


@pytest.mark.parametrize(
    "module",
    [
        "headrace.errors",
        "headrace.events",
        "headrace.manifest",
        "headrace.building",
        "headrace.cli",
        "headrace.adapters",
    ],
)
def test_light_modules(module):
    """Values, errors and packages load nothing of weight."""
    assert loaded_by(f"import {module}") <= {"numpy"}


def test_torch_alone_is_loaded_for_torch():
    """`headrace.torch` loads torch, and neither another framework nor a reader of files."""
    assert {"torch"} <= loaded_by("import headrace.torch") <= {"torch", "numpy", "multiprocessing"}


@pytest.mark.parametrize(
    ("module", "absent", "framework"),
    [
        ("torch", "torch", "torch"),
        ("adapters.huggingface", "transformers", "transformers"),
        ("adapters.huggingface", "torch", "transformers"),
        ("adapters.jax", "jax", "jax"),
    ],
)
def test_a_framework_that_is_not_there(module, absent, framework):
    """Without its framework an adapter says which extra to install."""
    code = f"import sys; sys.modules['{absent}'] = None\ntry: import headrace.{module}\n"
    code += "except ImportError as error: print(type(error).__name__, error)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert f"pip install 'headrace[{framework}]'" in done.stdout
    assert done.stdout.startswith("MissingExtraError")


def test_help_loads_no_engine():
    """The command's help needs neither HDF5 nor a tokenizer."""
    code = "import sys; sys.argv = ['headrace', 'build', '--help']\nfrom headrace.cli.main import app\n"
    code += (
        "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit): app()"
    )
    assert loaded_by(code) <= {"typer", "click", "rich", "multiprocessing"}


@pytest.mark.parametrize("name", headrace.__all__)
def test_every_public_name(name):
    """Every name in `__all__` resolves, is listed by `dir`, and is documented."""
    value = getattr(headrace, name)
    assert name in dir(headrace)
    if name == "__version__":
        assert value.count(".") == 2
    else:
        assert inspect.getdoc(value), f"headrace.{name} has no docstring"


@pytest.mark.parametrize("name", [name for name in headrace.__all__ if name != "__version__"])
def test_every_public_method(name):
    """Every public method and property of a public class is documented."""
    value = getattr(headrace, name)
    if not inspect.isclass(value):
        return
    for member, found in inspect.getmembers(value):
        if not member.startswith("_") and (callable(found) or isinstance(found, property)):
            assert inspect.getdoc(found), f"headrace.{name}.{member} has no docstring"


def test_a_name_that_is_not_there():
    """An unknown name is an AttributeError that names it, as of any module."""
    with pytest.raises(AttributeError, match="'headrace' has no attribute 'nonsense'"):
        _ = headrace.nonsense
