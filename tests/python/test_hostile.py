# SPDX-License-Identifier: Apache-2.0
"""Files that somebody made to do harm: each is refused in one sentence, at once, and nothing else happens."""
import json
import os
import resource
import shutil
import struct
import subprocess

import forge
import pytest
from program import command, environment, refused, run, train_arguments

GIGABYTE = 1 << 30


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="session")
def finished(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("runs") / "finished"
    process = run(*train_arguments(folder, "train.epochs=1"), data=data)
    assert process.returncode == 0, process.stderr
    return folder


def within_limits():
    """Memory and processor time enough for torch and a small model, not for one of the size that a file merely speaks of.
    Time that is spent computing, a fraction of a second for an honest file: a busy machine makes it no longer."""
    resource.setrlimit(resource.RLIMIT_AS, (12 * GIGABYTE, 12 * GIGABYTE))
    resource.setrlimit(resource.RLIMIT_CPU, (10, 10))


def predict(folder, text="[MAX 1 2 ]\n", **options):
    return run("predict", folder, "--device", "cpu", input=text, preexec_fn=within_limits, **options)


def test_honest_files_are_within_the_limits(finished):
    assert predict(finished).returncode == 0


# ---- models


@pytest.mark.parametrize("labels, words", [
    ([], "0 labels"),
    (["0", "1"], "2 labels"),
    ([str(digit) for digit in range(11)], "11 labels"),
    ({"0": 1}, "list of labels"),
    (list(range(10)), "not a string"),
    ([""] * 10, "not a string"),
    (["x"] * 10, "twice"),
    (["x" * 300, *"123456789"], "256"),
    ("not json", "list of labels"),
])
def test_labels_that_do_not_fit_the_model(labels, words, finished, tmp_path):
    forge.with_metadata(finished / "model.safetensors", tmp_path / "run/model.safetensors", labels=labels)
    refused(predict(tmp_path / "run"), words, code=1)


@pytest.mark.parametrize("section, key, value", [
    ("model", "feedforward", 2**25),
    ("model", "max_length", 2**30),
    ("model", "vocab", 2**30),
    ("model", "classes", 2**30),
    ("model", "width", 65536),
    ("model", "blocks", 1024),
    ("model", "levels", 8),
    ("model", "kernel_size", 64),
    ("model", "projections", "per_level"),
    ("model", "psd", "cone"),
    ("model", "filter", "depthwise"),
    ("model", "weights", "uniform"),
    ("model", "positions", "learned"),
    ("model", "heads", 1),
    ("model", "heads", 0),
    ("model", "heads", None),
    ("data", "task", "nothing"),
])
def test_a_config_that_does_not_fit_the_tensors(section, key, value, finished, tmp_path):
    config = forge.config_of(finished / "model.safetensors")
    config[section][key] = value
    changes = {"config": config}
    if key == "classes":
        changes["labels"] = [str(i) for i in range(10)]
    forge.with_metadata(finished / "model.safetensors", tmp_path / "run/model.safetensors", **changes)
    process = predict(tmp_path / "run")
    refused(process, "model.safetensors", code=1)


def test_tensors_too_many_too_few_and_of_integers(finished, tmp_path):
    tensors, metadata = forge.read(finished / "model.safetensors")
    name, (dtype, shape, content) = next(iter(tensors.items()))
    for label, changed in {
        "more": {**tensors, "evil\n\x1b[2J": ("F32", [1], bytes(4))},
        "fewer": {key: value for key, value in tensors.items() if key != name},
        "integers": {**tensors, name: ("I32", shape, content)},
        "none": {},
    }.items():
        folder = tmp_path / label
        folder.mkdir()
        forge.write(folder / "model.safetensors", changed, metadata)
        process = predict(folder)
        assert process.returncode in (1, 2) and len(process.stderr.strip().splitlines()) == 1, process.stderr
        assert "\x1b" not in process.stderr


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "metrics.jsonl", "theory.json", "predictions.safetensors"])
def test_a_pipe_is_refused_not_waited_for(name, finished, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    (folder / name).unlink(missing_ok=True)
    if name == "model.safetensors":
        for state in folder.glob("state*"):
            state.unlink()
    os.mkfifo(folder / name)
    what = ["predict", folder] if name == "model.safetensors" else ["report", folder, "--out", tmp_path / "page.html"]
    process = subprocess.run(command(*what), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    # Predictions are an extra: the page is made without them.
    refused(process, name, "not a regular file", code=0 if name == "predictions.safetensors" else 1)
    assert (tmp_path / "page.html").exists() == (process.returncode == 0)


def test_an_enormous_header_is_read_in_linear_time(tmp_path):
    """50,000 empty tensors took half a minute."""
    entry = '"%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
    text = ("{" + ",".join(entry % i for i in range(50_000)) + "}").encode()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    refused(predict(tmp_path / "run"), "model.safetensors", code=1)


# ---- states


@pytest.mark.parametrize("changes", [
    {"epoch": 2}, {"epoch": -1}, {"batch": 10**9}, {"batch": -1}, {"step": 7}, {"step": 2**62}, {"best_epoch": 3},
    {"best_epoch": -1}, {"epoch": 0, "batch": 0, "step": 0, "finished": True, "best_epoch": 5},
    {"epoch_tally": [0.0, 5, 1]}, {"seconds": -1.0}, {"finished": 1}, {"best_loss": None},
    {"best_epoch": 0.5}, {"step": 1e300}, {"epoch_tally": [0.0, 0, 2**63 - 1]}, {"recent_tally": [0.0, 0, 2**64 - 1]},
])
def test_a_state_that_cannot_have_been_is_refused(changes, finished, data, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    (folder / "state.previous.safetensors").unlink(missing_ok=True)
    position = json.loads(forge.read(folder / "state.safetensors")[1]["position"])
    forge.with_metadata(finished / "state.safetensors", folder / "state.safetensors", position={**position, **changes})
    before = (folder / "metrics.jsonl").read_bytes()
    refused(run("train", "--resume", folder, data=data), "state.safetensors", code=1)
    assert (folder / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("what", ["generator", "parameter", "best"])
def test_a_state_that_lacks_a_part_is_refused(what, finished, data, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    (folder / "state.previous.safetensors").unlink(missing_ok=True)
    tensors, metadata = forge.read(folder / "state.safetensors")
    if what == "generator":
        tensors.pop("generator/cpu")
    if what == "parameter":
        tensors.pop("model/head.bias")
    if what == "best":
        tensors = {name: value for name, value in tensors.items() if not name.startswith("best/")}
    forge.write(folder / "state.safetensors", tensors, metadata)
    refused(run("train", "--resume", folder, data=data), "state.safetensors", code=1)


# ---- names and words from files


def with_labels(finished, folder, labels):
    forge.with_metadata(finished / "model.safetensors", folder / "model.safetensors", labels=labels)
    return folder


def test_a_label_cannot_forge_a_line(finished, tmp_path):
    """Whatever the model answers, it is one line, and no byte of it is for the terminal."""
    evil = [f"{i}\n9\t1.0000\x1b[2J\u202e\x9b" for i in range(10)]
    folder = with_labels(finished, tmp_path / "run", evil)
    process = predict(folder)
    assert process.returncode == 0, process.stderr
    assert len(process.stdout.splitlines()) == 1 and "\\n9" in process.stdout
    assert not any(char in process.stdout for char in "\x1b\u202e\x9b")
    answer = json.loads(run("predict", folder, "--json", input="[MAX 1 2 ]\n").stdout)
    assert answer["label"] in evil, "JSON says it as it is"
    page = tmp_path / "page.html"
    explained = run("explain", folder, "--text", "[MAX 1 2 ]", "--out", page)
    assert explained.returncode == 0 and len(explained.stdout.splitlines()) == 2 and "\x1b" not in explained.stdout


def text_of_data(page):
    return page.read_text().split('<script type="application/json" id="data">')[1].split("</script>")[0]


def data_of(page):
    return json.loads(text_of_data(page))


def test_a_label_cannot_end_the_script_of_a_page(finished, tmp_path):
    folder = with_labels(finished, tmp_path / "run", [f"<!--<script>{i}" for i in range(10)])
    page = tmp_path / "page.html"
    assert run("explain", folder, "--text", "[MAX 1 2 ]", "--out", page).returncode == 0
    assert "<" not in text_of_data(page) and data_of(page)["models"][0]["answers"][0].startswith("<!--<script>")


def test_labels_of_data_are_quoted(tmp_path, data):
    (tmp_path / "one.jsonl").write_text("".join(json.dumps({"label": "a\n\x1b[31mb", "text": "x"}) + "\n" for _ in range(9)))
    process = run("train", "text", "--set", f"data.train={tmp_path / 'one.jsonl'}", "--out", tmp_path / "run", data=data)
    refused(process, 'the label "a\\n\\x1b[31mb"')


def test_an_argument_with_control_characters_is_one_line(tmp_path):
    refused(run("predict", tmp_path / "a\nb\x1b[2J"), "a\\nb\\x1b[2J")


@pytest.mark.parametrize("where", ["experiment", "run", "model"])
@pytest.mark.parametrize("name", ["/../../runs", "..", "a/b", "", ".hidden", "a\nb", "x" * 200])
def test_names_in_results_are_names(where, name, tmp_path):
    results = json.loads(open(os.path.join(os.path.dirname(__file__), "../../results/listops-quick.json")).read())
    if where == "experiment":
        results["experiment"] = name
    if where == "run":
        results["runs"][0]["name"] = results["models"][0]["runs"][0] = name
    if where == "model":
        results["models"][0]["name"] = name
    (tmp_path / "results.json").write_text(json.dumps(results))
    victim = tmp_path / "runs/precious"
    victim.mkdir(parents=True)
    for arguments in (["reproduce", "--check", tmp_path / "results.json", "--run", name or "x", "--out", tmp_path / "runs"],
                      ["report", tmp_path / "results.json", "--out", tmp_path / "page.html"]):
        refused(run(*arguments), "folder names")
    assert victim.exists() and not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("path", [["where"], ["models", 0, "mean"], ["models", 0, "level_weights"], ["runs", 0, "epochs"],
                                  ["runs", 0, "test"], ["runs", 0, "theory"], ["comparisons", 0, "gain"], ["seeds"], ["budget"]])
@pytest.mark.parametrize("value", [[1, "x"], "text", {"a": []}])
def test_results_of_the_wrong_kind(path, value, tmp_path):
    results = json.loads(open(os.path.join(os.path.dirname(__file__), "../../results/listops-quick.json")).read())
    place = results
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    (tmp_path / "results.json").write_text(json.dumps(results))
    process = run("report", tmp_path / "results.json", "--out", tmp_path / "page.html")
    assert "json.exception" not in process.stderr
    if process.returncode != 0:
        refused(process, "results.json")
    assert (tmp_path / "page.html").exists() == (process.returncode == 0)


@pytest.mark.parametrize("path, value", [
    (["models", 0, "parameters"], 1e300), (["runs", 0, "parameters"], 0.5), (["seeds"], [0.5]), (["seeds"], [2**64 - 1]),
    (["runs", 0, "test"], {"accuracy": 0.5}),
])
def test_results_that_would_be_read_as_something_else(path, value, tmp_path):
    """A fraction as an integer; a score without the predictions with which --check compares its own."""
    results = json.loads(open(os.path.join(os.path.dirname(__file__), "../../results/listops-quick.json")).read())
    place = results
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    (tmp_path / "results.json").write_text(json.dumps(results))
    refused(run("report", tmp_path / "results.json", "--out", tmp_path / "page.html"), "contains no results")


# ---- metrics and theory of a run


@pytest.mark.parametrize("line", [
    '{"event": 7}', '{"event": "epoch", "epoch": "x"}', '{"event": "epoch", "validation_accuracy": []}',
    '{"event": "start", "parameters": 1e300}', '{"event": "epoch", "level_weights": [[1]]}', '{"event": "step", "loss": null}',
    '{"event": "epoch", "epoch": 0, "validation_accuracy": null, "best": true, "level_weights": [[[]]]}', "[]", "7", "{",
    '{"event": "epoch", "epoch": 18446744073709551615}', '{"event": "epoch", "epoch": 0, "theory": [{}]}',
    '{"event": "epoch", "epoch": 0, "theory": [{"heads": [7]}]}', '{"event": "epoch", "epoch": 0, "theory": [{"heads": 7}]}',
    '{"event": "epoch", "epoch": 0, "theory": [{"heads": [{"gaussianity": [{"kurtosis": 1.0}]}]}]}',
    '{"event": "epoch", "epoch": 0, "theory": {"x": 1}}', '{"event": "end", "best_validation_accuracy": {}}',
])
def test_metrics_of_the_wrong_kind_are_left_out(line, finished, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    assert run("report", folder, "--out", tmp_path / "before.html").returncode == 0
    with open(folder / "metrics.jsonl", "a") as file:
        file.write(line + "\n")
    process = run("report", folder, "--out", tmp_path / "page.html")
    assert process.returncode == 0, process.stderr
    assert data_of(tmp_path / "page.html") == data_of(tmp_path / "before.html")


def test_metrics_with_numbers_beyond_32_bits(finished, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    with open(folder / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"event": "start", "parameters": 2**40}) + "\n")
        file.write(json.dumps({"event": "epoch", "epoch": 2**31 - 1, "theory": []}) + "\n")
    assert run("report", folder, "--out", tmp_path / "page.html").returncode == 0
    [record] = data_of(tmp_path / "page.html")["runs"]
    assert record["parameters"] == 2**40 and record["probes"][-1]["epoch"] == 2**31


@pytest.mark.parametrize("theory", ["7", "[]", '{"model": 3}', '{"model": {"checksum": 4}, "claims": [], "blocks": []}',
                                    '{"model": {}, "claims": [7], "blocks": []}', '{"model": {}, "claims": "x", "blocks": 3}'])
def test_a_theory_of_the_wrong_kind_is_left_out(theory, finished, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    (folder / "theory.json").write_text(theory)
    process = run("report", folder, "--out", tmp_path / "page.html")
    assert process.returncode == 0 and "theory.json is not valid output of hkt theory" in process.stderr


@pytest.mark.parametrize("tensors", [
    {}, {"logits": ("F32", [4, 10], bytes(160))}, {"logits": ("F32", [4, 10], bytes(160)), "labels": ("I64", [3], bytes(24))},
    {"logits": ("F32", [4], bytes(16)), "labels": ("I64", [4], bytes(32))},
    {"logits": ("F32", [0, 10], b""), "labels": ("I64", [0], b"")},
])
def test_predictions_of_another_shape_are_left_out(tensors, finished, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    checksum = forge.read(folder / "model.safetensors")[1]["checksum"]
    forge.write(folder / "predictions.safetensors", tensors, {"split": "test", "model": checksum})
    process = run("report", folder, "--out", tmp_path / "page.html")
    assert process.returncode == 0 and "predictions.safetensors" in process.stderr
    assert len(process.stderr.strip().splitlines()) == 1


# ---- where things are written


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "model.safetensors", "state.safetensors"])
@pytest.mark.parametrize("what", ["report", "explain"])
def test_a_page_replaces_nothing_but_a_page(what, name, finished, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    before = (folder / name).read_bytes()
    extra = ["--text", "[MAX 1 2 ]"] if what == "explain" else []
    refused(run(what, folder, *extra, "--out", folder / name), name, "not an HTML page")
    assert (folder / name).read_bytes() == before


def test_a_page_replaces_a_page(finished, tmp_path):
    for _ in range(2):
        assert run("report", finished, "--out", tmp_path / "page.html").returncode == 0


def test_metrics_are_not_written_through_a_link(finished, data, tmp_path):
    folder, victim = tmp_path / "run", tmp_path / "victim"
    shutil.copytree(finished, folder)
    victim.write_text("precious")
    (folder / "metrics.jsonl").unlink()
    (folder / "metrics.jsonl").symlink_to(victim)
    refused(run("train", "--resume", folder, data=data), "metrics.jsonl", "symbolic link", code=1)
    assert victim.read_text() == "precious"


def test_a_folder_named_like_a_partial_file_stops_no_resume(finished, data, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    (folder / "model.safetensors.partial-1-0/inside").mkdir(parents=True)
    (folder / "state.safetensors.partial-1-1").write_text("half")
    process = run("train", "--resume", folder, data=data)
    assert process.returncode == 0, process.stderr
    assert (folder / "model.safetensors.partial-1-0/inside").exists()
    assert not (folder / "state.safetensors.partial-1-1").exists()


def test_two_processes_with_one_number_do_not_tear_a_cache(tmp_path):
    """As in two containers: the temporary name is not made of the process's number."""
    tools = shutil.which("unshare")
    if not tools or subprocess.run([tools, "-p", "-f", "true"], capture_output=True).returncode:
        pytest.skip("no namespace of processes can be made here")
    arguments = command("data", "prepare", "listops", "--train", 20000, "--validation", 10, "--test", 10)
    for _ in range(3):
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        both = [subprocess.Popen([tools, "-p", "-f", *arguments], env=environment(HKT_DATA=tmp_path / "cache"),
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        for process in both:
            out, error = process.communicate(timeout=120)
            assert process.returncode == 0, error
    assert not list((tmp_path / "cache").glob("*.partial-*"))


# ---- folders whose names are not UTF-8


def test_folders_that_are_not_utf8(finished, tmp_path):
    folder = os.fsencode(tmp_path) + b"/r\xff\x1b[2Jn"
    shutil.copytree(os.fsencode(finished), folder)
    for arguments in (["report", folder, "--out", str(tmp_path / "page.html")], ["predict", folder], ["explain", folder, "--text", "[MAX 1 2 ]", "--out", str(tmp_path / "e.html")]):
        process = subprocess.run([command()[0], *arguments], input=b"[MAX 1 2 ]\n", capture_output=True, timeout=60)
        assert process.returncode == 0, process.stderr
        assert b"json.exception" not in process.stderr and b"\x1b" not in process.stdout + process.stderr
    process = subprocess.run([command()[0], "train", "text", "--set", b"data.train=" + folder + b"/x.tsv", "--out", str(tmp_path / "new")],
                             capture_output=True, timeout=60)
    assert process.returncode == 2 and b"json.exception" not in process.stderr and b"UTF-8" in process.stderr
