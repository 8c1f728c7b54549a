"""Listening to a stream: nothing is changed, every line is heard, nothing is raised."""

from __future__ import annotations

import io

from akeso.script.output import Listener


def stream() -> tuple[io.BytesIO, io.TextIOWrapper]:
    raw = io.BytesIO()
    return raw, io.TextIOWrapper(raw, encoding="utf-8", newline="\n")


def test_lines_are_heard_whole_however_they_are_written() -> None:
    raw, text = stream()
    heard: list[tuple[str, bool]] = []
    listener = Listener(text, lambda line, whole: heard.append((line, whole)))
    assert listener.install()
    print("loss", 0.5, "acc", 0.9, file=text)
    print("a\nb", end="", file=text)
    assert not listener.at_line_start
    print("c", file=text)
    print("10%", end="\r", file=text)
    text.write("\r 20%\r\n")
    assert listener.at_line_start
    text.flush()
    assert heard == [
        ("loss 0.5 acc 0.9", True), ("a", True), ("bc", True), ("10%", False), (" 20%", False),
    ]  # fmt: skip
    assert raw.getvalue() == b"loss 0.5 acc 0.9\na\nbc\n10%\r\r 20%\r\n"


def test_the_stream_is_as_it_was_afterwards() -> None:
    _, text = stream()
    listener = Listener(text, lambda line, whole: None)
    listener.install()
    assert "write" in vars(text)
    listener.remove()
    listener.remove()
    assert "write" not in vars(text)


def test_an_error_of_the_listener_does_not_reach_the_script_and_one_of_the_stream_does() -> None:
    raw, text = stream()
    listener = Listener(text, lambda line, whole: 1 / 0)  # type: ignore[arg-type,return-value]
    listener.install()
    text.write("fine\n")
    text.flush()
    assert raw.getvalue() == b"fine\n"
    raised = ""
    try:
        text.write(b"bytes")  # type: ignore[arg-type]
    except TypeError as error:
        raised = str(error)
    assert "str" in raised


def test_endless_lines_take_bounded_memory_and_a_stream_that_allows_nothing_is_left_alone() -> None:
    _, text = stream()
    heard: list[str] = []
    listener = Listener(text, lambda line, whole: heard.append(line))
    listener.install()
    for _ in range(1000):
        text.write("x" * 1000)
    text.write("\n")
    assert [len(line) for line in heard] == [2000]
    assert not Listener(None, lambda line, whole: None).install()
