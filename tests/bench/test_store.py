from __future__ import annotations

import json
import random
from dataclasses import asdict, replace

import pytest
import xxhash

from gnnsafe.bench.store import opened, read, select, write
from gnnsafe.errors import InputError
from gnnsafe.metrics import Detection
from gnnsafe.report.results import as_csv, order_sections


def test_what_is_written_is_read(tmp_path, record):
    first, second = record(created="2", ood="a"), record(created="1", seed=3, error="TrainingError: no")
    write(tmp_path, [first])
    write(tmp_path, [second])
    assert read(tmp_path) == ([second, first], 0)
    assert sorted(path.name.rsplit("-", 1)[0] for path in tmp_path.iterdir()) == [
        "cora-label-gcn-0",
        "cora-label-gcn-3",
    ]
    assert first.detection == Detection(**first.metrics)
    assert read(tmp_path / "nowhere") == ([], 0)


def put(folder, *lines: str) -> None:
    """A file that says what it holds, whatever that is."""
    content = "".join(line + "\n" for line in lines).encode(errors="surrogatepass")
    (folder / f"cora-label-gcn-0-{xxhash.xxh3_64_hexdigest(content)}.jsonl").write_bytes(content)


def test_lines_that_are_no_records_are_counted(tmp_path, record):
    lines = [json.dumps(asdict(record())), json.dumps(asdict(record(method="Energy")))]
    put(tmp_path, *lines, lines[0][:80], json.dumps({"dataset": "cora"}), "[]", "[" * 100_000, "{}", "NaN", "\udcff")
    records, broken = read(tmp_path)
    assert [r.method for r in records] == ["MSP", "Energy"]
    assert broken == 7


def test_a_bit_that_flips_costs_the_file_and_is_counted(tmp_path, record):
    """A figure of another seed, of a record that is otherwise whole: nobody would see it in a table."""
    write(tmp_path, [record(auroc=0.9), record(method="Energy")])
    write(tmp_path, [record(seed=1)])
    path = next(tmp_path.glob("cora-label-gcn-0-*"))
    path.write_bytes(path.read_bytes().replace(b'"auroc": 0.9', b'"auroc": 0.1'))
    records, broken = read(tmp_path)
    assert ([r.seed for r in records], broken) == ([1], 2)
    path.rename(tmp_path / "all.jsonl")
    assert read(tmp_path)[1] == 2


HOSTILE = [None, True, -1, 10**400, 0.5, 2.0, float("nan"), float("inf"), "", "\x1b[31m", [], {}, [[]], {"a": 1}, "gcn"]


def test_one_odd_record_costs_no_report(tmp_path, record):
    """Every value in turn is another or gone: the record is left out and counted, or all of it can be reported."""
    draw, seen = random.Random(0), {0: 0, 1: 0}
    whole = asdict(record())
    ways = [(key,) for key in whole] + [
        (key, inner) for key in whole if isinstance(whole[key], dict) for inner in whole[key]
    ]
    for way in ways:
        for value in draw.sample(HOSTILE, 5):
            odd = json.loads(json.dumps(whole))
            (odd if len(way) == 1 else odd[way[0]])[way[-1]] = value
            for path in tmp_path.iterdir():
                path.unlink()
            put(tmp_path, json.dumps(asdict(record(method="Energy", seed=1))), json.dumps(odd))
            records, broken = read(tmp_path)
            seen[broken] += 1
            selection = select(records)
            assert len(selection.records) + len(selection.failures) + selection.left_out.total() == 2 - broken
            assert len(as_csv(selection.records).splitlines()) > 1
            order_sections(selection.records)
    assert seen[1] > 100
    assert seen[0] > 20


def test_a_folder_that_cannot_be_written_to(tmp_path):
    assert opened(tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"'--out' must be a folder that can be written to \(got '.*file'"):
        opened(tmp_path / "file")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"versions": {"gnnsafe": "0.0.9", "torch": "2"}}, "of gnnsafe 0.0.9"),
        ({"versions": {"gnnsafe": "1", "torch": "1"}}, "of torch 1"),
        ({"epochs": 50}, "of 50 epochs"),
        ({"data": "other"}, "of other data for cora"),
        ({"method_repr": "MSP(2)"}, "of other settings for MSP"),
        ({"objective_repr": "OutlierExposure()"}, "of other settings for MSP"),
        ({"versions": {"gnnsafe": "1", "torch": "2", "method": "edited"}}, "of other code for MSP"),
        ({"code": "edited"}, "of other settings for MSP"),
        ({"lr": 0.1}, "of other settings for MSP"),
        ({"chosen": {"lr": "0.01, lowest ID validation loss"}}, "of other settings for MSP"),
    ],
)
def test_records_that_are_not_comparable_are_left_out_and_counted(record, change, reason):
    old = [replace(record(created="1", seed=seed), **change) for seed in (0, 1)]
    new = [record(created="2", seed=seed) for seed in (0, 1)]
    assert old[0].key != new[0].key
    assert select([*old, *new]) == (new, [], {reason: 2})
    preferred = select([*old, *new], {r.key for r in old})
    assert preferred.records == old
    assert list(preferred.left_out.values()) == [2]


def test_other_data_sets_and_rows_of_orders_of_methods_stand_beside(record):
    records = [
        record(dataset="twitch", data="another"), record(backbone="gat"), record(method="Energy"),
        record(protocol="rigorous", objective_repr="another"), record(),
        record(method="GNNSafe", versions={"gnnsafe": "0.0.9", "torch": "2"}),  # of other code, as is the next
        record(backbone="mlp", versions={"gnnsafe": "0.0.9", "torch": "2"}),
    ]  # fmt: skip
    assert sorted(map(repr, select(records).records)) == sorted(map(repr, records))


def test_a_run_made_good_is_no_failure_and_the_last_record_counts(record):
    failed, again = record(created="1", error="no", metrics={}), record(created="2", seed=1, error="never", metrics={})
    first, second = record(created="2"), record(created="3", accuracy=0.9)
    assert select([failed, first, again, second]) == ([second], [again], {})


def test_selected_records_are_in_the_catalogues_order_whenever_they_were_made(record):
    given = [
        ("twitch", "domain", 0),
        ("cora", "label", 1),
        ("cora", "structure", 1),
        ("cora", "label", 0),
        ("else", "x", 0),
    ]
    records = [record(dataset=d, shift=s, seed=n, created=str(k)) for k, (d, s, n) in enumerate(given)]
    order = [(r.dataset, r.shift, r.seed) for r in select(records).records]
    assert order == [("cora", "structure", 1), ("cora", "label", 0), ("cora", "label", 1), ("twitch", "domain", 0),
                     ("else", "x", 0)]  # fmt: skip
