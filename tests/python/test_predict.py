# SPDX-License-Identifier: Apache-2.0
"""hkt predict: files in and out, probabilities of all labels, many lines, and writers that wait for answers."""
import csv
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


def test_texts_in_a_column(tmp_path):
    """Fields with separators, quotes and line ends; the same in every form, and as lines where they are lines."""
    texts = [line.replace(" ", ", ", 1) for line in lines(20)]
    texts[3], texts[4] = 'said "never', 'two\nlines'
    with (tmp_path / "in.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["id", "review"], *enumerate(texts)])
    (tmp_path / "in.tsv").write_text("".join(f"{i}\t{text}\n" for i, text in enumerate(texts) if i != 4))
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"review": text, "id": 1}) + "\n" for text in texts))
    found = {}
    for form, column in (("csv", "review"), ("csv", "2"), ("jsonl", "review"), ("tsv", 2)):
        process = run(*MODEL, "--input", tmp_path / f"in.{form}", "--text", column, "--json")
        assert process.returncode == 0, process.stderr
        found[form, column] = [json.loads(line)["probability"] for line in process.stdout.splitlines()]
    expected = [answer["probability"] for i, answer in enumerate(answers("\n".join(text for i, text in enumerate(texts) if i != 4)))]
    assert found["tsv", 2] == pytest.approx(expected, abs=1e-4)
    assert found["csv", "review"] == pytest.approx(found["jsonl", "review"], abs=1e-4) and len(found["csv", "review"]) == 20
    assert found["csv", "2"][1:] == pytest.approx(found["csv", "review"], abs=1e-4), "by number the first line is a text, too"
    del found["csv", "review"][4]
    assert found["csv", "review"] == pytest.approx(expected, abs=1e-4)


def test_rows_that_cannot_be_read_are_marked(tmp_path):
    (tmp_path / "in.csv").write_text('review,stars\ngood,1\nbad\n,2\nfine,3\n"open')
    process = run(*MODEL, "--input", tmp_path / "in.csv", "--text", "review")
    assert process.returncode == 1
    marks = [line.split("\t")[2] if line.startswith("\t\t") else "" for line in process.stdout.splitlines()]
    assert [bool(mark) for mark in marks] == [False, True, True, False, True]
    assert "row 2" in marks[1] and "has 1 fields; the first line has 2" in marks[1] and "row 5" in marks[4]
    (tmp_path / "in.jsonl").write_text('{"text": "good"}\n{"text": 3}\nnot json\n{"other": "x"}\n')
    process = run(*MODEL, "--input", tmp_path / "in.jsonl", "--text", "text")
    assert process.returncode == 1 and [line.startswith("\t\t") for line in process.stdout.splitlines()] == [False, True, True, True]


@pytest.mark.parametrize("name, content, column, words", [
    ("in.csv", "a,b\n1,2\n", "review", ["review", '"a"', '"b"']),
    ("in.csv", "", "1", ["in.csv is empty"]),
    ("in.txt", "a\n", "1", [".csv", ".tsv", ".jsonl"]),
    ("in.csv", "a,a\n1,2\n", "a", ["several columns"]),
])
def test_columns_that_are_not_there(tmp_path, name, content, column, words):
    (tmp_path / name).write_text(content)
    refused(run(*MODEL, "--input", tmp_path / name, "--text", column), *words)


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
