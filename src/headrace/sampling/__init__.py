"""Which windows a step reads: pure arithmetic on token positions, no input or output.

`keys` (seed to key words) -> `permutation` (a keyed bijection of window numbers) and `philox` (uniform words) -> the
orders: `uniform` (random starts), `shuffles` (all windows of an epoch), `local` (within large pieces), `phases` (where
blocks are cut) -> `windows` (how many a corpus has, and which targets they serve), `schedule` (the rows of each step),
`skips` (samples left out), `fields` (what a plan is made of), `steps` (steps and samples) -> `plan` (step, rank ->
starts) and `inverse` (the way back).
"""

from headrace.sampling.inverse import Places
from headrace.sampling.plan import Plan

__all__ = ["Places", "Plan"]
