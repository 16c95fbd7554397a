# SPDX-License-Identifier: Apache-2.0
# The command `hkt data`, run as users run it: downloads from servers that misbehave, packed files, wrong use.
import hashlib
import io
import json
import lzma
import os
import subprocess
import tarfile
from pathlib import Path

import numpy
import pytest
from http_server import FileServer
from safetensors.numpy import load_file

names = b"airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n"
few = ["--train", "40", "--validation", "5", "--test", "10", "--max-tokens", "60"]


@pytest.fixture
def hkt(build_folder, tmp_path):
    environment = os.environ | {"HKT_DATA": str(tmp_path / "data"), "no_proxy": "127.0.0.1", "OMP_NUM_THREADS": "1"}

    def start(*arguments, **changes):
        return subprocess.Popen([build_folder / "hkt", "data", *map(str, arguments)], env=environment | changes,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(*arguments, **changes):
        process = start(*arguments, **changes)
        process.out, process.err = process.communicate(timeout=120)
        return process

    run.start = start
    run.data = tmp_path / "data"
    run.archive = run.data / "downloads" / "cifar-10-binary.tar.gz"
    return run


def expect_sentence(done, code, *parts):
    """One sentence, the last line of standard error."""
    assert done.returncode == code, done.err + done.out
    sentence = done.err.splitlines()[-1]
    assert sentence.startswith("hkt: ")
    for part in parts:
        assert part in sentence


def cifar_archive():
    generator = numpy.random.default_rng(0)
    files = {"batches.meta.txt": names}
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        records = generator.integers(0, 256, (20, 3073), dtype=numpy.uint8)
        records[:, 0] %= 10
        files[name] = records.tobytes()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo("cifar-10-batches-bin/" + name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return files, buffer.getvalue()


files, archive = cifar_archive()
md5 = hashlib.md5(archive).hexdigest()


# ---- downloads

def fetch(hkt, server, sum=md5, **changes):
    return hkt("fetch", "scifar", "--url", server.url, "--md5", sum, **changes)


def test_fetch_and_prepare(hkt):
    with FileServer(archive) as server:
        assert fetch(hkt, server).returncode == 0
        assert hkt.archive.read_bytes() == archive
        done = fetch(hkt, server)
        assert done.returncode == 0 and "already downloaded, checksum verified" in done.out
        assert server.ranges == [None]
    assert not hkt.archive.with_name(hkt.archive.name + ".part").exists()
    done = hkt("prepare", "scifar")
    assert done.returncode == 0 and "100 training" in done.out
    assert "the official one has 50000 and 10000" in done.err
    tensors = load_file(hkt.data / "scifar.safetensors")
    records = numpy.frombuffer(b"".join(files[f"data_batch_{i}.bin"] for i in range(1, 6)), numpy.uint8).reshape(-1, 3073)
    red, green, blue = records[:, 1:].reshape(-1, 3, 1024).astype(float).swapaxes(0, 1)
    grey = numpy.floor((.2989 * red + .587 * green + .114 * blue) / 255 * 255.5)
    assert (tensors["train.tokens"].reshape(-1, 1024) == grey).all()
    assert (tensors["train.labels"] == records[:, 0]).all()
    assert (tensors["train.offsets"] == numpy.arange(101) * 1024).all()
    assert hkt("verify", "scifar").returncode == 0


def test_a_broken_connection_is_resumed(hkt):
    third = len(archive) // 3
    with FileServer(archive, [("cut", third), ("cut", third), "good"]) as server:
        assert fetch(hkt, server).returncode == 0
        assert server.ranges == [None, f"bytes={third}-", f"bytes={2 * third}-"]
    assert hkt.archive.read_bytes() == archive


def test_a_later_call_goes_on(hkt):
    with FileServer(archive, [("cut", 1000), ("status", 404)]) as server:
        expect_sentence(fetch(hkt, server), 1, server.url, "the server answered 404", "is kept")
    with FileServer(archive) as server:
        assert fetch(hkt, server).returncode == 0
        assert server.ranges == ["bytes=1000-"]


def test_a_server_that_ignores_ranges(hkt):
    with FileServer(archive, [("cut", 1000), "ignore"]) as server:
        assert fetch(hkt, server).returncode == 0
        assert server.ranges == [None, "bytes=1000-"]
    assert hkt.archive.read_bytes() == archive


def test_a_server_that_gives_another_part(hkt):
    with FileServer(archive, [("cut", 1000), "misplaced", "good"]) as server:
        assert fetch(hkt, server).returncode == 0
        assert server.ranges == [None, "bytes=1000-", None]


def test_a_part_that_was_complete(hkt):
    hkt.archive.parent.mkdir(parents=True)
    part = hkt.archive.with_name(hkt.archive.name + ".part")
    part.write_bytes(archive)
    with FileServer(archive) as server:
        assert fetch(hkt, server).returncode == 0
    assert hkt.archive.read_bytes() == archive and not part.exists()


@pytest.mark.parametrize("old", [b"of an older version", archive + b"too long", b"x" * len(archive)])
def test_a_part_of_something_else(hkt, old):
    hkt.archive.parent.mkdir(parents=True)
    hkt.archive.with_name(hkt.archive.name + ".part").write_bytes(old)
    with FileServer(archive) as server:
        assert fetch(hkt, server).returncode == 0
    assert hkt.archive.read_bytes() == archive


@pytest.mark.parametrize("plan", [["corrupt"], ["endless"], 3 * [("cut", 1000), "corrupt"]])
def test_a_corrupted_file_is_removed(hkt, plan):
    with FileServer(archive, plan) as server:
        expect_sentence(fetch(hkt, server), 1, server.url, "and should have " + md5, "was removed")
    assert not hkt.archive.exists()
    assert [path.suffix for path in hkt.archive.parent.iterdir()] == [".lock"]


def test_an_archive_that_was_damaged_here_is_fetched_again(hkt):
    with FileServer(archive) as server:
        fetch(hkt, server)
        hkt.archive.write_bytes(archive[:-1] + b"x")
        expect_sentence(hkt("verify", "scifar"), 1, "is damaged: its MD5 is")
        assert fetch(hkt, server).returncode == 0
        assert hkt("verify", "scifar").returncode == 0


def test_http_errors(hkt):
    with FileServer(archive, [("status", 404)]) as server:
        expect_sentence(fetch(hkt, server), 1, server.url + " could not be downloaded: the server answered 404.")
        assert len(server.ranges) == 1
    with FileServer(archive, [("status", 500)]) as server:
        expect_sentence(fetch(hkt, server), 1, "the server answered 500.")
        assert len(server.ranges) == 4
    with FileServer(archive, [("status", 503), "good"]) as server:
        assert fetch(hkt, server).returncode == 0
    assert hkt.archive.read_bytes() == archive


def test_redirects(hkt):
    with FileServer(archive) as server, FileServer(b"", [("redirect", server.url)]) as first:
        assert fetch(hkt, first).returncode == 0
    with FileServer(b"", [("redirect", "file:///etc/passwd")]) as first:
        expect_sentence(fetch(hkt, first, "0" * 32), 1, "could not be downloaded")


def test_no_network_and_wrong_urls(hkt):
    def error(url):
        return hkt("fetch", "imdb", "--url", url)
    expect_sentence(error("http://no-such-host.invalid/x"), 1, "could not be downloaded: Could not resolve host")
    expect_sentence(error("file:///etc/passwd"), 1, "could not be downloaded: Protocol")
    expect_sentence(error("no url"), 1, "could not be downloaded")
    expect_sentence(hkt("fetch", "imdb", "--md5", "12"), 2, "--md5 is \"12\"", "32")


def test_a_full_disk(hkt, build_folder):
    big = os.urandom(300_000)
    with FileServer(big) as server:
        command = f"ulimit -f 200; trap '' XFSZ; exec {build_folder}/hkt data fetch imdb --url {server.url}"
        done = subprocess.run(["bash", "-c", command], env=os.environ | {"HKT_DATA": str(hkt.data), "no_proxy": "127.0.0.1"},
                              capture_output=True, text=True)
    assert done.returncode == 1
    assert "could not be written: File too large" in done.stderr


# ---- preparing

def test_two_prepare_at_once(hkt):
    both = [hkt.start("prepare", "listops", "--train", "20000") for _ in range(2)]
    for process in both:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    assert len(list(hkt.data.iterdir())) == 1


def test_a_damaged_file_is_noticed_and_made_anew(hkt):
    assert " created: " in hkt("prepare", "listops", *few).out
    again = hkt("prepare", "listops", *few)
    assert " already exists: " in again.out
    path, = hkt.data.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:])
    expect_sentence(hkt("verify", "listops"), 1, "is damaged")
    done = hkt("prepare", "listops", *few)
    expect_sentence(done, 0, str(path), "is damaged", "It was rebuilt.")
    assert path.read_bytes() == whole
    assert hkt("verify", "listops").returncode == 0


class Engine:
    """The 64-bit Mersenne twister of Nishimura and Matsumoto, independent of the one in libstdc++."""

    def __init__(self, seed):
        self.mask = 2**64 - 1
        self.state, self.next = [seed], 312
        for i in range(1, 312):
            last = self.state[-1]
            self.state.append((6364136223846793005 * (last ^ (last >> 62)) + i) & self.mask)

    def draw(self):
        if self.next == 312:
            s, self.next = self.state, 0
            for i in range(312):
                x = (s[i] & 0xFFFFFFFF80000000) | (s[(i + 1) % 312] & 0x7FFFFFFF)
                s[i] = s[(i + 156) % 312] ^ (x >> 1) ^ (0xB5026F5AA96619E9 if x & 1 else 0)
        x = self.state[self.next]
        self.next += 1
        x ^= (x >> 29) & 0x5555555555555555
        x ^= (x << 17) & 0x71D67FFFEDA60000
        x ^= (x << 37) & 0xFFF7EEE000000000
        return x ^ (x >> 43)

    def below(self, bound):
        while (x := self.draw()) >= self.mask - self.mask % bound:
            pass
        return x % bound


def mix(x):
    mask = 2**64 - 1
    x = (x + 0x9E3779B97F4A7C15) & mask
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & mask
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & mask
    return x ^ (x >> 31)


def tree(engine, max_depth, max_arguments, depth=1):
    """Text, length and value of a node, by the words of the grammar; without a limit on the length."""
    limited = depth >= max_depth
    drawn = 0 if depth == 1 else engine.below(10 if limited else 40)
    if depth > 1 and (limited or drawn >= 10):
        return str(drawn % 10), 1, drawn % 10
    operator = ["[MIN", "[MAX", "[MED", "[SM"][engine.below(4)]
    count = 2 + engine.below(max_arguments - 1)
    texts, lengths, values = zip(*[tree(engine, max_depth, max_arguments, depth + 1) for _ in range(count)])
    value = {"[MIN": min, "[MAX": max, "[MED": lambda v: int(numpy.median(v)), "[SM": lambda v: sum(v) % 10}[operator](values)
    return f"{operator} {' '.join(texts)} ]", 2 + sum(lengths), value


def test_listops_is_what_its_rules_say(hkt, tmp_path):
    # Nothing is longer than 2 + 3 (2 + 3 (2 + 3)) tokens, so no draw is given up early and Python needs no such rule.
    done = hkt("prepare", "listops", "--seed", 5, "--train", 200, "--validation", 20, "--test", 50, "--max-depth", 4,
               "--max-arguments", 3, "--min-tokens", 9, "--max-tokens", 53, "--tsv", tmp_path / "tsv")
    assert done.returncode == 0, done.err
    seen = set()
    for split, stream, samples in ("test", 2, 50), ("validation", 1, 20), ("train", 0, 200):
        engine, expected = Engine(mix(mix(5) + stream)), []
        while len(expected) < samples:
            text, length, value = tree(engine, 4, 3)
            if length >= 9 and text not in seen:
                seen.add(text)
                expected.append(f"{value}\t{text}")
        assert (tmp_path / "tsv" / f"{split}.tsv").read_text().splitlines() == expected
    assert hkt("verify", "listops", "--file", tmp_path / "tsv" / "train.tsv").returncode == 0


def test_python_reads_packed_files(hkt, tmp_path):
    train = tmp_path / "a.tsv"
    train.write_text("b\tfirst\na\tsecond\n")
    assert hkt("prepare", "text", "--train", train).returncode == 0
    path, = hkt.data.iterdir()
    tensors = load_file(path)
    assert tensors["train.tokens"].tobytes() == b"firstsecond"
    assert tensors["train.offsets"].tolist() == [0, 5, 11]
    assert tensors["train.labels"].tolist() == [1, 0]


def test_an_archive_that_leads_out(hkt, tmp_path):
    evil = tmp_path / "evil.tar.gz"
    with tarfile.open(evil, "w:gz") as out:
        entry = tarfile.TarInfo("../../escaped.txt")
        entry.size = 4
        out.addfile(entry, io.BytesIO(b"evil"))
    for name in "scifar", "imdb":
        expect_sentence(hkt("prepare", name, "--from", evil), 2, str(evil), "is unsafe", "points outside")
    assert not list(tmp_path.parent.glob("**/escaped.txt"))


# ---- verifying ListOps files

def test_verify_listops_file(hkt, tmp_path):
    def verify(content, name="a.tsv"):
        path = tmp_path / name
        path.write_bytes(content)
        return hkt("verify", "listops", "--file", path)
    done = verify(b"4\t[MAX 1 4 ]\n1\t( ( ( [MIN 1 ) 4 ) ] )\n")
    assert done.returncode == 0 and done.out == "2 of 2 labels agree\n"
    assert verify(lzma.compress(b"4\t[MAX 1 4 ]\n"), "a.tsv.xz").returncode == 0
    done = verify(b"4\t[MAX 1 4 ]\n5\t[MIN 1 4 ]\n")
    assert done.out == "1 of 2 labels agree\n"
    expect_sentence(done, 1, "a.tsv, line 2 has the label 5, but its expression has the value 1")
    expect_sentence(verify(b"4\t[MAX 1 4 ]\n5\t[MIN 1\n"), 2, "a.tsv, line 2: not a ListOps expression")
    expect_sentence(verify(b""), 2, "a.tsv has no line")
    expect_sentence(verify(b"1\t" + b"[MAX " * 300000 + b"\n"), 2, "300000 \"]\" are missing")
    expect_sentence(hkt("verify", "listops", "--file", tmp_path / "no.tsv"), 2, "no.tsv is not a readable file")
    expect_sentence(hkt("verify", "imdb", "--file", tmp_path / "a.tsv"), 2, "--file is for listops only")


def test_nangia_and_bowman(hkt):
    if "HKT_TEST_DATA" not in os.environ:
        pytest.skip("HKT_TEST_DATA does not say where listops_test_d20s.tsv.xz lies")
    done = hkt("verify", "listops", "--file", Path(os.environ["HKT_TEST_DATA"]) / "listops_test_d20s.tsv.xz")
    assert done.returncode == 0 and done.out == "10000 of 10000 labels agree\n"


# ---- streams for language models

def tokens_of(hkt, name="lm-*.safetensors"):
    path, = hkt.data.glob(name)
    return {key: value.tobytes() for key, value in load_file(path).items() if key.endswith("tokens")}


def test_documents_become_one_stream(hkt, tmp_path):
    books = tmp_path / "books"
    (books / "more").mkdir(parents=True)
    (books / "b.txt").write_bytes(b"\xef\xbb\xbfsecond")
    (books / "a.txt").write_bytes(b"first\xff\n")
    (books / "more" / "c.jsonl.xz").write_bytes(lzma.compress(b'{"text": "third"}\n{"id": 4, "text": "f\\u00fcnf"}\n'))
    (books / "notes.md").write_text("not one of them")
    (books / "picture.txt").write_bytes(b"\x89PNG\0")
    (books / "empty.txt").touch()
    (books / ".hidden.txt").write_text("hidden")
    (books / "circle").symlink_to(books)
    done = hkt("prepare", "lm", "--train", books, "--pattern", "*[tx][xz]*", "--test", books / "*.md")
    assert done.returncode == 0, done.err
    assert " created: 27 training, 0 validation and 16 test tokens, documents: 5" in done.out
    assert "the share data.validation of the training tokens for validation\n" in done.out
    assert f"files with the byte 0 of {books} are skipped: 1, the first is {books}/picture.txt." in done.err
    assert f"empty files of {books} are skipped: 1, the first is {books}/empty.txt." in done.err
    assert tokens_of(hkt) == {"train.tokens": "first\udcff\n\0second\0third\0fünf\0".encode(errors="surrogateescape"),
                              "test.tokens": b"not one of them\0"}
    assert " already exists: " in hkt("prepare", "lm", "--train", books, "--pattern", "*[tx][xz]*", "--test", books / "*.md").out
    assert "intact, 27 training" in hkt("verify", "lm").out


def test_bad_documents(hkt, tmp_path):
    def prepare(name, content, *more):
        path = tmp_path / name
        path.write_bytes(content)
        return hkt("prepare", "lm", "--train", path, *more)
    expect_sentence(prepare("a.bin", b"a\0b"), 2, "a.bin contains the byte 0")
    expect_sentence(prepare("a.txt", b""), 2, "a.txt is empty")
    expect_sentence(prepare("a.jsonl", b'{"text": "x"}\n{"body": "x"}\n'), 2, 'a.jsonl, line 2 is not an object with "text"')
    expect_sentence(prepare("a.gz", b"no gzip", "--test", tmp_path / "no"), 2, "no does not exist")
    expect_sentence(hkt("prepare", "lm", "--train", tmp_path / "*.csv"), 2, "*.csv matches no file")
    expect_sentence(hkt("prepare", "lm", "--train", tmp_path, "--pattern", "*.csv"), 2, 'matches "*.csv"')
    expect_sentence(hkt("prepare", "lm"), 2, "--train")
    assert not list(hkt.data.glob("*.safetensors"))


@pytest.mark.parametrize("name, digest", [("enwik8", "SHA-256"), ("shakespeare", "MD5"), ("wikitext2", "MD5")])
def test_official_texts_are_checked_when_they_come_and_when_they_are_read(hkt, name, digest):
    false = b"this is not it"
    with FileServer(false) as server:
        expect_sentence(hkt("fetch", name, "--url", server.url), 1, f"has the {digest} ", "was removed")
        expect_sentence(hkt("prepare", name), 2, f"the data set {name} is missing")
        assert hkt("fetch", name, "--url", server.url, "--md5", hashlib.md5(false).hexdigest()).returncode == 0
    assert "one given at its download" in hkt("verify", name).out
    done = hkt("prepare", name)
    assert done.returncode == 2 and ("SHA-1" in done.err or "cannot be read as an archive" in done.err)
    assert not list(hkt.data.glob("*.safetensors"))


def test_a_text_that_is_longer_than_the_official_one(hkt):
    with FileServer(bytes(2_000_000)) as server:
        expect_sentence(hkt("fetch", "shakespeare", "--url", server.url), 1, "more than the allowed 1115394 bytes")


def test_the_real_shakespeare_is_fetched(hkt):
    if "HKT_TEST_DATA" not in os.environ:
        pytest.skip("HKT_TEST_DATA does not say where tinyshakespeare.txt.xz lies")
    text = lzma.decompress((Path(os.environ["HKT_TEST_DATA"]) / "tinyshakespeare.txt.xz").read_bytes())
    with FileServer(text, [("cut", 100_000), "good"]) as server:
        assert hkt("fetch", "shakespeare", "--url", server.url).returncode == 0
        assert server.ranges == [None, "bytes=100000-"]
    assert (hkt.data / "downloads" / "tinyshakespeare.txt").read_bytes() == text
    done = hkt("prepare", "shakespeare")
    assert " created: 1115395 training, 0 validation and 0 test tokens\n" in done.out
    assert "for validation, and as much for test" in done.out
    assert tokens_of(hkt, "shakespeare.safetensors") == {"train.tokens": text + b"\0"}
    done = hkt("verify", "shakespeare")
    assert done.returncode == 0 and "its MD5 is the official." in done.out


def test_enwik8_is_packed_in_little_memory(hkt):
    if "HKT_TEST_DATA" not in os.environ:
        pytest.skip("HKT_TEST_DATA does not say where enwik8.xz lies")
    path = Path(os.environ["HKT_TEST_DATA"]) / "enwik8.xz"

    def most_memory(*arguments):
        process = hkt.start(*arguments)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        return used.ru_maxrss * 1024
    before = most_memory("list")
    assert most_memory("prepare", "enwik8", "--from", path) - before < 400e6
    sizes = {key: len(value) for key, value in tokens_of(hkt, "enwik8.safetensors").items()}
    assert sizes == {"train.tokens": 90_000_000, "validation.tokens": 5_000_000, "test.tokens": 5_000_000}


# ---- wrong use, and what is listed

def test_wrong_use(hkt, tmp_path):
    expect_sentence(hkt("prepare", "lstops"), 2, '"lstops"', '(nearest: "listops")')
    expect_sentence(hkt("prepare"), 2, "name the data set")
    expect_sentence(hkt("fetch", "imbd"), 2, '(nearest: "imdb")')
    expect_sentence(hkt("fetch", "listops"), 2, '"scifar", "imdb", "enwik8", "shakespeare", "wikitext2"')
    expect_sentence(hkt("verify", "sifar"), 2, '(nearest: "scifar")')
    expect_sentence(hkt("verify", "imdb"), 1, "nothing of imdb")
    expect_sentence(hkt(), 2)
    expect_sentence(hkt("nothing"), 2)
    expect_sentence(hkt("list", "--wrong"), 2)
    expect_sentence(hkt("prepare", "scifar", "--wrong"), 2, "--wrong")
    expect_sentence(hkt("prepare", "listops", "more"), 2, "more")
    expect_sentence(hkt("prepare", "--seed", "1", "listops"), 2)
    expect_sentence(hkt("prepare", "listops", "--train", "many"), 2, "--train")
    expect_sentence(hkt("prepare", "listops", "--train", "0"), 2, "train_samples is 0")
    expect_sentence(hkt("prepare", "listops", "--seed", "-1"), 2, "seed is -1")
    expect_sentence(hkt("prepare", "listops", "--preset", "large"), 2, 'unknown listops preset "large"', '"paper", "lra"')
    expect_sentence(hkt("prepare", "listops", "--max-depth", "2"), 2, "the longest expression has 7")
    expect_sentence(hkt("prepare", "scifar"), 2, "the data set scifar is missing", "hkt data fetch scifar")
    expect_sentence(hkt("prepare", "imdb", "--from", tmp_path / "no"), 2, "no does not exist")
    expect_sentence(hkt("prepare", "imdb", "--from", tmp_path), 2, "is not IMDB's folder")
    expect_sentence(hkt("prepare", "text"), 2, "--train")


def test_bad_texts(hkt, tmp_path):
    def prepare(name, content):
        path = tmp_path / name
        path.write_bytes(content)
        return hkt("prepare", "text", "--train", path)
    expect_sentence(prepare("a.tsv", b"a\tb\nno tab\n"), 2, "a.tsv, line 2 has no tab")
    expect_sentence(prepare("a.tsv", b""), 2, "a.tsv has no line")
    expect_sentence(prepare("a.jsonl", b"{}\n"), 2, "a.jsonl, line 1")
    expect_sentence(prepare("a.xlsx", b"a,b\n"), 2, '".xlsx"; it must be .csv, .tsv')
    good = tmp_path / "good.tsv"
    good.write_text("a\tb\n")
    other = tmp_path / "other.tsv"
    other.write_text("z\tb\n")
    expect_sentence(hkt("prepare", "text", "--train", good, "--test", other), 2, 'other.tsv, line 1 has the label "z"')


def test_a_folder_that_cannot_be_written(hkt, tmp_path):
    (tmp_path / "file").write_text("")
    expect_sentence(hkt("prepare", "listops", *few, HKT_DATA=str(tmp_path / "file" / "x")), 1, "set HKT_DATA to a writable folder")


def test_list(hkt):
    hkt("prepare", "listops", *few)
    done = hkt("list")
    assert done.returncode == 0 and "https://www.cs.toronto.edu/~kriz/cifar.html" in done.out
    listed = {row["name"]: row for row in json.loads(hkt("list", "--json").out)}
    assert list(listed) == ["listops", "scifar", "imdb", "enwik8", "shakespeare", "wikitext2", "text", "lm"]
    path, = hkt.data.iterdir()
    assert listed["listops"]["prepared"] == [{"path": str(path), "bytes": path.stat().st_size}]
    assert listed["imdb"]["fetched"] is None and listed["imdb"]["prepared"] == []


@pytest.mark.parametrize("command", [[], ["list"], ["fetch"], ["prepare"], ["prepare", "listops"], ["prepare", "imdb"],
                                     ["prepare", "text"], ["prepare", "lm"], ["prepare", "enwik8"], ["verify"]])
def test_help_has_an_example(hkt, command):
    done = hkt(*command, "--help")
    assert done.returncode == 0 and "  hkt data " in done.out
