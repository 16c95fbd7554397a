# SPDX-License-Identifier: Apache-2.0
"""Training through the program: checkpoints, killed and damaged runs, bad input, and what comes out."""
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import time

import pytest
from program import TINY, command, environment, metrics, refused, run, train_arguments, wait_until
from safetensors import safe_open
from safetensors.torch import load_file

EVERY_STEP = "train.checkpoint_seconds=0"


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="session")
def finished(tmp_path_factory, data):
    """A run that nothing disturbed. Not to be changed: copies may."""
    folder = tmp_path_factory.mktemp("runs") / "finished"
    process = run(*train_arguments(folder, EVERY_STEP), data=data)
    assert process.returncode == 0, process.stderr
    return folder


def start(*arguments, data, **options):
    return subprocess.Popen(command(*arguments), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                            env=environment(HKT_DATA=data), **options)


def resume(folder, data):
    process = run("train", "--resume", folder, data=data)
    assert process.returncode == 0, process.stderr
    return process


def numbers(folder):
    """The lines of metrics without what a clock says."""
    clocks = {"seconds", "tokens_per_second", "data_wait_share", "validation_seconds", "probe_seconds"}
    return [{key: value for key, value in line.items() if key not in clocks} for line in metrics(folder)]


def same_outcome(folder, other):
    assert (folder / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    ours, theirs = (load_file(run / "state.safetensors") for run in (folder, other))
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert tensor.equal(theirs[name]), name
    assert numbers(folder) == numbers(other)


def test_what_a_run_directory_holds(finished, data):
    lines = metrics(finished)
    assert lines[0]["event"] == "start" and lines[-1]["event"] == "end"
    epochs = [line for line in lines if line["event"] == "epoch"]
    assert len(epochs) == 3
    for line in epochs:
        assert len(line["level_weights"]) == 1 and len(line["level_weights"][0]) == 2
        for head in line["level_weights"][0]:
            assert sum(head) == pytest.approx(1, abs=1e-6)
    with safe_open(finished / "model.safetensors", "pt") as file:
        assert json.loads(file.metadata()["labels"]) == [str(digit) for digit in range(10)]
        assert json.loads(file.metadata()["config"]) == json.loads((finished / "config.json").read_text())
        count = sum(file.get_tensor(name).numel() for name in file.keys())
    assert count == lines[0]["parameters"]


def test_the_same_seed_gives_the_same_bits_and_another_does_not(finished, data, tmp_path):
    for seed in (0, 1):
        process = run(*train_arguments(tmp_path / str(seed), EVERY_STEP), "--seed", seed, data=data)
        assert process.returncode == 0, process.stderr
    same_outcome(tmp_path / "0", finished)
    assert (tmp_path / "1/model.safetensors").read_bytes() != (finished / "model.safetensors").read_bytes()


def count_lines(folder):
    path = folder / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_a_run_killed_twenty_times_ends_with_the_same_bits(finished, data, tmp_path):
    folder, kills, in_training, pick = tmp_path / "killed", 0, 0, random.Random(7)
    arguments = train_arguments(folder, EVERY_STEP)
    while kills < 20:
        process = start(*arguments, data=data)
        # Now and then before it begins; else after a few lines of metrics, at some moment of what follows them.
        lines = 0 if kills % 5 == 0 else count_lines(folder) + pick.randint(1, 3)
        while count_lines(folder) < lines and process.poll() is None:
            time.sleep(0.001)
        time.sleep(pick.uniform(0, 0.03))
        in_training += process.poll() is None and count_lines(folder) > 0
        process.kill()
        process.communicate()
        kills += 1
        if (folder / "config.json").exists():
            arguments = ["train", "--resume", folder]
    assert in_training >= 10
    resume(folder, data)
    same_outcome(folder, finished)
    assert not list(folder.glob("*partial*"))


def test_a_run_killed_while_it_writes_a_checkpoint_ends_with_the_same_bits(finished, data, tmp_path):
    folder, hits = tmp_path / "killed", 0
    arguments = train_arguments(folder, EVERY_STEP)
    for _ in range(60):
        process = start(*arguments, data=data)
        while process.poll() is None and not (
                folder.exists() and any("state.next.safetensors.partial-" in name for name in os.listdir(folder))):
            pass
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL, "it ended before it was killed often enough"
        hits += bool(list(folder.glob("state.next.safetensors.partial-*")))
        if (folder / "config.json").exists():
            arguments = ["train", "--resume", folder]
        if hits == 3:
            break
    assert hits == 3, "it was not killed in mid-write"
    resume(folder, data)
    same_outcome(folder, finished)


def test_a_checkpoint_that_cannot_be_written_ends_in_a_sentence_and_nothing_is_lost(finished, data, tmp_path):
    folder = tmp_path / "limited"
    size = (finished / "state.safetensors").stat().st_size // 2  # no state is that small
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    process = start(*train_arguments(folder, EVERY_STEP), data=data)
    wait_until(lambda: count_lines(folder) >= 5, process)
    process.kill()
    process.communicate()
    process = start("train", "--resume", folder, data=data, preexec_fn=limit)
    _, error = process.communicate()
    assert process.returncode == 1 and "state.next.safetensors could not be written: File too large." in error
    assert not list(folder.glob("*partial*"))
    resume(folder, data)
    same_outcome(folder, finished)


def test_interrupted_once_it_saves_and_stops(finished, data, tmp_path):
    folder = tmp_path / "stopped"
    process = start(*train_arguments(folder, "train.checkpoint_seconds=1000"), data=data)
    wait_until(lambda: count_lines(folder) >= 5, process)
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130
    assert len(metrics(folder)) < len(metrics(finished))
    resume(folder, data)
    assert (load_file(folder / "model.safetensors").keys() == load_file(finished / "model.safetensors").keys())
    ours, theirs = load_file(folder / "model.safetensors"), load_file(finished / "model.safetensors")
    assert all(tensor.equal(theirs[name]) for name, tensor in ours.items())


def test_interrupted_twice_it_stops_at_once(data, tmp_path):
    folder = tmp_path / "stopped"
    process = start(*train_arguments(folder, "train.epochs=500", "train.checkpoint_seconds=1000"), data=data)
    wait_until(lambda: count_lines(folder) > 0, process)
    os.kill(process.pid, signal.SIGSTOP)  # both must come before it can have stopped by itself
    states = {path: path.stat().st_mtime_ns for path in folder.glob("state*")}
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    os.kill(process.pid, signal.SIGCONT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert not any(line["event"] == "end" for line in metrics(folder))
    assert {path: path.stat().st_mtime_ns for path in folder.glob("state*")} == states, "it took the time to save"


def test_resuming_a_finished_run_changes_nothing(finished, data, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "copy")
    resume(folder, data)
    same_outcome(folder, finished)


def damage(path, how):
    content = bytearray(path.read_bytes())
    if how == "cut":
        content = content[: len(content) // 3]
    elif how == "flipped":
        content[len(content) // 2] ^= 1
    elif how == "empty":
        content = b""
    else:
        content = b"something else entirely"
    path.unlink()
    path.write_bytes(content)


@pytest.mark.parametrize("how", ["cut", "flipped", "empty", "foreign"])
def test_a_damaged_state_gives_way_to_the_one_before(finished, data, tmp_path, how):
    folder = shutil.copytree(finished, tmp_path / "copy")
    damage(folder / "state.safetensors", how)
    damage(folder / "model.safetensors", how)
    process = resume(folder, data)
    assert "state.safetensors" in process.stderr and "Using the previous checkpoint, of step" in process.stderr
    same_outcome(folder, finished)

    damage(folder / "state.safetensors", how)
    damage(folder / "state.previous.safetensors", how)
    refused(run("train", "--resume", folder, data=data), "state.safetensors", code=1)


def test_the_state_of_another_run_is_refused(finished, data, tmp_path):
    folder = tmp_path / "other"
    assert run(*train_arguments(folder), "--seed", 5, data=data).returncode == 0
    for name in ("state.safetensors", "state.previous.safetensors"):
        shutil.copy(finished / name, folder / name)
    refused(run("train", "--resume", folder, data=data), "has a different config", code=1)


def test_a_damaged_model_is_made_good_from_the_state(finished, data, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "copy")
    good = run("eval", folder, "--json", data=data)
    damage(folder / "model.safetensors", "flipped")
    process = run("eval", folder, "--json", data=data)
    assert process.returncode == 0 and process.stdout == good.stdout
    assert "is damaged" in process.stderr
    damage(folder / "state.safetensors", "flipped")
    process = run("eval", folder, "--json", data=data)
    assert process.returncode == 0 and "state.previous.safetensors" in process.stderr
    damage(folder / "state.previous.safetensors", "flipped")
    refused(run("eval", folder, data=data), "is damaged", code=1)


def test_data_that_changed_since_the_run_began_is_noticed(data, tmp_path):
    make_text(tmp_path / "train.tsv", 40, "tsv")
    changes = [change for change in TINY if change.startswith(("model", "train"))]
    arguments = ["train", "text", "--out", "run", "--set", *changes, "data.train=train.tsv"]
    assert run(*arguments, data=data, cwd=tmp_path).returncode == 0
    assert run("eval", tmp_path / "run", "--split", "validation", data=data).returncode == 0, "a relative path was kept"
    make_text(tmp_path / "train.tsv", 30, "tsv")
    refused(run("train", "--resume", tmp_path / "run", data=data), "the data has changed since")


def test_lost_lines_of_metrics_do_no_harm(finished, data, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "copy")
    lines = (folder / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_bytes(b"".join(lines[:3]))
    resume(folder, data)
    assert len(metrics(folder)) == 3


def test_padding_to_the_full_length_gives_the_same_loss(data, tmp_path):
    losses = []
    for padding in ("batch", "full"):
        folder = tmp_path / padding
        process = run(*train_arguments(folder, "model.dropout=0", "train.epochs=1", f"train.padding={padding}"), data=data)
        assert process.returncode == 0, process.stderr
        losses.append([line["loss"] for line in metrics(folder) if line["event"] == "step"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_bfloat16_on_the_cpu(finished, data, tmp_path):
    process = run(*train_arguments(tmp_path / "half", "train.precision=bfloat16", "train.epochs=1"), data=data)
    assert process.returncode == 0, process.stderr
    first, half = metrics(finished), metrics(tmp_path / "half")
    assert half[0]["precision"] == "bfloat16"
    assert half[1]["loss"] == pytest.approx(first[1]["loss"], rel=2e-2) and half[1]["loss"] != first[1]["loss"]


def test_patience_ends_a_run_early(data, tmp_path):
    process = run(*train_arguments(tmp_path / "run", "train.learning_rate=0", "train.epochs=9", "train.patience=2"), data=data)
    assert process.returncode == 0, process.stderr
    last = metrics(tmp_path / "run")[-1]
    assert last["reason"] == "patience" and last["best_epoch"] == 0
    assert sum(line["event"] == "epoch" for line in metrics(tmp_path / "run")) == 3


def test_a_loss_that_is_not_finite_stops_the_run(data, tmp_path):
    folder = tmp_path / "run"
    process = run(*train_arguments(folder, "train.learning_rate=9.9", "train.weight_decay=9.9", "train.gradient_norm=0",
                                   "train.warmup=0", EVERY_STEP), data=data)
    refused(process, "is not finite", "of step", folder, code=1)
    parameters = [tensor for name, tensor in load_file(folder / "state.safetensors").items() if name.startswith("model/")]
    assert parameters and all(tensor.isfinite().all() for tensor in parameters)
    assert metrics(folder)[-1]["event"] == "diverged" and f"of step {metrics(folder)[-1]['step']} " in process.stderr


def test_two_processes_in_one_folder(data, tmp_path):
    folder = tmp_path / "run"
    first = start(*train_arguments(folder, "train.epochs=500"), data=data)
    wait_until((folder / "state.safetensors").exists, first)
    refused(run("train", "--resume", folder, data=data), "another process is training")
    refused(run(*train_arguments(folder), data=data), "already contains a run", "--resume")
    first.kill()
    first.communicate()


def test_evaluation_and_prediction(finished, data, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "copy")
    process = run("eval", folder, "--split", "test", "--json", data=data)
    result = json.loads(process.stdout)
    predictions = load_file(folder / "predictions.safetensors")
    right = predictions["logits"].argmax(1).eq(predictions["labels"])
    assert result["sequences"] == 64 and result["accuracy"] == pytest.approx(right.double().mean().item())
    assert sum(row["sequences"] for row in result["labels"]) == 64

    lines = ["[MAX 4 [MIN 7 2 ] 3 ]", "[SM 1 2 3 ]"] * 40
    process = run("predict", folder, data=data, input="\n".join(lines) + "\n")
    answers = process.stdout.splitlines()
    assert len(answers) == 80 and len(set(answers)) == 2
    label, probability = answers[0].split("\t")
    assert label in "0123456789" and 0.05 < float(probability) <= 1


def test_lines_that_cannot_be_answered_are_marked_and_the_rest_is_answered(finished):
    lines = ["[MAX 4 3 ]", "", "[MAX 1 2", "[MAX " + "1 " * 70 + "]", "x" * 2_000_000, "[MIN 4 3 ]\r"]
    for ending in ("\n", ""):
        process = run("predict", finished, input="\n".join(lines) + ending)
        answers = process.stdout.splitlines()
        assert process.returncode == 1 and "4 of 6 lines could not be labelled" in process.stderr
        assert [len(answer.split("\t")) for answer in answers] == [2, 3, 3, 3, 3, 2]
        for number, words in {2: "empty", 3: "missing", 4: "72 tokens", 5: "more than 1048576 bytes"}.items():
            label, probability, why = answers[number - 1].split("\t")
            assert label == probability == "" and why.startswith(f"line {number}: ") and words in why
    answers = [json.loads(line) for line in run("predict", finished, "--json", input="\n".join(lines)).stdout.splitlines()]
    assert [answer["label"] is None for answer in answers] == [False, True, True, True, True, False]
    assert "line 3" in answers[2]["error"]


def make_text(path, count, form):
    """Texts that are easy to tell apart: the label is named in them."""
    pick, lines = random.Random(3), []
    for i in range(count):
        label = ["poor", "fine"][i % 2]
        text = " ".join(pick.choice(["a", "film", "of", "words"]) for _ in range(6)) + (" !!!!" if label == "fine" else " ....")
        lines.append(f"{label}\t{text}" if form == "tsv" else json.dumps({"label": label, "text": text}))
    path.write_text("\n".join(lines) + "\n")


def test_one_label_alone_cannot_be_learned(data, tmp_path):
    texts = tmp_path / "texts.tsv"
    texts.write_text("good\ta fine film\n" * 20)
    process = run("train", "text", "--out", tmp_path / "run", "--set", f"data.train={texts}", f"data.test={texts}", data=data)
    refused(process, "label \"good\"", "two labels")


@pytest.mark.parametrize("form", ["tsv", "jsonl"])
def test_a_users_own_texts(data, tmp_path, form):
    make_text(tmp_path / f"train.{form}", 200, form)
    make_text(tmp_path / f"test.{form}", 40, form)
    changes = [change for change in TINY if change.startswith(("model", "train"))]
    process = run("train", "text", "--threads", 1, "--out", tmp_path / "run", "--set", *changes, "model.max_length=24",
                  "train.epochs=8", "train.learning_rate=0.01", f"data.train={tmp_path}/train.{form}", f"data.test={tmp_path}/test.{form}", data=data)
    assert process.returncode == 0, process.stderr
    assert "are longer than model.max_length, 24, and are cut there" in process.stdout
    result = json.loads(run("eval", tmp_path / "run", "--json", data=data).stdout)
    assert [row["label"] for row in result["labels"]] == ["fine", "poor"]
    process = run("predict", tmp_path / "run", data=data, input="a film !!!!\na film ....\n")
    assert [line.split("\t")[0] for line in process.stdout.splitlines()] == ["fine", "poor"]


BAD = [
    (["train", "listopps", "--out", "o"], ["listopps", "nearest", "listops"]),
    (["train", "no-such.json", "--out", "o"], ["no-such.json"]),
    (["train", "listops"], ["--out"]),
    (["train", "--out", "o"], ["preset"]),
    (["train", "listops", "--out", "o", "--set", "model.levls=2"], ["levls", "levels"]),
    (["train", "listops", "--out", "o", "--set", "levels=2"], ["section.key=value"]),
    (["train", "listops", "--out", "o", "--set", "train.epochs=0"], ["train.epochs is 0"]),
    (["train", "listops", "--out", "o", "--set", "model.width=30"], ["multiple of model.heads"]),
    (["train", "listops", "--out", "o", "--set", "data.max_tokens=9999"], ["data.max_tokens", "model.max_length"]),
    (["train", "listops", "--out", "o", "--set", "data.min_tokens=600"], ["data.min_tokens", "data.max_tokens"]),
    (["train", "listops", "--out", "o", "--set", "data.train=x.tsv"], ["data.train", "\"text\""]),
    (["train", "listops", "--out", "o", "--set", "model.classes=3", *TINY], ["model.classes is 3", "10 labels"]),
    (["train", "text", "--out", "o"], ["data.train"]),
    (["train", "text", "--out", "o", "--set", "data.train=none.tsv"], ["none.tsv"]),
    (["train", "listops", "--out", "o", "--device", "tpu"], ["tpu", "cuda"]),
    (["train", "listops", "--out", "o", "--set", "train.device=gpu"], ["train.device", "cuda"]),
    (["train", "listops", "--out", "o", "--set", "train.deterministic=1"], ["train.deterministic is 1", "true or false"]),
    (["train", "listops", "--out", "o", "--threads", "0"], ["--threads"]),
    (["train", "--resume", "nowhere"], ["nowhere", "contains no run"]),
    (["train", "listops", "--resume", "x"], ["--resume"]),
    (["eval", "nowhere"], ["nowhere", "not a folder"]),
    (["predict", "."], ["contains no model"]),
    (["train", "listops", "--out", "o", "--set", "format.x=1"], ["format", "model"]),
    (["train", "listops", "--out", "o", "--set", "model.levels=" + "[" * 5000], ["nested"]),
    (["train", "x" * 300, "--out", "o"], ["neither a preset"]),
    (["train", "listops", "--out", "o" * 300, "--set", *TINY], ["File name too long"]),
    (["reproduce", "listops", "--set", "train.seed=3"], ["train.seed"]),
    (["reproduce", "listop"], ["listop", "nearest"]),
    (["reproduce", "listops", "--budget", "huge"], ["huge", "quick or full"]),
    (["trian"], ["trian", "train"]),
    (["train", "listops", "--outt", "o"], ["--outt"]),
    ([], ["ubcommand"]),
]


@pytest.mark.parametrize("arguments, words", BAD, ids=[" ".join(arguments)[:60] for arguments, _ in BAD])
def test_bad_input_is_refused_in_a_sentence(arguments, words, data, tmp_path):
    refused(run(*arguments, data=data, cwd=tmp_path), *words)
    assert not (tmp_path / "o").exists()


def test_a_split_or_config_that_is_not_there(finished, data, tmp_path):
    refused(run("eval", finished, "--split", "tests", data=data), "tests", "nearest")
    (tmp_path / "bad.json").write_text('{"format": 1, "model": {"levels": 99}}')
    refused(run("train", tmp_path / "bad.json", "--out", tmp_path / "o", data=data), "bad.json", "model.levels is 99")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/thing").write_text("mine")
    refused(run(*train_arguments(tmp_path / "full"), data=data), "is not empty")
    assert (tmp_path / "full/thing").read_text() == "mine"


def test_data_that_leaves_nothing_for_validation(data, tmp_path):
    (tmp_path / "few.tsv").write_text("fine\ta\npoor\tb\n")
    refused(run("train", "text", "--out", tmp_path / "o", "--set", f"data.train={tmp_path}/few.tsv", data=data), "0 validation sequences")
    assert not (tmp_path / "o").exists()


def test_a_full_disk_loses_nothing(finished, data, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    size = (finished / "model.safetensors").stat().st_size + (finished / "state.safetensors").stat().st_size * 5 // 2
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        folder = disk / "run"
        process = run(*train_arguments(folder, EVERY_STEP), data=data)
        assert process.returncode == 1 and "No space left on device" in process.stderr, process.stderr
        assert sum(line.startswith("hkt: ") for line in process.stderr.splitlines()) == 1, process.stderr
        saved = shutil.copytree(folder, tmp_path / "run")
    finally:
        subprocess.run(["umount", disk], check=True)
    resume(saved, data)
    same_outcome(saved, finished)


@pytest.mark.parametrize("name", [[], ["train"], ["eval"], ["predict"], ["reproduce"], ["info"], ["data"]])
def test_help(name):
    process = run(*name, "--help")
    assert process.returncode == 0 and "Usage" in process.stdout
    assert name in ([], ["data"]) or "Example" in process.stdout


def test_info():
    facts = json.loads(run("info", "--json").stdout)
    assert isinstance(facts["processor_features"], list) and isinstance(facts["gpus"], list)
    assert facts["torch"] == "2.11.0" and facts["cpu_kernels"] in ("portable", "avx2", "avx512", "avx512_bf16")
    process = subprocess.run(command("info", "--json"), capture_output=True, text=True, env=environment(ATEN_CPU_CAPABILITY="default"))
    assert json.loads(process.stdout)["cpu_kernels"] == "portable"


def test_info_without_a_home():
    nowhere = {name: value for name, value in environment().items() if name not in ("HOME", "XDG_CACHE_HOME", "HKT_DATA")}
    process = subprocess.run(command("info"), capture_output=True, text=True, env=nowhere)
    assert process.returncode == 0 and "neither HKT_DATA nor HOME is set" in process.stdout, process.stderr
    facts = subprocess.run(command("info", "--json"), capture_output=True, text=True, env=nowhere)
    assert json.loads(facts.stdout)["data"] is None


def test_version():
    process = run("--version")
    assert process.returncode == 0 and process.stdout.startswith("hkt ") and len(process.stdout.splitlines()) == 1
