# SPDX-License-Identifier: Apache-2.0
"""hkt predict: files in and out, probabilities of all labels, many lines, and writers that wait for answers."""
import json
import os
import pathlib
import pty
import random
import select
import signal
import subprocess

import pytest
from program import command, environment, refused, run, wait_until

models = pathlib.Path(__file__).resolve().parents[2] / "models"
MODEL = ["predict", models / "imdb-hkt", "--device", "cpu"]


def lines(count, seed=0):
    pick = random.Random(seed)
    words = (models / "reviews.txt").read_text().split()
    return [" ".join(pick.choice(words) for _ in range(1 + int(pick.expovariate(0.15)))) for _ in range(count)]


def answers(text, *options):
    process = run(*MODEL, "--json", *options, input=text)
    assert process.returncode == 0, process.stderr
    return [json.loads(line) for line in process.stdout.splitlines()]


def test_many_lines_keep_their_order(tmp_path):
    """More than one window; in another order every line has the same answer."""
    given = lines(5000)
    found = answers("\n".join(given))
    order = list(range(len(given)))
    random.Random(1).shuffle(order)
    other = answers("".join(given[i] + "\n" for i in order))
    assert len(found) == len(other) == len(given)
    for place, i in enumerate(order):
        assert other[place]["probabilities"] == pytest.approx(found[i]["probabilities"], abs=1e-4)
    assert len({round(answer["probability"], 3) for answer in found}) > 100, "all alike: nothing was compared"


def test_files_hold_what_the_streams_do(tmp_path):
    text = "\n".join(lines(50)) + "\n\nlast"
    (tmp_path / "in.txt").write_text(text)
    (tmp_path / "out.tsv").write_text("an older file")
    streamed = run(*MODEL, input=text)
    process = run(*MODEL, "--input", tmp_path / "in.txt", "--output", tmp_path / "out.tsv")
    assert process.returncode == streamed.returncode == 1 and process.stdout == "" and "1 of 52 lines" in process.stderr
    assert (tmp_path / "out.tsv").read_text() == streamed.stdout
    assert streamed.stdout.splitlines()[50].startswith("\t\tline 51: ") and len(streamed.stdout.splitlines()) == 52
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.tsv"]


def test_probabilities_of_all_labels():
    texts = (models / "reviews.txt").read_text()
    for answer in answers(texts):
        assert list(answer["probabilities"])[0] == answer["label"] and set(answer["probabilities"]) == {"neg", "pos"}
        assert sum(answer["probabilities"].values()) == pytest.approx(1) and max(answer["probabilities"].values()) == answer["probability"]
    assert [list(answer["probabilities"]) for answer in answers(texts, "--top", 1)] == [["neg"], ["pos"]]
    rows = [line.split("\t") for line in run(*MODEL, "--top", 2, input=texts).stdout.splitlines()]
    assert [row[0::2] for row in rows] == [["neg", "pos"], ["pos", "neg"]]
    assert [row[:2] for row in rows] == [line.split("\t") for line in run(*MODEL, input=texts).stdout.splitlines()]
    refused(run(*MODEL, "--top", 0, input=texts), "--top")


def test_files_that_cannot_be_used(tmp_path):
    (tmp_path / "in.txt").write_text("a film\n")
    refused(run(*MODEL, "--input", tmp_path / "none.txt"), "none.txt")
    refused(run(*MODEL, "--input", tmp_path), "not a regular file")
    refused(run(*MODEL, "--output", tmp_path / "none" / "out.tsv", input="a\n"), "out.tsv", "could not be written")
    refused(run(*MODEL, "--output", tmp_path, input="a\n"), "could not be written")
    refused(run(*MODEL, "--input", tmp_path / "in.txt", "--output", tmp_path / "." / "in.txt"), "the same file")
    assert (tmp_path / "in.txt").read_text() == "a film\n" and len(list(tmp_path.iterdir())) == 1


def test_an_interrupted_output_leaves_the_older_one(tmp_path):
    (tmp_path / "out.tsv").write_text("an older file")
    with subprocess.Popen(command(*MODEL, "--output", tmp_path / "out.tsv"), stdin=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          env=environment()) as process:
        process.stdin.write(b"a film\n")
        process.stdin.flush()
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2, process)  # it has begun
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130
    assert [path.name for path in tmp_path.iterdir()] == ["out.tsv"] and (tmp_path / "out.tsv").read_text() == "an older file"


def test_a_writer_that_waits_is_answered():
    with subprocess.Popen(command(*MODEL), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()) as process:
        for _ in range(3):
            process.stdin.write(b"a film\n")
            process.stdin.flush()
            assert select.select([process.stdout], [], [], 60)[0], "no answer while the input is open"
            assert len(os.read(process.stdout.fileno(), 1000).decode().split("\t")) == 2
        process.stdin.close()
        assert process.wait(60) == 0


def test_a_terminal_sees_a_bar_and_a_pipe_of_answers_none(tmp_path):
    (tmp_path / "in.txt").write_text("\n".join(lines(200)))
    leader, follower = pty.openpty()
    process = subprocess.Popen(command(*MODEL, "--input", tmp_path / "in.txt", "--output", tmp_path / "out.tsv"), stderr=follower, env=environment())
    os.close(follower)
    shown = b""
    while True:
        try:
            shown += os.read(leader, 4096)
        except OSError:  # it has ended
            break
    os.close(leader)
    assert process.wait(60) == 0 and "█" in shown.decode() and "200 lines" in shown.decode()
    assert run(*MODEL, "--input", tmp_path / "in.txt").stderr == ""
