from __future__ import annotations

import os

import pytest

from gnnsafe.files import replacing, writable


def test_replacing_is_all_or_nothing(tmp_path):
    path = tmp_path / "new" / "file.txt"
    with replacing(path) as part:
        part.write_text("whole")
    assert path.read_text() == "whole"

    def interrupted() -> None:
        with replacing(path) as part:
            part.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "whole"
    assert list(path.parent.iterdir()) == [path]


def test_a_link_is_followed(tmp_path):
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to(tmp_path / "real.txt")
    with replacing(tmp_path / "link.txt") as part:
        part.write_text("new")
    assert (tmp_path / "real.txt").read_text() == "new"
    assert (tmp_path / "link.txt").is_symlink()


def test_a_name_as_long_as_names_may_be(tmp_path):
    path = writable("--out", tmp_path / ("n" * 250 + ".html"), file="page.html")
    with replacing(path) as part:
        part.write_text("page")
    assert path.read_text() == "page"


def test_what_can_be_written(tmp_path):
    path = tmp_path / "not" / "yet" / "there.html"
    assert writable("--out", path, file="page.html") == path
    assert not (tmp_path / "not").exists()
    assert writable("--out", tmp_path, file="page.html") == tmp_path / "page.html"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("file/page.html", "Not a directory"), ("n" * 300, "File name too long"), ("pipe", "it is no regular file")],
)
def test_what_cannot(tmp_path, name, reason):
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match=rf"'--out' must be a file that can be written \(got '.*': .*{reason}\)"):
        writable("--out", tmp_path / name, file="page.html")
