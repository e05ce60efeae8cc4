from __future__ import annotations

import io

from umma_jit.runtime._progress import ProgressBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_shows_how_far_and_wipes_itself():
    terminal = Terminal()
    with ProgressBar("emulating", stream=terminal, patience=0) as bar:
        bar.update(1, 4)
    text = terminal.getvalue()
    assert "emulating [########" in text
    assert "1/4" in text
    assert text.endswith("\r\x1b[K")


def test_shows_nothing_for_quick_work():
    terminal = Terminal()
    with ProgressBar("emulating", stream=terminal, patience=60) as bar:
        bar.update(1, 4)
    assert terminal.getvalue() == ""


def test_shows_nothing_without_a_terminal_or_when_switched_off():
    plain, terminal = io.StringIO(), Terminal()
    for stream, enabled in ((plain, True), (terminal, False)):
        with ProgressBar("emulating", stream=stream, enabled=enabled, patience=0) as bar:
            bar.update(1, 4)
        assert stream.getvalue() == ""


def test_works_where_there_is_no_stderr(monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    with ProgressBar("emulating", patience=0) as bar:
        bar.update(1, 4)


def test_nothing_to_do_is_done():
    with ProgressBar("emulating", stream=Terminal(), patience=0) as bar:
        bar.update(0, 0)
