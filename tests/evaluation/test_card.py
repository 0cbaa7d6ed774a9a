"""Charts, the names of figures, and the card as JSON and as a page."""

import dataclasses
import html
import html.parser
import json
import re
import statistics
import xml.etree.ElementTree

import jsonschema
import numpy as np
import pytest

from plsc_tf.evaluation import card, identification, set_charts, set_report
from plsc_tf.evaluation.report import Figure, Options, short_name
from plsc_tf.evaluation.verification import PairScores, People
from tests.programs import ROOT

SVG = "{http://www.w3.org/2000/svg}"


def pairs_report(num_pairs=600, far=0.1, samples=50, name="faces"):
    rng = np.random.default_rng(0)
    left, right = rng.integers(0, 40, (2, num_pairs))
    right = np.where(np.arange(num_pairs) % 2 == 0, left, right)
    same = left == right
    distances = np.clip(rng.normal(np.where(same, 0.9, 1.7), 0.4), 0, 3.9)
    scores = PairScores(distances, same, rng.uniform(9, 11, (2, num_pairs)))
    people = People(np.stack([left, right]), "as drawn")
    return set_report.of_pairs(name, scores, people, Options(samples, far=far)), scores


def search_report():
    rng = np.random.default_rng(0)
    people, ids = rng.normal(size=(60, 8)), rng.integers(0, 60, 300)
    probes = people[ids] + rng.normal(size=(300, 8))
    found = identification.search(people[::2], np.arange(0, 60, 2), probes, ids)
    return set_report.of_search("people", found, ids, Options(50, far=0.1)), found


def test_charts_show_their_figures():
    report, scores = pairs_report()
    charts = set_charts.all_of(report)
    roc, histogram = (charts[kind].figure().axes[0] for kind in ("roc", "histogram"))
    assert roc.get_xscale() == "log" and roc.get_xlim()[1] == 1.0
    drawn = roc.get_lines()[0].get_xydata()
    # The rate at which a tenth of the different pairs is accepted, counted.
    limit = np.sort(scores.distances[~scores.same])[int(0.1 * np.sum(~scores.same))]
    expected = np.mean(scores.distances[scores.same] < limit)
    nearest = np.argmin(np.abs(drawn[:, 0] - 0.1))
    assert drawn[nearest, 1] == pytest.approx(expected, abs=0.02)
    marks = [line.get_xdata()[0] for line in histogram.get_lines()[2:]]
    assert marks == [report.threshold["cosine"], report.threshold["best_cosine"]]
    root = xml.etree.ElementTree.fromstring(charts["histogram"].svg())
    assert root.find(f"{SVG}title").text == "histogram of faces"
    texts = {one.text for one in root.iter(f"{SVG}text")}
    assert {"same", "different", "share of the pairs"} <= texts
    assert f"most accurate threshold: {report.threshold['best_cosine']:.3f}" in texts
    # Drawn as a formula, a list's name ended `evaluate` before it wrote the card.
    named = dataclasses.replace(charts["histogram"], title=r"a$\frac$")
    assert named.png().startswith(b"\x89PNG")


def test_the_det_curve_counts_errors_on_axes_of_normal_deviates():
    report, scores = pairs_report(far=0.1, num_pairs=800)
    det = report.curves["det"]
    others = np.sort(scores.distances[~scores.same])
    assert det["fmr"][0] == pytest.approx(10 / len(others), rel=1e-5)
    assert det["fmr"][-1] == 0.5
    for rate, missed in zip(det["fmr"], det["fnmr"], strict=True):
        limit = others[int(rate * len(others) + 1e-3)]  # rates have six digits
        expected = np.mean(scores.distances[scores.same] >= limit)
        assert missed == pytest.approx(expected, rel=1e-5)
    low, value, high = (np.array(det[f"fnmr{end}"]) for end in ("_low", "", "_high"))
    assert np.all(low < value) and np.all(value < high)
    report.compared = {"other": {"curves": {"det": det | {"fnmr": [0.5] * 60}}}}
    axes = set_charts.all_of(report)["det"].figure().axes[0]
    assert [line.get_label() for line in axes.get_lines()] == ["faces", "other"]
    deviates = [statistics.NormalDist().inv_cdf(rate) for rate in det["fmr"]]
    for axis in (axes.xaxis, axes.yaxis):
        found = axis.get_transform().transform(det["fmr"])
        np.testing.assert_allclose(found, deviates, atol=1e-9)
    assert axes.collections[0].get_label().startswith("_")  # the band


def test_the_threshold_accepts_what_it_says():
    report, scores = pairs_report()
    found = report.threshold
    accepted = scores.distances < found["squared_l2"]
    assert np.mean(accepted[~scores.same]) == pytest.approx(found["far_measured"])
    assert found["far_measured"] <= 0.1 < found["far_measured"] + 0.005
    assert np.mean(accepted[scores.same]) == pytest.approx(found["tar"])
    assert found["cosine"] == pytest.approx(1 - found["squared_l2"] / 2)
    assert found["cosine_low"] < found["cosine"] < found["cosine_high"]


def test_errors_among_the_pairs_that_are_not_discarded():
    report, scores = pairs_report()
    pairs = zip(*scores.norms, scores.distances, scores.same, strict=True)
    best = sorted((min(a, b), distance) for a, b, distance, same in pairs if same)
    limit, expected = report.threshold["squared_l2"], []
    for percent in range(51):
        rest = best[percent * len(best) // 100 :]
        expected.append(np.mean([distance >= limit for _, distance in rest]))
    found = report.curves.pop("discard")
    assert found["discarded"] == [percent / 100 for percent in range(51)]
    assert found["fnmr"] == pytest.approx(expected, rel=1e-5)
    # Normalized embeddings have no quality.
    report.add_discards(dataclasses.replace(scores, norms=1 - 1e-5 * scores.norms))
    assert "discard" not in report.curves


def test_a_threshold_that_the_data_cannot_support_is_none():
    report, scores = pairs_report(far=1e-3)
    count = int(np.count_nonzero(~scores.same))
    assert report.threshold["squared_l2"] is None
    assert report.threshold["cosine"] is None
    assert f"{count} different pairs are enough" in report.threshold["note"]


def test_the_report_of_a_search_names_what_it_cannot_support():
    report, found = search_report()
    assert list(report.figures)[:1] == ["rank_1"]
    rank_1 = np.mean(found.ranks[found.mated] == 1)
    assert report.figures["rank_1"].value == pytest.approx(rank_1)
    assert report.figures["rank_1"].low < rank_1 < report.figures["rank_1"].high
    assert report.figures["tpir@fpir=1e-03"].value is None
    assert report.threshold["fpir"] == 0.1
    assert np.mean(found.strongest[~found.mated] > report.threshold["cosine"]) <= 0.1
    # NIST's miss rate: the mate is not among 50 candidates above the threshold.
    hit = (found.ranks <= 50) & (found.scores > report.threshold["cosine"])
    missed = 1 - np.mean(hit[found.mated])
    assert report.figures["fnir@fpir=1e-01"].value == pytest.approx(missed)
    assert report.figures["fnir@fpir=3e-03"].value is None
    det = report.curves["det"]
    assert det["fnir"][det["fpir"].index(0.1)] == pytest.approx(missed, rel=1e-5)


def test_the_report_of_classes():
    ranks, labels = np.array([1, 1, 3, 9]), np.array([0, 0, 1, 2])
    report = set_report.of_classes("test", ranks, labels, Options())
    assert report.figures == {"top_1": Figure(0.5), "top_5": Figure(0.75)}
    assert report.counts == {"images": 4, "classes": 3}


class Links(html.parser.HTMLParser):
    """Collects what a page would load, its headings and its table cells."""

    def __init__(self):
        super().__init__()
        self.loads, self.tags, self.open = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for key, value in attrs:
            if key in ("src", "href", "srcset", "data", "action"):
                self.loads.append(value)


def full_card():
    pairs, _ = pairs_report(name="<faces>")
    pairs.sha256 = "ab" * 32
    shown = {"kind": "false accept", "cosine": 0.7, "squared_l2": 0.6, "accepted": True}
    pairs.worst = [{**shown, "left": "a&b.jpg", "right": "c.jpg"}]
    pairs.images = {0: (b"\xff\xd8one", b"\xff\xd8two")}
    counts = {"pictures": 10, "same_bytes": 1, "same_pixels": 2, "first": ["x.jpg"]}
    # As Python reads a name that is not UTF-8.
    counts["first"].append("\udce9.jpg")
    other = {"note": "not compared: <why>"}
    pairs.duplicates = {"training set": counts, "other": other}
    search, _ = search_report()
    shown = [pairs, search]
    model = {"model_name": "net", "manifest_sha256": "cd" * 32}
    return card.build(model, {"dataset_name": "d"}, shown, Options(50)), shown


def test_card_json_has_what_the_export_reads():
    content, shown = full_card()
    found = json.loads(card.to_json(content))
    schema = json.loads((ROOT / "docs/card.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(found, schema)
    assert found["version"] == schema["properties"]["version"]["const"] == 1
    assert found["model"]["manifest_sha256"] == "cd" * 32
    one = found["sets"]["<faces>"]
    assert one["sha256"] == "ab" * 32
    assert one["counts"]["pairs"] == 600
    figure = one["figures"]["accuracy"]
    assert figure["low"] < figure["value"] < figure["high"]
    assert one["threshold"] == pytest.approx(dataclasses.asdict(shown[0])["threshold"])
    assert {"far", "squared_l2", "cosine"} <= set(one["threshold"])
    assert len(one["curves"]["roc"]["far"]) == len(one["curves"]["roc"]["tar"])


def test_card_html_stands_alone_and_labels_everything():
    content, shown = full_card()
    page = card.to_html(content, shown).decode()
    links = Links()
    links.feed(page)
    assert len(links.loads) == 2
    assert all(one.startswith("data:image/jpeg;base64,") for one in links.loads)
    assert not {"script", "link", "iframe", "object"} & set(links.tags)
    assert not re.search(r"url\((?!#)", page) and "@import" not in page
    for report in shown:
        for name, figure in report.figures.items():
            assert name == "best_threshold" or short_name(name) in page
            assert figure.value is None or f"{figure.value:.5f}" in page
    assert "&lt;faces&gt;" in page and "<faces>" not in page
    text = html.unescape(re.sub(r"<[^>]*>", " ", page))
    # It begins with accuracy and threshold on both scales, and ends with hashes.
    one = shown[0].threshold
    order = (
        f"{shown[0].figures['accuracy'].value:.4f}",
        f"{one['cosine']:.4f} / {one['squared_l2']:.4f}",
        f"{one['best_cosine']:.4f} / {one['best_squared_l2']:.4f}",
        "same pairs",
        "Model and data",
        "ab" * 32,
    )
    # The classes of right and wrong answers color nothing else, such as table columns.
    colored = set(re.findall(r"\.([a-z]+) \{ color", page))
    assert {"wrong", "correct"} <= colored and "class=right" in page
    assert "right" not in colored
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert "cd" * 32 in text[text.index("fingerprints") :]
    assert "Judged by the threshold at FAR=0.1" in text
    assert "a&amp;b.jpg" in page and "not compared: &lt;why&gt;" in page
    assert "1 with the same bytes, 2 with the same pixels, among 10 images" in page
    assert links.tags.count("svg") == 7
    # What a decision needs is in the first ten lines.
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    start = lines.index("Evaluation of net", 1)
    first = "\n".join(lines[start : start + 10])
    for part in ("Permitted use: unknown", *order[:3], "2 - these results look better"):
        assert part in first
    assert f"{one['far_measured']:.3%} of different people" in first
