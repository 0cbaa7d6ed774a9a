"""Lists of pictures and of points; files of rows."""

import numpy as np
import pytest

from plsc_tf.evaluation import lists
from plsc_tf.jobs.embed.command import check_names, write_rows
from plsc_tf.jobs.embed.image_list import list_images, points_of
from plsc_tf.storage import outputs
from tests.small_disk import mounted

TEN = "1 2 3 4 5 6 7 8 9 10.5"
POINTS = np.array([1, 2, 3, 4, 5, 6, 7, 8, 9, 10.5], np.float32).reshape(5, 2)


def write(tmp_path, text, name="list.txt"):
    (tmp_path / name).write_text(text)
    return str(tmp_path / name)


def test_lists_without_points(tmp_path):
    path = write(tmp_path, "b.jpg\n\na b.jpg\r\n/c/d.jpg\ne 1.jpg\t\n")
    names, located, points = list_images(path)
    assert names == ["b.jpg", "a b.jpg", "/c/d.jpg", "e 1.jpg"]
    assert points is None
    assert located[1:3] == [f"{tmp_path}/a b.jpg", "/c/d.jpg"]
    assert list_images(path, "/x")[1][0] == "/x/b.jpg"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (f"a.jpg {TEN}", "a.jpg"),
        (f"a.jpg\t{TEN} 0.99", "a.jpg"),
        (f"a b.jpg {TEN}", "a b.jpg"),
        (f"a 1\t{TEN} 0.9", "a 1"),
    ],
)
def test_points_follow_the_name(tmp_path, line, name):
    points, _ = points_of([name], write(tmp_path, f"{line}\n"))
    np.testing.assert_array_equal(points, POINTS[None])


def test_points_and_scores_are_found_by_name(tmp_path):
    path = write(tmp_path, "b.jpg\na.jpg\n")
    marks = write(tmp_path, f"a.jpg {TEN} .5\nc.jpg {TEN}\nb.jpg {TEN[:-2]}\n", "marks")
    _, _, points = list_images(path, landmarks=marks)
    assert points[:, 4, 1].tolist() == [10.0, 10.5]
    assert points_of(["b.jpg", "a.jpg"], marks)[1].tolist() == [1.0, 0.5]


@pytest.mark.parametrize(
    ("text", "marks", "message"),
    [
        ("\n", None, "list.txt is empty"),
        ("a.jpg\nb.jpg\na.jpg\n", None, "line 3: 'a.jpg' is listed twice"),
        ("a.jpg\n", "a.jpg 1 2\n", "marks, line 1: expected an image and ten numbers"),
        ("a.jpg\n", f"a.jpg {TEN[:-4]}nan\n", "line 1: expected an image and ten"),
        ("a.jpg\nb.jpg\n", f"a.jpg {TEN}\n", "lacks 1 of 2 images, such as 'b.jpg'"),
    ],
)
def test_wrong_lists_are_told(tmp_path, text, marks, message):
    marks = write(tmp_path, marks, "marks") if marks else ""
    with pytest.raises(ValueError, match=message):
        list_images(write(tmp_path, text), landmarks=marks)


def write_to(path, blocks):
    return write_rows(str(path), str(path.with_suffix(".txt")), blocks)


def test_rows_come_back_by_their_names(tmp_path):
    rows = np.random.default_rng(0).normal(size=(1001, 3))
    path = tmp_path / "new" / "faces.npy"

    def blocks():
        for part in np.split(np.arange(1001), [9, 1000]):
            yield [f"{k} {k % 7}\t" if k % 2 else str(k) for k in part], rows[part]
            assert not path.exists()

    assert write_to(path, blocks()) == (1001, 3)
    np.testing.assert_array_equal(np.load(path, mmap_mode="r"), rows.astype(np.float32))
    text = path.with_suffix(".txt").read_bytes()
    assert lists.read_names(text, "faces.txt")[:2] == ("0", "1 1")
    assert len(list(path.parent.iterdir())) == 2


def test_two_commands_with_one_output_do_not_mix(tmp_path, monkeypatch):
    path, own = tmp_path / "faces.npy", outputs.create

    def create(*arguments):  # between the names and the rows of the first command
        own(*arguments)
        with pytest.raises(FileExistsError):
            write_to(path, [(["b"], np.ones((1, 3)))])

    monkeypatch.setattr(outputs, "create", create)
    write_to(path, [(["a"], np.zeros((1, 3)))])
    assert not np.load(path).any() and path.with_suffix(".txt").read_text() == "a\n"


def test_nothing_is_left_of_an_attempt(tmp_path):
    def failing():
        yield ["a", "b"], np.ones((2, 3))
        raise KeyError

    with pytest.raises(KeyError):
        write_to(tmp_path / "faces.npy", failing())
    with pytest.raises(ValueError, match="None of the images could be read"):
        write_to(tmp_path / "faces.npy", ())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["a\tb.jpg", "a\n.jpg", "a\udcff.jpg", "a\u2028b.jpg"])
def test_names_that_no_list_can_hold(name):
    with pytest.raises(ValueError, match="Rename '"):
        check_names(["fine name.jpg", name])


def test_a_file_that_came_meanwhile_is_kept(tmp_path):
    for name in ("faces.txt", "faces.npy"):
        (tmp_path / name).write_text("somebody's")
        with pytest.raises(FileExistsError):
            write_to(tmp_path / "faces.npy", [(["a", "b"], np.ones((2, 3)))])
        assert (tmp_path / name).read_text() == "somebody's"
        for path in tmp_path.iterdir():
            path.unlink()


def test_no_names_are_left_where_the_rows_did_not_fit(tmp_path):
    with mounted(tmp_path, "1m") as disk:
        with pytest.raises(OSError, match="No space"):
            write_to(disk / "a.npy", [(map(str, range(700)), np.ones((700, 256)))])
        assert not list(disk.iterdir())


def test_the_root_of_a_store_is_refused_before_the_work():
    with pytest.raises(ValueError, match="below the root of the store"):
        write_rows("ram://bucket/faces.npy", "ram://bucket/faces.txt", ())
