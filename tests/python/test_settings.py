# SPDX-License-Identifier: Apache-2.0
"""Settings: what `hkt config` says of them, completion in the shell, fine-tuning, runs that go on for longer, sweeps."""
import json
import shutil
import signal
import subprocess

import pytest
from program import TINY, command, environment, metrics, refused, run, train_arguments, wait_until
from safetensors.torch import load_file

STILL = ["train.learning_rate=0", "train.epochs=1"]  # the weights stay as they begin


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def finished(tmp_path_factory, data):
    """A run of two epochs. Not to be changed: copies may."""
    folder = tmp_path_factory.mktemp("runs") / "finished"
    process = run(*train_arguments(folder, "train.epochs=2", "train.checkpoint_seconds=0"), data=data)
    assert process.returncode == 0, process.stderr
    return folder


def weights(folder):
    return load_file(folder / "model.safetensors")


# ---- hkt config


def test_every_key_is_explained(finished):
    keys = json.loads(run("config", "--json").stdout)
    names = [key["key"] for key in keys]
    assert len(set(names)) == len(names)
    for key in keys:
        assert key["what"] and key["allowed"] and not key["what"].endswith("."), key
    config = json.loads((finished / "config.json").read_text())
    written = {f"{section}.{key}" for section in ("model", "train", "data") for key in config[section]}
    assert written <= set(names)
    assert [key["key"] for key in keys if key.get("for") == "classifiers"] == ["model.pooling", "model.classes"]
    assert next(key for key in keys if key["key"] == "model.levels")["allowed"] == "1 to 8"


def test_config_of_a_preset():
    keys = {key["key"]: key for key in json.loads(run("config", "text", "--set", "train.batch=7", "--json").stdout)}
    assert keys["data.task"]["default"] == "text" and keys["model.positions"]["default"] == "rotary"
    assert keys["train.batch"]["default"] == 7 and "data.max_depth" not in keys and "data.text" in keys
    text = run("config", "text").stdout
    assert "train.learning_rate" in text and "the highest learning rate" in text and "0.0 to below 10.0" in text
    refused(run("config", "txt"), "txt", "nearest", "text")
    refused(run("config", "text", "--set", "train.batch=0"), "train.batch is 0")
    refused(run("config", "--set", "train.batch=1"), "--set needs a preset")
    assert "config " in run("--help").stdout and "hkt config" in run("train", "--help").stdout


# ---- completion


def completed(script, line):
    """What bash offers behind this line."""
    ask = """source "$1"; COMP_LINE=$2; COMP_POINT=${#2}; read -ra COMP_WORDS <<< "${2//=/ = }"
[[ $2 == *" " ]] && COMP_WORDS+=(""); COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 )); _hkt; printf '%s\\n' "${COMPREPLY[@]}" """
    process = subprocess.run(["bash", "-c", ask, "-", script, line], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return process.stdout.split()


def test_the_shell_completes(tmp_path):
    script = tmp_path / "hkt.bash"
    script.write_text(run("completion", "bash").stdout)
    assert completed(script, "hkt tr") == ["train"]
    assert completed(script, "hkt data des") == ["describe"]
    assert completed(script, "hkt data describe x --js") == ["--json"]
    assert completed(script, "hkt train --res") == ["--resume"]
    assert completed(script, "hkt train text --set train.learn") == ["train.learning_rate="]
    assert completed(script, "hkt train text --set train.epochs=3 model.filter=d") == ["dense", "depthwise"]
    assert completed(script, "hkt tune text --grid model.filter=dense,de") == ["dense,dense", "dense,depthwise"]
    assert "listops-lra" in completed(script, "hkt train lis")
    assert len(completed(script, "hkt train text --set ")) > 50
    refused(run("completion", "fish"), "fish", "bash")


# ---- fine-tuning


def test_a_run_starts_from_the_weights_of_another(finished, data, tmp_path):
    process = run(*train_arguments(tmp_path / "a", *STILL, "model.dropout=0"), "--init", finished, data=data)
    assert process.returncode == 0, process.stderr
    ours, theirs = weights(tmp_path / "a"), weights(finished)
    assert ours.keys() == theirs.keys() and all(tensor.equal(theirs[name]) for name, tensor in ours.items())
    config = json.loads((tmp_path / "a/config.json").read_text())
    assert config["train"]["init"] == str(finished) and config["model"]["width"] == 16

    # Killed before its first state.
    for file in (tmp_path / "a").iterdir():
        if file.name != "config.json":
            file.unlink()
    process = run("train", "--resume", tmp_path / "a", data=data)
    assert process.returncode == 0, process.stderr
    assert all(tensor.equal(theirs[name]) for name, tensor in weights(tmp_path / "a").items())


def test_other_classes_get_a_new_head(data, tmp_path):
    for name, labels in (("two", "ab"), ("three", "xyz")):
        (tmp_path / f"{name}.tsv").write_text("".join(f"{label}\ttext {i} of {label}\n" for i in range(20) for label in labels))
    small = [change for change in TINY if change.startswith(("model", "train"))]
    train = ["train", "text", "--threads", 1, "--device", "cpu"]
    first = run(*train, "--out", tmp_path / "a", "--set", *small, f"data.train={tmp_path}/two.tsv", data=data)
    assert first.returncode == 0, first.stderr
    process = run(*train, "--init", tmp_path / "a", "--out", tmp_path / "b", "--set", *STILL, f"data.train={tmp_path}/three.tsv", data=data)
    assert process.returncode == 0, process.stderr
    assert "the head starts anew" in process.stderr
    ours, theirs = weights(tmp_path / "b"), weights(tmp_path / "a")
    heads = {name for name in ours if name.startswith("head.")}
    assert heads and all(ours[name].equal(theirs[name]) for name in ours.keys() - heads)
    assert ours["head.weight"].size(0) == 3


def test_weights_that_do_not_fit_are_refused(finished, data, tmp_path):
    def refuse(*changes, init=finished, words=()):
        refused(run(*train_arguments(tmp_path / "o", *changes), "--init", init, data=data), *words)
        assert not (tmp_path / "o").exists()

    refuse("model.width=32", words=["do not fit", "model.width is 16 there and 32 here"])
    refuse("model.levels=2", words=["do not fit", "model.levels is 3 there and 2 here"])
    refuse("model.blocks=2", words=["do not fit", "model.blocks is 1 there and 2 here"])
    refuse(init=tmp_path / "nowhere", words=["nowhere", "not a folder"])
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged/model.safetensors").write_bytes(b"x" * 100)
    refuse(init=tmp_path / "damaged", words=["damaged"])
    (tmp_path / "t.tsv").write_text("a\tx\nb\ty\n" * 20)
    process = run("train", "text", "--init", finished, "--out", tmp_path / "o", "--set", f"data.train={tmp_path}/t.tsv", data=data)
    refused(process, "model.vocab", "256")


# ---- longer runs


def rates(folder):
    return {line["step"]: line["learning_rate"] for line in metrics(folder) if line["event"] == "step"}


def test_a_run_goes_on_for_more_epochs(finished, data, tmp_path):
    whole = tmp_path / "whole"
    assert run(*train_arguments(whole, "train.epochs=4", "train.checkpoint_seconds=0"), data=data).returncode == 0
    longer, killed = shutil.copytree(finished, tmp_path / "longer"), shutil.copytree(finished, tmp_path / "killed")
    process = run("train", "--resume", longer, "--set", "train.epochs=4", data=data)
    assert process.returncode == 0, process.stderr
    assert "train.epochs is 4 and was 2" in process.stdout and "learning rate follows the schedule of 4 epochs" in process.stdout
    before, after = rates(finished), rates(longer)
    assert before.items() <= after.items(), "what was done stays"
    assert {step: rate for step, rate in after.items() if step > max(before)} == \
        {step: rate for step, rate in rates(whole).items() if step > max(before)}
    events = [line["event"] for line in metrics(longer)]
    assert events.count("extend") == 1 and events[-1] == "end" and events.count("epoch") == 4
    assert json.loads((longer / "config.json").read_text())["train"]["epochs"] == 4
    assert run("eval", longer, "--split", "validation", data=data).returncode == 0

    # Killed on the way: the same bits.
    child = subprocess.Popen(command("train", "--resume", killed, "--set", "train.epochs=4"), stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, env=environment(HKT_DATA=data))
    done = max(before)
    wait_until(lambda: max(rates(killed), default=0) > done + 3, child)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert run("train", "--resume", killed, data=data).returncode == 0
    assert (killed / "model.safetensors").read_bytes() == (longer / "model.safetensors").read_bytes()


def test_only_more_epochs_are_possible(finished, data, tmp_path):
    copy = shutil.copytree(finished, tmp_path / "copy")
    refused(run("train", "--resume", copy, "--set", "train.epochs=1", data=data), "train.epochs is 1", "finished 2 epochs")
    assert json.loads((copy / "config.json").read_text())["train"]["epochs"] == 2, "nothing was changed"
    refused(run("train", "--resume", copy, "--set", "train.batch=8", data=data), "only train.epochs=N")
    refused(run("train", "--resume", copy, "--set", "train.epochs=x", data=data), "train.epochs is \"x\"")
    early = tmp_path / "early"
    process = run(*train_arguments(early, "train.epochs=9", "train.patience=1", "train.learning_rate=0"), data=data)
    assert process.returncode == 0, process.stderr
    refused(run("train", "--resume", early, "--set", "train.epochs=12", data=data), "stopped early", "train.patience is 1")


# ---- sweeps


def tune(*arguments):
    return ["tune", "listops", "--jobs", 2, "--threads", 2, "--device", "cpu", *arguments]


def test_a_sweep_is_resumed_and_chooses_on_validation(data, tmp_path):
    arguments = tune("--out", tmp_path / "t", "--grid", "train.learning_rate=1e-6,0.01", "model.levels=1,2", "--set", *TINY)
    child = subprocess.Popen(command(*arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(HKT_DATA=data))
    first = tmp_path / "t/learning_rate=1e-6-levels=1/model.safetensors"
    wait_until(first.exists, child)
    child.send_signal(signal.SIGKILL)
    child.wait()
    process = run(*arguments, data=data)
    assert process.returncode == 0, process.stderr
    results = json.loads((tmp_path / "t/tune.json").read_text())
    scores = [one["best_validation"] for one in results["runs"]]
    assert len(scores) == 4 and scores == sorted(scores, reverse=True)
    assert results["chosen"] == results["runs"][0]["name"]
    for one in results["runs"]:
        folder = tmp_path / "t" / one["name"]
        config = json.loads((folder / "config.json").read_text())
        assert {f"train.learning_rate={config['train']['learning_rate']}", f"model.levels={config['model']['levels']}"} == \
            {change.replace("1e-6", "1e-06") for change in one["changes"]}
        end = metrics(folder)[-1]
        assert end["event"] == "end" and end["best_validation_accuracy"] == one["best_validation"]
        assert not (folder / "predictions.safetensors").exists(), "the test split is not for choosing"
    assert results["chosen"] in process.stdout and "best on validation" in process.stdout
    assert (tmp_path / "t/report.html").read_text().startswith("<!doctype html>")

    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "t").rglob("model.safetensors")}
    again = run(*arguments, "--json", data=data)
    assert json.loads(again.stdout) == results
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps, "a finished run was repeated"


@pytest.mark.parametrize("arguments, words", [
    ([], ["--grid"]),
    (["--grid", "levels=1,2"], ["section.key=value,value"]),
    (["--grid", "model.levels=1,99"], ["model.levels is 99"]),
    (["--grid", "model.levels=1,,2"], ["empty value"]),
    (["--grid", "model.levels=1,1"], ["\"1\" twice"]),
    (["--grid", "model.levels=1", "model.levels=2"], ["\"model.levels\" twice"]),
    (["--grid", "data.seed=1,2"], ["changes the data"]),
    (["--grid", "train.seed=" + ",".join(map(str, range(1001)))], ["more than 1000"]),
    (["--grid", "model.levls=1"], ["levls", "levels"]),
])
def test_a_grid_that_is_none_is_refused(arguments, words, data, tmp_path):
    refused(run("tune", "listops", *arguments, "--out", tmp_path / "o", "--set", *TINY, data=data), *words)
    assert not (tmp_path / "o").exists()
