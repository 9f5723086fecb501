"""`headrace build --sample-seed`."""

import json

from headrace.manifest import read_manifest


def test_a_sample(headrace, tmp_path):
    """What is left out at random is counted, and no list is said to tell of it; a seed below 0 is exit 2."""
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": f"text {number}"}) + "\n" for number in range(9)))
    command = ["build", str(tmp_path / "a.jsonl"), "-o", str(tmp_path / "c")]
    ran = headrace(*command, "--sample-seed", "7", "--max-documents", "4")
    assert ran.code == 0
    rows = dict(line.split("  ", 1) for line in ran.out.splitlines())
    assert {name.strip(): value.strip() for name, value in rows.items()}.items() >= {
        ("documents", "9 in, 4 kept"),
        ("dropped", "5 not sampled"),
    }
    assert read_manifest(tmp_path / "c").options["sample_seed"] == 7
    assert headrace(*command, "--sample-seed", "-1").code == 2
