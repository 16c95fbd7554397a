# SPDX-License-Identifier: Apache-2.0
"""hkt explain: what the page says against predictions and plain PyTorch, and the page as people see it."""
import base64
import json
import math
import os
import pathlib
import re

import numpy
import plain
import plain_model
import pytest
import torch
from browser import browser, needs_chromium, views  # noqa: F401
from program import refused, run, train_arguments
from safetensors import safe_open

models = pathlib.Path(__file__).resolve().parents[2] / "models"
REVIEW = "A terrible café, naïve and dull 😀! The worst film: 👩‍👩‍👧 left early.\nNobody laughed, it’s a mess."
WIKI = "The '''Eiffel Tower''' is a tower in [[Paris]]. The café is at the top of the Eiffel T"
EXPRESSION = "[MAX 2 9 [MIN 4 7 ] 0 ]"


def explained(out, *arguments, **options):
    """The page, and the lines that were printed."""
    process = run("explain", *arguments, "--out", out, **options)
    assert process.returncode == 0, process.stderr
    return out, process.stdout.splitlines()


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S).group(1))


def floats(text, *shape):
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.float32).reshape(shape)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def review(folder):
    return explained(folder / "review.html", models / "imdb-hkt", "--text", REVIEW)[0]


@pytest.fixture(scope="module")
def both(folder):
    return explained(folder / "both.html", models / "imdb-standard", models / "imdb-hkt", "--text", REVIEW)[0]


@pytest.fixture(scope="module")
def wiki(folder):
    return explained(folder / "wiki.html", models / "enwik8-hkt", "--text", WIKI)[0]


@pytest.fixture(scope="module")
def listops(folder):
    arguments = train_arguments(folder / "listops", "model.levels=3", "data.min_tokens=40", "train.epochs=1")
    process = run(*arguments, data=folder / "data")
    assert process.returncode == 0, process.stderr
    return folder / "listops"


@pytest.fixture(scope="module")
def expression(folder, listops):
    return explained(folder / "expression.html", listops, "--text", EXPRESSION)[0]


@pytest.fixture(scope="module")
def image(folder):
    source = folder / "cifar-10-batches-bin"
    source.mkdir()
    generator = numpy.random.default_rng(0)
    (source / "batches.meta.txt").write_text("".join(f"class{i}\n" for i in range(10)))
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        records = generator.integers(0, 256, (20, 3073), dtype=numpy.uint8)
        records[:, 0] = numpy.arange(20) % 10
        (source / f"{name}.bin").write_bytes(records.tobytes())
    small = ["model.width=16", "model.heads=1", "model.feedforward=16", "train.epochs=1", f"data.source={source}"]
    process = run("train", "scifar", "--device", "cpu", "--out", folder / "image", "--quiet", "--set", *small, data=folder / "data")
    assert process.returncode == 0, process.stderr
    return explained(folder / "image.html", folder / "image", "--index", 3, data=folder / "data")[0]


# ---- what the page holds


def test_it_says_what_predict_says(review, both, folder, listops):
    for name, page in (("imdb-hkt", review), ("imdb-standard", both)):
        # A line of input ends at a line break, which therefore is a space here.
        text = REVIEW.replace("\n", " ")
        page, lines = explained(folder / "line.html", models / name, "--text", text)
        predicted = run("predict", models / name, "--device", "cpu", input=text + "\n").stdout.split()
        label, probability = lines[0].split("\t")
        assert predicted[0] == label and float(predicted[1]) == pytest.approx(float(probability), abs=2e-4)
    page, lines = explained(folder / "e.html", listops, "--text", EXPRESSION, data=folder / "none")
    predicted = run("predict", listops, "--device", "cpu", input=EXPRESSION + "\n").stdout.split()
    assert lines[0].split("\t")[0] == predicted[0]
    assert data_of(page)["texts"] == EXPRESSION.split()


def test_two_models_are_told_apart(both):
    data = data_of(both)
    assert [model["levels"] for model in data["models"]] == [1, 3]
    assert [pathlib.Path(model["name"]).name for model in data["models"]] == ["imdb-standard", "imdb-hkt"]


def weights_of(name):
    with safe_open(models / name / "model.safetensors", "pt") as file:
        return json.loads(file.metadata()["config"])["model"], {key: file.get_tensor(key).double() for key in file.keys()}


def plain_attention(name, text):
    """Of every block and head, [T, T], and of a language model its logits."""
    config, parameters = weights_of(name)
    maps = []

    def watch(_, attention, seen):
        q, k, _ = attention.projected(attention.convolved(seen))
        eye = torch.eye(seen.size(1), dtype=seen.dtype).expand(1, config["heads"], -1, -1)  # values that show the weights
        weights = attention.weights(seen.dtype)
        maps.append(plain.attention(q, k, eye, weights, config["mask"] == "causal")[0][0])

    hidden = plain_model.hidden(config, parameters, torch.tensor([list(text.encode())]), watch=watch)
    return maps, plain_model.linear(hidden, parameters, "head")[0]


def attention_of(model, length, block, head):
    """From the queries and keys of the page, as its script does it."""
    levels, width = model["levels"], model["head_width"]
    rows = [-(-length // 2**level) for level in range(levels)]
    own, scores = model["blocks"][block], 0
    weights = floats(own["weights"], model["heads"], levels)[head].double()
    for level in range(levels):
        q = floats(own["q"][level], model["heads"], rows[level], width)[head].double()
        k = floats(own["k"][level], model["key_heads"], rows[level], width)[head * model["key_heads"] // model["heads"]].double()
        s = (q @ k.T / math.sqrt(width)).repeat_interleave(2**level, 0).repeat_interleave(2**level, 1)
        scores = scores + weights[level] * s[:length, :length]
    return scores.masked_fill(torch.ones(length, length).triu(1).bool(), -math.inf).softmax(1) if model["causal"] else scores.softmax(1)


@pytest.mark.parametrize("name, text, page", [("imdb-hkt", REVIEW, "review"), ("enwik8-hkt", WIKI, "wiki")])
def test_attention_is_that_of_plain_pytorch(name, text, page, request):
    [model] = data_of(request.getfixturevalue(page))["models"]
    maps, _ = plain_attention(name, text)
    length = len(text.encode())
    assert len(model["blocks"]) == len(maps)
    for block, heads in enumerate(maps):
        for head, expected in enumerate(heads):
            assert (attention_of(model, length, block, head) - expected).abs().max() < 1e-5


def test_the_next_bytes_are_those_of_plain_pytorch(wiki):
    [model] = data_of(wiki)["models"]
    _, logits = plain_attention("enwik8-hkt", WIKI)
    expected, length, count = logits.log_softmax(1), len(WIKI.encode()), model["next"]["count"]
    best = torch.frombuffer(bytearray(base64.b64decode(model["next"]["tokens"])), dtype=torch.uint8).long().view(length, count)
    assert (floats(model["next"]["log"], length, count) - expected.gather(1, best)).abs().max() < 1e-3
    came = torch.tensor(list(WIKI.encode()))[1:, None]
    assert (floats(model["next"]["came"], length - 1, 1) - expected[:-1].gather(1, came)).abs().max() < 1e-3


def test_words_are_blanked_out_one_by_one(review):
    data = data_of(review)
    [model] = data["models"]
    text = REVIEW.encode()
    words = [text[unit[0]:unit[-1] + 1].decode() for unit in data["units"]]
    assert {"terrible", "café", "naïve", "😀", "👩‍👩‍👧", "it’s", "!"} <= set(words) and data["unit_size"] == 1
    without = floats(model["log_by_unit"], len(words), len(model["answers"])).exp()
    unit = words.index("terrible")
    blanked = REVIEW.replace("terrible", " " * 8).replace("\n", "\\n")
    answer = json.loads(run("predict", models / "imdb-hkt", "--json", "--device", "cpu", input=blanked + "\n").stdout)
    probability = without[unit, model["answers"].index(answer["label"])]
    assert float(probability) == pytest.approx(answer["probability"], abs=2e-3)


def test_long_expressions_leave_out_several_tokens_together(listops, folder):
    long = "[MAX " + "1 " * 60 + "]"
    data = data_of(explained(folder / "long.html", listops, "--text", long)[0])
    assert data["unit_size"] == 1 and len(data["units"]) == 62
    assert floats(data["models"][0]["log_by_unit"], 62, 10).isfinite().all()


def test_an_image_is_explained_whole_and_as_an_image(image):
    data = data_of(image)
    assert data["input"] == "images" and len(base64.b64decode(data["tokens"])) == 1024 and data["label"] == "class3"
    assert len(data["units"]) == 64 and sorted(sum(data["units"], [])) == list(range(1024))
    assert data["label"] in data["models"][0]["answers"]


def test_pages_are_small_and_need_nothing_else(review, wiki):
    assert review.stat().st_size < 1e6 and wiki.stat().st_size < 4e6
    for page in (review, wiki):
        assert not re.search(r'<(script|link|img)[^>]+(src|href)=', page.read_text())


# ---- the page in a browser


@needs_chromium
@views
@pytest.mark.parametrize("page", ["review", "both", "wiki"])
def test_pages_of_texts_are_fit_to_be_seen(browser, page, width, dark, request):  # noqa: F811
    look(browser, request.getfixturevalue(page), width, dark)


@needs_chromium
@pytest.mark.parametrize("width, dark", [(390, True), (1280, False)])
@pytest.mark.parametrize("page", ["expression", "image"])
def test_other_pages_are_fit_to_be_seen(browser, page, width, dark, request):  # noqa: F811
    look(browser, request.getfixturevalue(page), width, dark)


# How many colours each picture has.
COLOURS = """[...document.querySelectorAll('canvas')].map(canvas => {
  const bytes = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  return new Set(new Uint32Array(bytes.buffer)).size;
})"""


def look(browser, page, width, dark):  # noqa: F811
    browser.open(page, width, dark)
    assert browser.audit() == []
    colours = browser.evaluate(COLOURS)
    assert len(colours) >= 5 and min(colours) >= 3
    # Nothing is lighter at night or darker by day than the page, but for pictures: no grey slabs.
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == ("rgb(20, 23, 28)" if dark else "rgb(251, 251, 249)")


@needs_chromium
@pytest.mark.parametrize("page", ["review", "wiki"])
def test_rows_of_attention_sum_to_one(browser, page, request):  # noqa: F811
    page = request.getfixturevalue(page)
    browser.open(page)
    [model] = data_of(page)["models"]
    rows = browser.evaluate("""explanation.models.flatMap(model => model.blocks.flatMap((_, block) => Array.from({ length: model.heads }, (_, head) => {
      const own = explanation.headOf(model, block, head), length = explanation.characters.at(-1).end;
      return Array.from({ length }, (_, token) => Array.from(explanation.rowOf(own, token).attention));
    })))""")
    found = torch.tensor(rows, dtype=torch.float64)
    assert (found.sum(2) - 1).abs().max() < 1e-5
    expected = torch.stack([attention_of(model, found.size(1), block, head) for block in range(len(model["blocks"])) for head in range(model["heads"])])
    assert (found - expected).abs().max() < 1e-9


@needs_chromium
def test_shares_of_levels_sum_to_one(browser, wiki):  # noqa: F811
    browser.open(wiki)
    shares = browser.evaluate("explanation.sharesOf(explanation.rowOf(explanation.headOf(explanation.models[0], 2, 1), 50))")
    assert len(shares) == 5 and sum(shares) == pytest.approx(1)


@needs_chromium
@pytest.mark.parametrize("page, taps", [("review", 2), ("wiki", 4)])
def test_positions_saw_what_their_windows_say(browser, page, taps, request):  # noqa: F811
    """The tokens whose gradient reaches a row of the hierarchy."""
    browser.open(request.getfixturevalue(page))
    length = browser.evaluate("explanation.characters.at(-1).end")
    x = torch.randn(1, length, 3, dtype=torch.float64, requires_grad=True)
    levels = [x]
    for level in range(1, 5 if taps == 4 else 3):
        levels.append(plain.downsample(levels[-1], torch.rand(taps, 3, dtype=torch.float64) + 1))
        for position in {0, 1, levels[level].size(1) // 2, levels[level].size(1) - 1}:
            [gradient] = torch.autograd.grad(levels[level][0, position].sum(), x, retain_graph=True)
            reached = gradient[0].abs().sum(1).nonzero().flatten()
            window = browser.evaluate(f"explanation.windowOf(explanation.models[0], {level}, {position})")
            assert window["saw"] == [reached.min(), reached.max()]
            assert window["stands"] == [position << level, min(length, (position + 1) << level) - 1]


@needs_chromium
def test_texts_are_shown_as_people_read_them(browser, review, folder):  # noqa: F811
    browser.open(review)
    shown = browser.evaluate("[...document.querySelector('.strip').children].map(span => span.textContent)")
    assert "".join(shown) == REVIEW.replace("\n", "↵\n")
    assert {"é", "ï", "😀", "👩‍👩‍👧", "’"} <= set(shown)
    page, _ = explained(folder / "broken.html", models / "imdb-hkt", "--text", os.fsdecode(b"caf\xc3 \xff\x07 \xf0\x9f\x98 end"))
    browser.open(page)
    shown = browser.evaluate("[...document.querySelector('.strip').children].map(span => span.textContent)")
    assert shown[3:8] == ["\\xc3", " ", "\\xff", "\\x07", " "] and shown[8:11] == ["\\xf0", "\\x9f", "\\x98"]
    assert browser.console() == []


@needs_chromium
def test_tokens_and_heads_are_selected(browser, wiki):  # noqa: F811
    browser.open(wiki)
    title = "document.querySelector('main .card .sub').textContent"
    assert "what comes next" in browser.evaluate(title)
    browser.evaluate("document.querySelector('.strip').focus()")
    browser.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowLeft")
    assert f"After byte {len(WIKI.encode()) - 2}," in browser.evaluate(title)
    browser.evaluate("document.querySelectorAll('.strip')[0].children[4].click()")
    assert "After byte 4," in browser.evaluate(title)
    browser.evaluate("document.querySelectorAll('.multiples button')[6].click()")
    headings = browser.evaluate("[...document.querySelectorAll('.block')].map(node => node.textContent)")
    assert headings == ["Block 1, head 2"] * 2
    assert browser.evaluate("document.querySelectorAll('[aria-pressed=true]').length") == 1


# ---- wrong use


def test_wrong_use_is_refused(listops, folder, tmp_path):
    out = tmp_path / "x.html"

    def explain(*arguments):
        return run("explain", *arguments, "--out", out, data=folder / "data")

    refused(explain(listops), "--text", "--index")
    refused(explain(listops, "--text", "[MAX 2", "--index", 1), "either")
    refused(explain(listops, "--text", "[MAX 2"), "not a ListOps expression")
    refused(explain(listops, "--index", 1000), "--index is 1000", "0 to 63")
    refused(explain(listops, models / "imdb-hkt", "--text", "[MAX 2 3 ]"), "takes expressions", "takes texts")
    refused(explain(models / "enwik8-hkt", models / "imdb-hkt", "--text", "a"), "is a language model")
    refused(explain(models / "enwik8-hkt", "--text", ""), "--text")
    assert run("explain", models / "imdb-hkt", models / "imdb-hkt", models / "imdb-hkt", "--text", "a", "--out", out).returncode == 2
    assert not out.exists()
