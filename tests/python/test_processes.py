# SPDX-License-Identifier: Apache-2.0
"""Standard streams, signals and child processes: whatever happens around a run, its work is saved and its files stay whole."""
import json
import os
import resource
import shutil
import signal
import subprocess

import pytest
from program import TINY, command, environment, metrics, run, train_arguments, wait_until

LONG = ["train.epochs=1000000", "train.checkpoint_seconds=1000"]  # only a signal ends it, only a stop saves it


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    process = run(*train_arguments(tmp_path_factory.mktemp("first") / "run", "train.epochs=1"), data=folder)
    assert process.returncode == 0, process.stderr
    return folder


def start(*arguments, data, **options):
    options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **options}
    return subprocess.Popen(command(*arguments), env=environment(HKT_DATA=data), **options)


def steps(folder):
    """Of the whole lines: the run may be writing another one."""
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    whole = [json.loads(line) for line in lines if line.endswith("\n")]
    return [line["step"] for line in whole if line["event"] == "step"]


def saved_step(folder):
    content = (folder / "state.safetensors").read_bytes()
    header = json.loads(content[8:8 + int.from_bytes(content[:8], "little")])
    return json.loads(header["__metadata__"]["position"])["step"]


# ---- standard streams


def test_progress_that_cannot_be_written_stops_nothing(data, tmp_path):
    with open("/dev/full", "w") as full:
        process = start(*train_arguments(tmp_path / "run"), data=data, stderr=full)
        assert process.wait(60) == 0
    assert metrics(tmp_path / "run")[-1]["event"] == "end"


def test_errors_that_cannot_be_written_have_their_exit_code(tmp_path):
    with open("/dev/full", "w") as full:
        assert subprocess.run(command("predict", tmp_path / "nothing"), stdin=subprocess.DEVNULL, stderr=full).returncode == 2


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", ">&- 2>&-", "2>&-", ">&-"])
def test_closed_streams_do_not_become_files(closed, data, tmp_path):
    """The first file that is opened would get the number of a closed stream, and with it what is printed."""
    arguments = " ".join(f"'{argument}'" for argument in command(*train_arguments(tmp_path / "run")))
    process = subprocess.run(["sh", "-c", f"exec {arguments} {closed}"], env=environment(HKT_DATA=data))
    assert process.returncode == 0
    lines = metrics(tmp_path / "run")  # each is JSON
    assert lines[-1]["event"] == "end"
    assert (tmp_path / "run/config.json").read_text().startswith("{")


def test_a_reader_that_is_gone_does_not_end_a_run(data, tmp_path):
    """As when `hkt train 2>&1 | tee log` is interrupted and tee ends first."""
    read, write = os.pipe()
    process = start(*train_arguments(tmp_path / "run", *LONG), data=data, stdout=write, stderr=write)
    os.close(write)
    wait_until(lambda: len(steps(tmp_path / "run")) > 3, process)
    os.close(read)
    process.send_signal(signal.SIGTERM)  # says so on standard error
    assert process.wait(60) in (130, -signal.SIGPIPE), "its last words, once all is saved, may meet the closed pipe"
    assert saved_step(tmp_path / "run") >= steps(tmp_path / "run")[-1]


# ---- signals


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGXFSZ"])
def test_signals_that_ask_for_an_end_save(name, data, tmp_path):
    process = start(*train_arguments(tmp_path / "run", *LONG), data=data)
    wait_until(lambda: len(steps(tmp_path / "run")) > 3, process)
    process.send_signal(getattr(signal, name))
    assert process.wait(60) == 130
    assert saved_step(tmp_path / "run") >= steps(tmp_path / "run")[-1]


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_several_of_them_save_all_the_same(name, data, tmp_path):
    process = start(*train_arguments(tmp_path / "run", *LONG), data=data)
    wait_until(lambda: len(steps(tmp_path / "run")) > 3, process)
    for _ in range(20):
        process.send_signal(getattr(signal, name))
    assert process.wait(60) == 130
    assert saved_step(tmp_path / "run") >= steps(tmp_path / "run")[-1]


def test_nohup_is_respected(data, tmp_path):
    process = start(*train_arguments(tmp_path / "run", *LONG), data=data,
                    preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    wait_until(lambda: len(steps(tmp_path / "run")) > 3, process)
    process.send_signal(signal.SIGHUP)
    before = len(steps(tmp_path / "run"))
    wait_until(lambda: len(steps(tmp_path / "run")) > before + 3, process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 130


def test_metrics_at_the_limit_of_a_file_lose_no_work(data, tmp_path):
    """The limit is above a state's size and below what the metrics grow to: the state of the last step is there."""
    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    changes = [*LONG, "model.width=8", "model.heads=1", "model.feedforward=8", "model.levels=1"]
    process = start(*train_arguments(tmp_path / "run", *changes), data=data, preexec_fn=limited, stderr=subprocess.PIPE, text=True)
    _, error = process.communicate(timeout=120)
    assert process.returncode in (1, 130), error
    assert saved_step(tmp_path / "run") >= steps(tmp_path / "run")[-1]
    for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines():
        json.loads(line)


# ---- children of reproduce


def children_of(process):
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True).stdout.split()
    return [int(pid) for pid in found]


@pytest.fixture
def experiment(data, tmp_path):
    """hkt reproduce in the midst of two runs."""
    process = start("reproduce", "listops", "--out", tmp_path, "--jobs", 2, "--set", *TINY, *LONG, data=data,
                    stderr=subprocess.PIPE, text=True, start_new_session=True)
    folders = [tmp_path / "listops-quick" / f"{name}-seed0" for name in ("standard", "hkt")]
    wait_until(lambda: all(len(steps(folder)) > 3 for folder in folders), process, 120)
    process.folders = folders
    yield process
    if process.poll() is None:
        for child in children_of(process):
            os.kill(child, signal.SIGKILL)
        process.kill()
        process.wait()


@pytest.mark.skipif(not shutil.which("ps"), reason="ps is needed to find the children")
def test_a_signal_to_everybody_saves_every_run(experiment):
    """As a supervisor sends it: the children get it from there, and once more from their parent."""
    for pid in [*children_of(experiment), experiment.pid]:
        os.kill(pid, signal.SIGTERM)
    _, error = experiment.communicate(timeout=60)
    assert experiment.returncode == 130, error
    for folder in experiment.folders:
        assert saved_step(folder) >= steps(folder)[-1]


@pytest.mark.skipif(not shutil.which("ps"), reason="ps is needed to find the children")
def test_a_stopped_child_is_not_waited_for(experiment):
    for child in children_of(experiment):
        os.kill(child, signal.SIGSTOP)
    experiment.send_signal(signal.SIGINT)
    _, error = experiment.communicate(timeout=60)
    assert experiment.returncode == 130, error
    for folder in experiment.folders:
        assert saved_step(folder) >= steps(folder)[-1]


@pytest.mark.skipif(not shutil.which("ps"), reason="ps is needed to find the children")
def test_a_killed_child_is_told_as_killed(experiment):
    """And not by what an earlier process wrote into the same log."""
    for folder in experiment.folders:
        with open(f"{folder}.log", "r+") as log:
            log.write("hkt: an old complaint\n")
    os.kill(children_of(experiment)[0], signal.SIGKILL)
    _, error = experiment.communicate(timeout=60)
    assert experiment.returncode == 1
    last = error.strip().splitlines()[-1]
    assert "was ended by signal 9 (Killed)" in last and "seed0" in last


# ---- files that become shorter


def test_a_mapped_file_that_is_cut_ends_in_a_sentence(data, tmp_path):
    own = tmp_path / "data"
    shutil.copytree(data, own)
    process = start(*train_arguments(tmp_path / "run", *LONG), data=own, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: len(steps(tmp_path / "run")) > 3, process)
    [cache] = own.glob("listops-*.safetensors")
    os.truncate(cache, 100)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 1, error
    assert f"{cache} was truncated" in error
