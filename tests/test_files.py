from __future__ import annotations

import errno
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from gnnsafe.files import locked, replacing, writable


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


def test_a_link_is_followed_where_the_user_names_it_and_else_replaced(tmp_path):
    real, link = tmp_path / "real.txt", tmp_path / "link.txt"
    real.write_text("old")
    link.symlink_to(real)
    with replacing(writable("--out", link, file="")) as part:
        part.write_text("new")
    assert (real.read_text(), link.is_symlink()) == ("new", True)
    with replacing(link) as part:
        part.write_text("ours")
    assert (real.read_text(), link.read_text(), link.is_symlink()) == ("new", "ours", False)


def test_an_error_names_the_file(tmp_path):
    with pytest.raises(OSError, match=r"No space left on device: '.*scores.csv'"), replacing(tmp_path / "scores.csv"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


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


def test_a_loop_of_links_and_what_is_read_are_not_written_to(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    for path in (tmp_path / "a", tmp_path / "a" / "page.html"):
        with pytest.raises(ValueError, match=r"must be a file that can be written \(got '.*': Too many levels"):
            writable("--out", path, file="page.html")
    read = tmp_path / "nodes.csv"
    read.write_text("id")
    (tmp_path / "soft.csv").symlink_to(read)
    os.link(read, tmp_path / "hard.csv")
    for name in ("nodes.csv", "soft.csv", "hard.csv", "../" + tmp_path.name + "/nodes.csv"):
        with pytest.raises(
            ValueError, match=r"'--out' must be no file that is read \(got '.*', which is '.*nodes.csv'"
        ):
            writable("--out", tmp_path / name, file="", inputs=[tmp_path / "edges.csv", read])
    assert writable("--out", tmp_path / "other.csv", file="", inputs=[read]) == tmp_path / "other.csv"


def test_threads_that_write_side_by_side_keep_their_own(tmp_path):
    """Four threads and four files in one folder; a thread that ends in an error leaves nothing."""

    def written(thread: int) -> list[str]:
        path, seen = tmp_path / f"{thread}.txt", []
        for number in range(1, 101):
            with suppress(ZeroDivisionError), replacing(path) as part:
                part.write_text(f"{thread} {number}")
                assert number % 10 or 1 / 0
            seen.append(path.read_text())
        return seen

    with ThreadPoolExecutor(4) as pool:
        seen = list(pool.map(written, range(4)))
    last = [number if number % 10 else number - 1 for number in range(1, 101)]
    assert seen == [[f"{thread} {number}" for number in last] for thread in range(4)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{thread}.txt" for thread in range(4)]


def test_a_planted_link_is_not_followed_and_permissions_are_the_users(tmp_path, monkeypatch):
    secret = tmp_path / "secret.txt"
    secret.write_text("mine")
    monkeypatch.setattr("secrets.token_hex", lambda _: "guessed")
    (tmp_path / ".gnnsafe-guessed").symlink_to(secret)
    with pytest.raises(FileExistsError), replacing(tmp_path / "new.txt") as part:
        part.write_text("theirs")
    assert secret.read_text() == "mine"
    (tmp_path / ".gnnsafe-guessed").unlink()
    before = os.umask(0o027)
    try:
        with replacing(tmp_path / "new.txt") as part:
            part.write_text("new")
    finally:
        os.umask(before)
    assert (tmp_path / "new.txt").stat().st_mode & 0o777 == 0o640


def test_a_locked_folder_has_one_writer(tmp_path):
    """A thread that adds to a number in a file, slowly: without the lock sums are lost."""
    number = tmp_path / "number"
    number.write_text("0")

    def add(_: int) -> None:
        with locked(tmp_path):
            seen = int(number.read_text())
            time.sleep(0.001)
            number.write_text(str(seen + 1))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(40)))
    assert number.read_text() == "40"
    assert list(tmp_path.iterdir()) == [number]
