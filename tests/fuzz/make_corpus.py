# SPDX-License-Identifier: Apache-2.0
"""Writes the corpus: small good inputs of every target, and the ones by which it was once attacked with success.
usage: HKT_BUILD=build python tests/fuzz/make_corpus.py     what was found by fuzzing (crash-*) stays"""
import bz2
import gzip
import io
import json
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

here = Path(__file__).parent
sys.path.insert(0, str(here.parent / "python"))
import forge  # noqa: E402

program = Path(os.environ.get("HKT_BUILD", here.parents[1] / "build")) / "hkt"


def put(target, name, content):
    path = here / "corpus" / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def put_file(target, name, source):
    put(target, name, source.read_bytes())


def hkt(*arguments, data):
    subprocess.run([program, *map(str, arguments)], check=True, env={**os.environ, "HKT_DATA": str(data)}, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)


# ---- archives


def tar(files, **options):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", **options) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            if isinstance(content, Path):
                entry.type, entry.linkname, content = tarfile.SYMTYPE, str(content), b""
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


def zipped(files):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


def archives():
    files = {"a.txt": b"one", "folder/b.txt": b"two" * 20}
    plain = tar(files)
    put("archive", "plain.tar", plain)
    put("archive", "ustar.tar", tar(files, format=tarfile.USTAR_FORMAT))
    put("archive", "a.tar.gz", gzip.compress(plain, mtime=0))
    put("archive", "a.tar.bz2", bz2.compress(plain))
    put("archive", "a.tar.xz", lzma.compress(plain))
    put("archive", "a.zip", zipped(files))
    put("archive", "outside.tar", tar({"../evil": b"x"}))
    put("archive", "absolute.tar", tar({"/evil": b"x"}))
    put("archive", "link.tar", tar({"link": Path("/etc/passwd")}))
    put("archive", "bomb.tar.gz", gzip.compress(tar({"zeros": bytes(1 << 17)}), mtime=0))
    put("archive", "many.tar.gz", gzip.compress(tar({str(i): bytes(60_000) for i in range(8)}), mtime=0))

    names = "\n".join(f"class{i}" for i in range(10)).encode()
    image = bytes([3]) + bytes(range(256)) * 12
    batches = {f"data_batch_{i}.bin": image for i in range(1, 6)}
    cifar = {"batches.meta.txt": names, **batches, "test_batch.bin": image}
    put("cifar", "good.tar.gz", gzip.compress(tar(cifar), mtime=0))
    put("cifar", "label.tar.gz", gzip.compress(tar({**cifar, "test_batch.bin": b"\x0b" + image[1:]}), mtime=0))
    put("cifar", "missing.tar.gz", gzip.compress(tar(batches), mtime=0))

    imdb = {f"aclImdb/{split}/{label}/0_{i}.txt": f"{label} {i}".encode()
            for split in ("train", "test") for label in ("neg", "pos") for i in range(2)}
    put("imdb", "good.tar.gz", gzip.compress(tar(imdb), mtime=0))
    put("imdb", "good.zip", zipped(imdb))
    put("imdb", "empty.zip", zipped({**imdb, "aclImdb/train/neg/0_9.txt": ""}))
    put("imdb", "twice.zip", zipped({**imdb, "other/train/neg/0_1.txt": "again"}))


# ---- texts


def texts():
    put("tsv", "plain.tsv", "pos\tgood film\nneg\tbad film\n")
    put("tsv", "mark.tsv", "\ufeffLabel\tText\r\npos\tgood\r\nneg\tbad\tfilm\r\n")
    put("tsv", "numbers.tsv", "10\tx\n9\ty\n-1\tz\n")
    put("tsv", "evil.tsv", "a\n\x1b[31m\tx\n")
    put("tsv", "bytes.tsv", b"a\t\xff\xfe\nb\t\x00\n")
    put("csv", "plain.csv", "pos,good film\nneg,bad film\n")
    put("csv", "quotes.csv", '\ufefflabel,text\r\npos,"a, ""b""\r\nc"\r\n"neg",5" tall\r\n')
    put("csv", "columns.csv", "id,text,label\n1,good,pos\n2,bad,neg\n")
    put("csv", "ragged.csv", "a,b\n\"c\",d,e\n")
    put("csv", "open.csv", 'a,b\nc,"d\n')
    put("csv", "behind.csv", '"a" ,b\n')
    put("csv", "bytes.csv", b"a,\xff\xfe\nb,\x00\n")
    put("columns", "names.csv", "id,review,stars\nstars,review,x\n1,good,5\n")
    put("columns", "numbers.csv", "id,review,stars\n3,2,x\n1,good,5\n")
    put("columns", "twice.csv", "a,a,b\na,b,c\n")
    put("columns", "none.csv", "a,b\nx,y\n")
    put("jsonl", "plain.jsonl", '{"label": "pos", "text": "good"}\n{"label": "neg", "text": "bad", "more": [1]}\n')
    put("jsonl", "numbers.jsonl", '{"label": 3, "text": "x"}\n{"label": 12, "text": "y"}\n')
    put("jsonl", "wrong.jsonl", '{"label": 1.5, "text": 7}\n[]\n')
    put("documents", "plain.jsonl", '{"text": "one"}\n{"id": 7, "text": "two\\n"}\n')
    put("documents", "mark.jsonl", '\ufeff{"text": "z\\u00f6"}\r\n{"text": ""}\r\n{"text": "last"}')
    put("documents", "wrong.jsonl", '{"text": "a\\u0000b"}\n[]\n{"text": 7}\n')
    put("expression", "nested", "[MAX 2 9 [MIN 4 7 ] 0 ]")
    put("expression", "binary", "( ( ( [SM 1 ) 2 ) ] )")
    put("expression", "all", "[MED 1 [SM 9 9 ] [MIN 3 4 ] ]")
    put("expression", "broken", "[MIN 10 [ ]")
    put("listops_file", "plain.tsv", "9\t[MAX 2 9 ]\n4\t[MIN 4 7 ]\n")
    put("listops_file", "wrong.tsv", "1\t[MAX 2 9 ]\nx\n")
    put("listops_file", "packed.tsv.gz", gzip.compress(b"9\t[MAX 2 9 ]\n", mtime=0))
    put("words", "controls", "a\nb\t\x1b[2J\x7f\u009b\u202e")
    put("words", "path", "../runs")
    put("words", "bytes", b"\xff\xc3(\xe0\x80\xaf\xf4\x90\x80\x80")
    put("predict_lines", "lines", "[MAX 1 2 ]\n\n[MIN 3 4 ]\r\nnonsense\n")
    put("predict_lines", "long", "[MAX " + "1 " * 40 + "]\n" + "x" * 3000)
    put("predict_lines", "bytes", b"\xff\x00\n[SM 1 2 ]")


def metrics():
    put("metrics", "wrong.jsonl", "".join(line + "\n" for line in (
        '{"event": 7}', '{"event": "epoch", "epoch": "x"}', '{"event": "start", "parameters": 1e300}',
        '{"event": "epoch", "level_weights": [[1]]}', '{"event": "step", "loss": null}', "[]", "{",
        '{"event": "epoch", "epoch": 0, "validation_accuracy": null, "best": true, "level_weights": [[[]]]}')))


# ---- JSON files and models, as hkt writes them and as it would not


def configs(tiny):
    put("config", "tiny.json", json.dumps(tiny))
    put("config", "empty.json", '{"format": 1}')
    put("config", "text.json", json.dumps({"format": 1, "data": {"task": "text", "train": "train.tsv", "test": "test.tsv"}}))
    put("config", "weights.json", json.dumps({"format": 1, "model": {"levels": 2, "weights": [0.5, 0.5], "positions": "rotary"}}))
    put("config", "wrong.json", '{"format": 2, "model": {"width": -1, "hedas": 4, "weights": [1, "x"]}, "train": 7}')


def smaller(results):
    """A results file with one run and one epoch."""
    results["runs"] = results["runs"][:1]
    results["models"] = results["models"][:1]
    results["runs"][0]["epochs"] = results["runs"][0]["epochs"][:1]
    results["runs"][0]["probes"] = results["runs"][0].get("probes", [])[:1]
    results["runs"][0]["theory"] = None
    return results


def results():
    path = here.parents[1] / "results" / "listops-quick.json"
    good = smaller(json.loads(path.read_text()))
    evil = smaller(json.loads(path.read_text()))
    evil["experiment"] = "/../../runs"
    wrong = smaller(json.loads(path.read_text()))
    wrong["models"][0]["level_weights"] = [["x"]]
    for target in ("results", "report_results"):
        put(target, "good.json", json.dumps(good))
        put(target, "path.json", json.dumps(evil))
        put(target, "wrong.json", json.dumps(wrong))


def safetensors(scratch):
    tensors = {"a": ("F32", [2, 3], bytes(24)), "b": ("I64", [2], bytes(16)), "c": ("BOOL", [4], b"\1\0\1\0"),
               "d": ("BF16", [3], bytes(6)), "none": ("F64", [0], b"")}
    for name, checksum in (("checked", True), ("plain", False)):
        forge.write(scratch / name, tensors, {"key": "value"}, checksum)
        put_file("safetensors", name, scratch / name)
    forge.write(scratch / "empty", {}, {})
    put_file("safetensors", "empty", scratch / "empty")
    put("safetensors", "short", (scratch / "plain").read_bytes()[:40])


def models(run, tiny):
    scratch = run.parent
    model = run / "model.safetensors"
    put_file("predict_with_model", "good", model)
    put_file("explain_with_model", "good", model)
    labels = [str(i) for i in range(10)]
    changed = {
        "no-labels": {"labels": []},
        "label-missing": {"labels": labels[:-1]},
        "label-lines": {"labels": [f"{i}\n9\t1.0\x1b[2J" for i in range(10)]},
        "feedforward": {"config": {**tiny, "model": {**tiny["model"], "feedforward": 2**25}}},
        "max-length": {"config": {**tiny, "model": {**tiny["model"], "max_length": 2**30}}},
        "levels": {"config": {**tiny, "model": {**tiny["model"], "levels": 3}}},
    }
    for name, changes in changed.items():
        forge.with_metadata(model, scratch / name, **changes)
        put_file("predict_with_model", name, scratch / name)
    forge.with_metadata(model, scratch / "script", labels=[f"<!--<script>{i}" for i in range(10)])
    put_file("explain_with_model", "script", scratch / "script")


def states(run):
    scratch = run.parent
    state = run / "state.safetensors"
    put_file("resume_state", "finished", state)
    position = json.loads(forge.read(state)[1]["position"])
    for name, changes in {"epoch": {"epoch": 7}, "batch": {"batch": 10**9}, "begun": {
            "epoch": 0, "batch": 1, "step": 1, "finished": False, "best_epoch": -1}}.items():
        forge.with_metadata(state, scratch / name, position={**position, **changes})
        put_file("resume_state", name, scratch / name)


def bundles(run):
    def bundle(**files):
        return b"\n".join(f"#file {name}\n".encode() + (content.encode() if isinstance(content, str) else content)
                          for name, content in files.items())
    scratch = run.parent
    config, lines = (run / "config.json").read_text(), (run / "metrics.jsonl").read_text()
    put("metrics", "good.jsonl", lines)
    put("report_run", "good", bundle(**{"config.json": config, "metrics.jsonl": lines}))
    put("report_run", "theory", bundle(**{"config.json": config, "metrics.jsonl": lines,
                                          "theory.json": '{"model": {}, "claims": [7], "blocks": []}'}))
    put("report_run", "wrong", bundle(**{"config.json": config, "metrics.jsonl": '{"event": "epoch", "epoch": []}\n',
                                         "predictions.safetensors": "x"}))
    # Of the model only the checksum is read.
    forge.write(scratch / "model", {"a": ("F32", [1], bytes(4))}, {})
    forge.write(scratch / "predictions", {"logits": ("F32", [2, 3], bytes(24)), "labels": ("I64", [2], bytes(16))},
                {"split": "test", "model": forge.read(scratch / "model")[1]["checksum"]})
    put("report_run", "predictions", bundle(**{
        "config.json": config, "model.safetensors": (scratch / "model").read_bytes(),
        "predictions.safetensors": (scratch / "predictions").read_bytes()}))
    score = {"split": "test", "model": forge.read(scratch / "model")[1]["checksum"], "sequences": 2, "correct": 1, "accuracy": 0.5, "loss": 1,
             "labels": [{"label": "a", "sequences": 1, "recall": 1}, {"label": "b", "sequences": 1, "recall": 0}], "macro_f1": None,
             "confusion": {"a": {"a": 1}, "b": {"a": 1}}, "calibration": {"expected_error": 0.1, "bins": [{"sequences": 2, "confidence": 0.6, "accuracy": 0.5}]},
             "mistakes": [{"example": 2, "label": "b", "probability": 0.4, "predicted": "a", "predicted_probability": 0.6, "text": "x"}]}
    put("report_run", "score", bundle(**{"config.json": config, "model.safetensors": (scratch / "model").read_bytes(), "score.json": json.dumps(score)}))
    put("report_run", "epoch-of-32-bits", bundle(**{
        "config.json": config, "metrics.jsonl": '{"event": "epoch", "epoch": 2147483647, "theory": []}\n'}))


def main():
    for old in (here / "corpus").glob("*/*"):
        if old.name.startswith("crash-"):
            continue
        old.unlink()
    tiny = json.loads((here / "tiny.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        run, data = scratch / "run", scratch / "data"
        hkt("train", here / "tiny.json", "--out", run, "--quiet", data=data)
        [cache] = data.glob("listops-*.safetensors")
        put_file("packed", "listops", cache)
        archives()
        texts()
        metrics()
        configs(tiny)
        results()
        safetensors(scratch)
        models(run, tiny)
        states(run)
        bundles(run)
        shutil.rmtree(run)


if __name__ == "__main__":
    main()
