"""All pairs of saved embeddings: exact counts, groups, shards, continued counting."""

import json

import numpy as np
import pytest

from plsc_tf.evaluation import all_pairs
from plsc_tf.storage import files
from tests.evaluation.saved_embeddings import evaluate, repeat


def saved(folder):
    """Embeddings of 300 people in two groups and five rows of a third, shuffled."""
    rng = np.random.default_rng(0)
    people = rng.permutation(np.repeat(np.arange(301), 5))
    rows = rng.normal(size=(301, 16))[people] + 0.8 * rng.normal(size=(len(people), 16))
    rows = (3 * rows).astype(np.float32)
    groups = np.where(people == 300, "c", np.where(people % 3, "a", "b"))
    write(folder, rows, people, zip(people, groups, strict=True))
    return rows, people, groups


def write(folder, rows, people, groups):
    np.save(folder / "faces.npy", rows)
    (folder / "ids.txt").write_text("\n".join(map(str, people)))
    lines = (f"{person} {group}" for person, group in groups)
    (folder / "groups.txt").write_text("\n".join(lines))


def options(folder, **more):
    given = {"protocol": "all_pairs", "identities": str(folder / "ids.txt")}
    return given | {"groups": str(folder / "groups.txt")} | more


def small_blocks(monkeypatch):
    monkeypatch.setattr(all_pairs, "BLOCK", 256)
    monkeypatch.setattr(all_pairs, "TILE", 64)


def test_counts_are_those_of_brute_force(tmp_path, monkeypatch):
    small_blocks(monkeypatch)
    rows, people, groups = saved(tmp_path)
    given = options(tmp_path, card_dir=str(tmp_path / "card"), card_far=0.01)
    evaluate(tmp_path, **given)
    unit = rows / np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    a, b = np.triu_indices(len(rows), 1)
    cosines, same = np.sum(unit[a] * unit[b], axis=1), people[a] == people[b]
    card = json.loads((tmp_path / "card" / "card.json").read_text())["sets"]
    within = {name: (groups[a] == name) & (groups[b] == name) for name in "abc"}
    kinds = {"": np.ones(len(a), bool)} | {f" of {x}": within[x] for x in "ab"}
    assert list(card) == [f"all pairs{name}" for name in kinds]
    for name, chosen in kinds.items():
        one, genuine = card[f"all pairs{name}"], same & chosen
        different = np.sort(cosines[~same & chosen])[::-1]
        assert one["counts"]["same"] == np.sum(genuine)
        assert one["counts"]["pairs"] == np.sum(chosen)
        for rate in (0.1, 0.01, 0.001, 1e-4, 1e-5):
            # The highest score that may not be accepted, and the edge of bins above it.
            edge = np.floor(different[int(rate * len(different))] * all_pairs.BINS) + 1
            figure = one["figures"][f"tar@far={rate:.0e}"]
            if rate * len(different) < 10:
                assert figure["value"] is None
                continue
            assert figure["value"] == np.mean(cosines[genuine] >= edge / all_pairs.BINS)
            assert f"cosine {edge / all_pairs.BINS:.5f}, FAR" in figure["note"]
    limit = card["all pairs"]["threshold"]["cosine"]
    assert card["all pairs"]["curves"]["roc"]["far"][-1] < 0.2  # others share a bin
    rates = card["all pairs"]["groups"]
    for name in "ab":
        accepted = [cosines[within[name] & (same == k)] >= limit for k in (0, 1)]
        assert rates["fmr"]["groups"][name]["value"] == np.mean(accepted[0])
        assert rates["fnmr"]["groups"][name]["value"] == np.mean(~accepted[1])
    assert rates["fmr"]["groups"]["c"]["note"] == "1 identities; needs 10"


def test_shards_are_merged_and_a_killed_one_continues(tmp_path, monkeypatch):
    small_blocks(monkeypatch)
    monkeypatch.setattr(all_pairs, "SAVE_EVERY_S", -1)
    saved(tmp_path)
    whole = evaluate(tmp_path, **options(tmp_path))
    first = evaluate(tmp_path, **options(tmp_path, shard="1/3"))
    assert first["shard 1/3"] == "counted; missing: 2/3, 3/3"
    save, saves = files.replace, []

    def killed(path, content):
        saves.append(path)
        if len(saves) == 4:
            raise KeyboardInterrupt
        save(path, content)

    monkeypatch.setattr(files, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        evaluate(tmp_path, **options(tmp_path, shard="2/3"))
    done = evaluate(tmp_path, **options(tmp_path, shard="2/3"))
    # 21 blocks, 7 of them in this shard: three were saved, and one was lost.
    assert len(saves) == 3 + 1 + 4
    assert done["shard 2/3"] == "counted; missing: 3/3"
    assert evaluate(tmp_path, **options(tmp_path, shard="3/3")) == whole
    path = next((tmp_path / "faces.pairs").glob("*-1-of-1.npy"))
    np.save(path, 0 * np.load(path))
    with pytest.raises(ValueError, match="is damaged: .* Delete it to count again"):
        evaluate(tmp_path, **options(tmp_path))


# The author of the lists could otherwise give one the results of the other.
def test_identities_do_not_end_as_groups_begin(tmp_path):
    np.save(tmp_path / "faces.npy", np.eye(4))
    given = options(tmp_path, groups="")
    for same, end in (1, b""), (2, bytes(8)):
        (tmp_path / "ids.txt").write_bytes(b"p\np\nq%s\nq%s" % (bytes(8), end))
        assert evaluate(tmp_path, **given)["all pairs: same"] == same


def test_counts_that_came_with_a_card_do_not_prove_it(tmp_path, monkeypatch):
    # Otherwise, the author of a card could invent the results of embeddings that
    # everyone knows, and have everyone who repeats the evaluation confirm them.
    small_blocks(monkeypatch)
    saved(tmp_path)
    given = options(tmp_path, card_dir=str(tmp_path / "card"))
    honest = evaluate(tmp_path, **given)
    assert repeat(tmp_path / "card" / "card.json").startswith("yes, all ")
    path = next((tmp_path / "faces.pairs").glob("*.npy"))
    counts = np.load(path)
    kinds = counts[:-1].reshape(4, 2, -1)  # a view
    kinds[:, all_pairs.SAME, -1] += kinds[:, all_pairs.SAME, :-1].sum(axis=1)
    kinds[:, all_pairs.SAME, :-1] = 0
    np.save(path, counts)
    assert evaluate(tmp_path, **given) != honest
    with pytest.raises(ValueError, match="differ: set all pairs .*tar@far"):
        repeat(tmp_path / "card" / "card.json")
    # Nor do counts in the folder of the new card, which may also come with the old one.
    (tmp_path / "new").mkdir()
    (tmp_path / "faces.pairs").rename(tmp_path / "new" / "pairs")
    with pytest.raises(FileExistsError):
        repeat(tmp_path / "card" / "card.json", card_dir=str(tmp_path / "new"))
    # Nor may the folder of counts be a link to another one, which would get files.
    (tmp_path / "faces.pairs").symlink_to(__file__.rpartition("/")[0])
    with pytest.raises(ValueError, match="Links must not lead out of"):
        evaluate(tmp_path, **given)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r, p: (r * np.nan, p, "a"), "must be finite, but 1505 of 1505 rows"),
        (lambda r, p: (r * (p[:, None] > 0), p, "a"), "must not be zero, but 5 of"),
        (lambda r, p: (r, p[1:], "a"), "must have 1505 lines .* lines=1504"),
        (lambda r, p: (r, np.where(p, p, ""), "a"), "lines that are not empty"),
        (lambda r, p: (r, 0 * p, "a"), "two identities, one of them with two rows"),
        (lambda r, p: (r, np.arange(1505), "a"), "one of them with two rows"),
        (lambda r, p: (r, p + 1000, "a"), "must give groups to images"),
        (lambda r, p: (r, p, "a b"), "groups.txt, line 1: expected 'name identity'"),
        (lambda r, p: (r.astype(int), p, "a"), "must contain floats of shape"),
        (lambda r, p: (r.astype(np.longdouble), p, "a"), "of 16 to 64 bits"),
    ],
)
def test_bad_input_is_told(tmp_path, change, message):
    rows, people, _ = saved(tmp_path)
    rows, labels, group = change(rows, people)
    write(tmp_path, rows, labels, [(person, group) for person in people])
    with pytest.raises(ValueError, match=message):
        evaluate(tmp_path, **options(tmp_path))
