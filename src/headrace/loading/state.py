"""A loader's state: how far the trainer is, and what that is the state of."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from headrace.errors import HeadraceError, PlanError, Problem
from headrace.sampling import Plan
from headrace.sampling.checks import checked_int
from headrace.sampling.fields import fingerprint_of
from headrace.sampling.skips import Skips

__all__ = ["Identity", "plan_of_state", "state_of"]

VERSION = 1
Identity = Mapping[str, object]
"""What a loader is, but for its plan: names that JSON holds, and values."""
_KEYS = {"version", "step", "samples", "batch_size", "plan", "loader"}
_FIELDS = {
    *("order", "token_count", "window", "targets", "stride", "seed", "shuffle", "piece_windows", "pieces_at_once"),
    *("phase", "documents", "skipped", "scheme", "corpus", "corpus_kind", "tokenizer", "boundary_loss"),
}
"""What may differ with `allow`."""


def state_of(plan: Plan, step: int, identity: Identity) -> dict[str, Any]:
    """Return the state of a trainer that has taken `step` steps."""
    size = plan.batch_size
    return {
        "version": VERSION,
        "step": step,
        "samples": plan.first_sample(step),
        "batch_size": size if isinstance(size, int) else [list(pair) for pair in size],
        "plan": {**plan.fingerprint_fields, "fingerprint": plan.fingerprint},
        "loader": dict(identity),
    }


def plan_of_state(
    state: Mapping[str, Any], plan: Plan, identity: Identity, *, allow: Collection[str], index: Path | None
) -> tuple[Plan, int]:
    """Return the plan to go on with, and the step.

    Args:
        state: what `state_of` returned, perhaps through JSON.
        plan: of the loader. What was taken under other batch sizes stays taken: up to the step, those of the state are
            kept, and from it on those of the plan.
        identity: of the loader.
        allow: names of fields that may differ.
        index: `shards.json` of the corpus, where it has one.

    Raises:
        PlanError: it is no state, or fields differ that are not allowed to; all of them are named.
    """
    allowed = _checked_allow(allow)
    _check_form(state)
    there = {name: value for name, value in state["plan"].items() if name not in {"fingerprint", "corpus"}}
    here = {name: value for name, value in plan.fingerprint_fields.items() if name != "corpus"}
    there, here = {**there, **state["loader"]}, {**here, **identity}
    differing = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    refused = [name for name in differing if name not in allowed]
    if refused:
        problems = [Problem(name, _difference(name, there.get(name), here.get(name), index)) for name in refused]
        raise PlanError(
            f"the state is of another run: {', '.join(refused)} differ{'s' * (len(refused) == 1)}. Go on with what it was "
            f"saved with or, to continue all the same, name what may differ: allow={refused!r}",
            problems=problems,
        )
    step = checked_int("step", state["step"], least=0)
    samples = checked_int("samples", state["samples"], least=0)
    if "skipped" in differing:
        _require_same_past(there.get("skipped", []), plan, samples)
    merged = _with_past(plan, state["batch_size"], step)
    if step > merged.step_limit or merged.first_sample(step) != samples:
        raise PlanError(
            f"the state counts {samples} samples in {step} steps, which its batch sizes {state['batch_size']} do not make of "
            "this plan"
        )
    return merged, step


def _checked_allow(allow: object) -> list[str]:
    names: list[Any] = (
        [allow] if isinstance(allow, str) or not isinstance(allow, Collection) else list(cast("Any", allow))
    )
    unknown = [name for name in names if not isinstance(name, str) or name not in _FIELDS]
    if unknown:
        raise PlanError(
            f"allow: {', '.join(sorted(map(str, unknown)))}: no such field; there are {', '.join(sorted(_FIELDS))}"
        )
    return names


def _check_form(state: object) -> None:
    """Refuse what `state_of` cannot have returned."""
    if not isinstance(state, Mapping):
        raise PlanError(f"wanted what state_dict() returned, found {type(state).__name__}")
    found = {str(key) for key in state}  # pyright: ignore[reportUnknownVariableType]  # any mapping
    if found != _KEYS:
        missing, unknown = ", ".join(sorted(_KEYS - found)), ", ".join(sorted(found - _KEYS))
        parts = [f"{name}: {keys}" for name, keys in (("it lacks", missing), ("unknown", unknown)) if keys]
        raise PlanError(f"wanted what state_dict() returned, found a mapping of other keys ({'; '.join(parts)})")
    version: Any = state["version"]  # pyright: ignore[reportUnknownVariableType]  # likewise
    if type(version) is not int or version != VERSION:
        raise PlanError(f"version: the state has {version!r}, this Headrace reads {VERSION}")
    for name in ("plan", "loader"):
        if not isinstance(state[name], Mapping):
            raise PlanError(f"{name}: wanted a mapping, found {type(state[name]).__name__}")
        for field, value in cast("Mapping[Any, Any]", state[name]).items():
            if not isinstance(field, str) or not isinstance(value, str | int | list | None):
                raise PlanError(
                    f"{name}: {field!r} is of the type {type(value).__name__}, which is nothing that state_dict() returns: the "
                    "state is damaged"
                )
    fields: dict[str, Any] = dict(state["plan"])
    if fields.pop("fingerprint", "") != fingerprint_of(fields):
        raise PlanError("plan: its fingerprint is not that of its fields: the state is damaged")


def _difference(name: str, there: object, here: object, index: Path | None) -> str:
    if name == "seed":
        there, here = (int(value, 16) if isinstance(value, str) else value for value in (there, here))
    text = f"the state has {_shown(there)}, this loader {_shown(here)}"
    if name == "corpus" and index is not None and isinstance(there, str):
        text += _version_that_fits(index, there)
    return text


def _shown(value: object) -> str:
    return "none" if value is None or value == "" else str(value)


def _version_that_fits(index: Path, fingerprint: str) -> str:
    """Say how to open the corpus as it was, if its folder still knows."""
    from headrace.storage.versions import read_version  # noqa: PLC0415  # only where something is wrong

    try:
        read_version(index, fingerprint)
    except (HeadraceError, ValueError):
        return ""
    return f"; the folder keeps that version: headrace.open({str(index.parent)!r}, version={fingerprint!r})"


def _require_same_past(skipped: object, plan: Plan, samples: int) -> None:
    """Refuse to skip what was taken already: the samples taken would be others than those that were."""
    then, now = Skips.of(skipped), Skips.of(plan.skipped)
    end = then.to_order(samples - 1) + 1 if samples else 0
    if then.below(end) != now.below(end):
        raise PlanError(
            f"skipped: of the {samples} samples that the state has taken some are skipped in this plan, or were skipped and "
            "are not; load a state from before them"
        )


def _with_past(plan: Plan, batch_size: Any, step: int) -> Plan:  # noqa: ANN401  # from JSON; the plan checks it
    """Return the plan with the batch sizes that were, up to a step."""
    merged = replace(plan, batch_size=batch_size).rebatched(step, plan.batch_size)
    return plan if merged == plan else merged
