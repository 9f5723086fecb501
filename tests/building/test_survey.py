"""The first pass over the sources: the same documents as the build's, the same faults, in the same processes."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import headrace
from headrace.building import passes
from headrace.building.engine import Listener, PoolEngine, SerialEngine
from headrace.building.faults import BadDocumentsError, FaultyInputError
from headrace.building.job import ContentOptions, Hooks
from headrace.building.place import Place, start_of
from headrace.building.processes import Workers
from headrace.building.survey import Survey, SurveyJob
from headrace.errors import BuildError
from headrace.sources import Discovery, discover

CUT = 1 << 16
LINES = 6000


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> Path:
    """A file of several cuts, with empty and bad lines, a compressed one, and text files."""
    folder = tmp_path_factory.mktemp("sources") / "in"
    folder.mkdir()
    lines = [json.dumps({"text": "" if n % 7 == 0 else f"document {n}"}) if n % 501 else "bad" for n in range(LINES)]
    (folder / "a.jsonl").write_text("\n".join(lines))
    (folder / "b.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    for name in ("c", "d"):
        (folder / f"{name}.txt").write_text(name)
    return folder


def listed(sources: Path) -> Discovery:
    """The sources, cut."""
    return discover([str(sources)], cut_bytes=CUT)


def jobs_of(sources: Path, output: Path, **options: object) -> list[SurveyJob]:
    """A job for each source shard."""
    wanted = replace(ContentOptions(boundary_token_id=0, on_bad_input="skip", cut_bytes=CUT), **options)
    return [SurveyJob(shard=shard, options=wanted, output=output) for shard in listed(sources).shards]


def surveyed(engine: object, jobs: list[SurveyJob]) -> dict[tuple[int, int], Survey]:
    """What each job found."""
    found: dict[tuple[int, int], Survey] = {}
    engine.run(jobs, Listener(outcome=lambda survey: found.update({survey.key: survey})))
    return found


@pytest.mark.parametrize("options", [{}, {"keep_empty": True}, {"max_bad": 1.0, "text_field": "other"}])
def test_it_counts_what_the_build_keeps(sources, tmp_path, monkeypatch, options):
    """Of each source, documents and lines are those of a build with the same options, in one process and in several."""
    monkeypatch.setattr("headrace.building.build.CUT_BYTES", CUT)
    jobs = jobs_of(sources, tmp_path, **options)
    found = surveyed(SerialEngine(None), jobs)
    assert [*found] == [job.shard.key for job in jobs]
    assert surveyed(PoolEngine(None, 2), jobs) == found
    assert sum(survey.rows for survey in found.values()) == LINES
    headrace.build(sources, tmp_path / "c", on_bad_input="skip", **options)
    index = json.loads((tmp_path / "c" / "shards.json").read_bytes())
    counts = [0] * len(index["sources"])
    for survey in found.values():
        counts[min(survey.key[0], 2)] += survey.documents
    kept = [source["documents"] for source in index["sources"]]
    assert counts[:3] == [*kept[:2], sum(kept[2:])]


@pytest.mark.parametrize("options", [{"on_bad_input": "error"}, {"max_bad": 0.0001}])
def test_it_stops_at_the_builds_faults(sources, tmp_path, monkeypatch, options):
    """A bad document ends it with the error of the build: the same words, the same places."""
    monkeypatch.setattr("headrace.building.build.CUT_BYTES", CUT)
    monkeypatch.setattr(passes, "with_more", lambda error, *_: error)  # of the build alone
    with pytest.raises(FaultyInputError) as built:
        headrace.build(sources, tmp_path / "c", workers=1, **{"on_bad_input": "skip", **options})
    with pytest.raises(FaultyInputError) as found:
        surveyed(SerialEngine(None), jobs_of(sources, tmp_path, **options))
    assert str(found.value) == str(built.value)


@pytest.mark.parametrize("options", [{}, {"dedup": "exact"}, {"sample_seed": 1}])
def test_all_bad_documents_are_counted(tmp_path, options):
    """Those behind the batch that has the first of them too: as many are counted as there are places."""
    bad = [3, 4_000, 4_001, 11_000, 19_999]
    lines = ["bad" if row in bad else json.dumps({"text": f"document {row} " * 5}) for row in range(20_000)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    with pytest.raises(BadDocumentsError, match=r"^5 bad documents; ") as found:
        headrace.build(tmp_path / "a.jsonl", tmp_path / "c", workers=1, **options)
    assert [drop.row for drop in found.value.drops] == bad


def test_it_tells_where_it_reads(sources, tmp_path):
    """So that the place is known where a process dies: where it begins, then behind what was read."""
    (job,) = [job for job in jobs_of(sources, tmp_path) if job.shard.files[0].label == "b.jsonl"]
    told: list[Place] = []
    job.run(None, Hooks(at=told.append))
    assert told == [start_of(job.shard), Place(("b.jsonl after line ", 2))]


def test_a_worker_that_dies_is_replaced(sources, tmp_path):
    """Its source shard is read once more, and the counts are those of one process."""
    jobs = jobs_of(sources, tmp_path)
    found: list[Survey] = []
    told: list[str] = []
    with Workers() as workers:

        def kill(*_: object) -> None:
            if not told and workers.all[0].job:
                workers.all[0].process.kill()

        PoolEngine(None, 2, workers=workers).run(jobs, Listener(outcome=found.append, progress=kill, retry=told.append))
    assert len(told) == 1
    assert told[0].startswith("a worker died (signal 9: Killed) ")
    assert {survey.key: survey for survey in found} == surveyed(SerialEngine(None), jobs)


def test_the_folder_is_removed(sources, tmp_path):
    """As in the build, that is said."""
    output = tmp_path / "c"
    output.mkdir()
    with pytest.raises(BuildError, match=r"is gone: the folder was removed"):
        SerialEngine(None).run(
            jobs_of(sources, output), Listener(outcome=lambda _: shutil.rmtree(output, ignore_errors=True))
        )
