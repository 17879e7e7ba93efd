"""`python -m benchmarks.codes FOLDER OTHER`: how far the figures of two folders of records, of two versions, lie apart.

For each method the AUROC in percent of the runs that both folders have (data set, shift, protocol, backbone, seed and
OOD graph): how many there are, the mean of the second folder's less the first's, and the largest difference of a
single run and of a mean over seeds, with where it is.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Hashable
from pathlib import Path
from statistics import fmean

from gnnsafe.bench.store import Record, read, select

Run = tuple[Hashable, ...]


def runs(folder: Path) -> dict[Run, Record]:
    """The records that may stand in tables, by what was run."""
    return {
        (r.method, r.protocol, r.selection, r.backbone, r.dataset, r.shift, r.ood, r.seed): r
        for r in select(read(folder)[0]).records
    }


def line(method: Hashable, differences: dict[Run, float]) -> str:
    """One row: of this method's runs the mean difference, and the largest ones."""
    settings: dict[Run, list[float]] = defaultdict(list)
    for run, value in differences.items():
        settings[run[4:7]].append(value)
    means = {setting: fmean(values) for setting, values in settings.items()}
    where = max(means, key=lambda setting: abs(means[setting]))
    worst = max(differences.values(), key=abs)
    cells = [str(method), str(len(differences)), f"{fmean(differences.values()):+.3f}", f"{worst:+.2f}"]
    return " | ".join(["", *cells, f"{means[where]:+.2f}", " ".join(map(str, where)), ""]).strip()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.codes", description=__doc__)
    parser.add_argument("folders", nargs=2, type=Path, metavar="FOLDER")
    first, second = (runs(folder) for folder in parser.parse_args().folders)
    of: dict[Hashable, dict[Run, float]] = defaultdict(dict)
    for run in first.keys() & second.keys():
        of[run[0]][run] = 100 * (second[run].metrics["auroc"] - first[run].metrics["auroc"])
    versions = [sorted({r.versions["gnnsafe"] for r in found.values()}) for found in (first, second)]
    print(f"AUROC of {' and '.join(versions[1])} less that of {' and '.join(versions[0])}, in percent:\n")
    print("| method | runs | mean | largest, one run | largest, mean of seeds | where |\n|---|--:|--:|--:|--:|---|")
    for method in sorted(of, key=str):
        print(line(method, of[method]))


if __name__ == "__main__":
    main()
