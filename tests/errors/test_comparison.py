"""Comparisons as datasets and as tables; made by hand here, so that every number is known."""

import json
from html.parser import HTMLParser

import numpy as np
import pytest
import xarray

import counterflow as cf

ORDERS, STEPS = (0, 2), np.array([0, 10, 40])
LEARNING_RATE = 0.25
SHAPE = (len(ORDERS), len(STEPS))
KINDS = ("local", "propagated", "restarted_local", "restarted_propagated")
PARTS = ("prediction", "mismatch", "uncertainty")
MEASURED = ("error", "relative_error", "solver_error", "flow_loss")
NAN = float("nan")


def comparison(kinds=KINDS, **changed):
    """A comparison in which no two numbers are the same."""
    numbers = iter(np.arange(1, 100).reshape(-1, 1, 1) + np.arange(6).reshape(1, *SHAPE) / 10)
    predictions = {
        kind: cf.ComparedPrediction(**{part: next(numbers) for part in PARTS}) for kind in kinds
    }
    fields = {
        "learning_rate": LEARNING_RATE,
        "weight_decay": 0.01,
        "method": "taylor",
        "orders": ORDERS,
        "steps": STEPS,
        **{name: next(numbers) for name in MEASURED},
        "solver_limited": np.array([[False, False, False], [False, False, True]]),
        "descent_loss": np.array([0.75, 0.5, 0.25]),
        "predictions": predictions,
        "restart": 10 if any(kind.startswith("restarted") for kind in kinds) else None,
        "status": cf.Status.COMPLETED,
        "flow_status": {0: cf.Status.COMPLETED, 2: cf.Status.COMPLETED},
        "prediction_status": {0: cf.Status.COMPLETED, 2: cf.Status.COMPLETED},
        "rtol": {0: 1e-8, 2: 1e-11},
        "statistics": {"descent": cf.Statistics(40, 40, 0, "gradient descent")},
    }
    return cf.Comparison(**(fields | changed))


# --- as a dataset ---------------------------------------------------------------------------


def expected_variables(run):
    """Every variable that the dataset of a comparison must have, with its values."""
    found = {name: getattr(run, name) for name in (*MEASURED, "solver_limited", "descent_loss")}
    for kind, predicted in run.predictions.items():
        found |= {f"{kind}_{part}": getattr(predicted, part) for part in PARTS}
    return found


@pytest.mark.parametrize("kinds", [(), KINDS[:2], KINDS], ids=len)
def test_the_dataset_holds_everything_by_name(kinds):
    run = comparison(kinds)
    dataset = run.to_xarray()
    expected = expected_variables(run)
    assert len(expected) == 6 + 3 * len(kinds)
    assert set(dataset.data_vars) == set(expected)
    for name, values in expected.items():
        assert dataset[name].dims == (("step",) if name == "descent_loss" else ("order", "step"))
        np.testing.assert_array_equal(dataset[name].values, values)
    assert dataset.solver_limited.dtype == bool


def test_the_coordinates_are_order_step_and_time():
    dataset = comparison().to_xarray()
    assert dict(dataset.sizes) == {"order": 2, "step": 3}
    assert set(dataset.coords) == {"order", "step", "time"}
    np.testing.assert_array_equal(dataset.order, ORDERS)
    np.testing.assert_array_equal(dataset.step, STEPS)
    assert dataset.time.dims == ("step",)
    np.testing.assert_array_equal(dataset.time, [0, 2.5, 10])
    assert float(dataset.error.sel(order=2, step=10)) == comparison().error[1, 1]


def test_everything_in_the_dataset_is_described():
    dataset = comparison().to_xarray()
    for name, variable in dataset.data_vars.items():
        for attribute in ("long_name", "units", "description"):
            assert variable.attrs[attribute].strip(), f"{name} has no {attribute}"
    for name, coordinate in dataset.coords.items():
        assert coordinate.attrs["long_name"].strip(), name
        assert coordinate.attrs["units"].strip(), name
    # No two variables are described alike.
    for attribute in ("long_name", "description"):
        texts = [variable.attrs[attribute] for variable in dataset.data_vars.values()]
        assert len(set(texts)) == len(texts)
    for part in PARTS:
        for kind in KINDS:
            attributes = dataset[f"{kind}_{part}"].attrs
            assert kind.removeprefix("restarted_") in attributes["long_name"]
            restarted = kind.startswith("restarted_")
            assert ("from step 10" in attributes["long_name"]) == restarted
            assert ("measured at step 10" in attributes["description"]) == restarted


def test_the_dataset_says_what_was_run():
    run = comparison(flow_status={0: cf.Status.COMPLETED, 2: cf.Status.STEP_VANISHED})
    attributes = run.to_xarray().attrs
    assert attributes["title"]
    assert attributes["learning_rate"] == LEARNING_RATE
    assert attributes["weight_decay"] == 0.01
    assert attributes["method"] == "taylor"
    assert attributes["status"] == "completed"
    assert attributes["flow_status"] == ["order 0: completed", "order 2: step vanished"]
    assert attributes["rtol"] == [1e-8, 1e-11]
    assert attributes["restart"] == 10
    assert "restart" not in comparison(KINDS[:2]).to_xarray().attrs


def test_the_dataset_survives_a_round_trip_through_json():
    error = np.array([[0.0, 1.0, NAN], [0.0, 0.5, 0.25]])
    dataset = comparison(error=error).to_xarray()
    text = json.dumps(dataset.to_dict())
    again = xarray.Dataset.from_dict(json.loads(text))
    xarray.testing.assert_identical(again, dataset)
    assert {name: again[name].dtype for name in again} == {n: dataset[n].dtype for n in dataset}


def test_a_comparison_without_records_is_a_dataset_without_steps():
    nothing = np.empty((2, 0))
    run = comparison(
        (),
        steps=STEPS[:0],
        descent_loss=np.empty(0),
        solver_limited=np.empty((2, 0), bool),
        status=cf.Status.DIVERGED,
        **dict.fromkeys(MEASURED, nothing),
    )
    assert dict(run.to_xarray().sizes) == {"order": 2, "step": 0}
    assert "0 records; gradient descent diverged" in repr(run)
    assert "smaller learning rate" in repr(run)
    assert Page.of(run).rows == []


# --- the best order -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "best"),
    [((0.2, 0.1), 2), ((0.1, 0.2), 0), ((0.1, NAN), 0), ((NAN, 0.2), 2), ((np.inf, 0.2), 2)],
)
def test_the_best_order_has_the_smallest_error_at_the_last_record(last, best):
    error = np.array([[0.0, 0.3, last[0]], [0.0, 0.3, last[1]]])
    error[:, 1] = error[::-1, 2]  # the other way round before
    assert comparison(error=error).best_order == best


# --- as text --------------------------------------------------------------------------------


def test_the_text_is_a_table_of_the_last_record():
    heading, where, columns, *rows, note = repr(comparison(KINDS[:2])).splitlines()
    assert heading == ("Comparison at η = 0.25, λ = 0.01, 3 records; gradient descent completed")
    assert where == "at step 40, t = 10:"
    names = "order error relative solver local off by propagated off by"
    assert columns.split() == names.split()
    assert len(rows) == 2
    # The numbers at the last record, in the order of the columns.
    assert rows[0].split() == "0 7.2 8.2 9 1.2 220 % 4.2 520 %".split()
    assert rows[1].split() == "2 7.5* 8.5 1e+01 1.5 250 % 4.5 550 %".split()
    assert len({len(line) for line in (columns, *rows)}) == 1  # aligned
    assert note.startswith("* limited by the solver or by rounding")
    assert "`rtol`" in note


def test_restarted_predictions_have_columns_of_their_own():
    columns = repr(comparison()).splitlines()[2]
    assert "restarted local" in columns
    assert "restarted propagated" in columns


def test_where_nothing_is_limited_there_is_no_star():
    run = comparison(solver_limited=np.zeros(SHAPE, bool))
    assert "*" not in repr(run)
    assert "*" not in run._repr_html_()
    # Nor where it was limited only before.
    before = np.array([[False, True, False], [False, False, False]])
    assert "*" not in repr(comparison(solver_limited=before))


def test_a_percentage_that_is_not_known_is_left_out():
    unknown = cf.ComparedPrediction(*(np.full(SHAPE, NAN) for _ in PARTS))
    row = repr(comparison(predictions={"local": unknown}, restart=None)).splitlines()[3]
    assert row.split()[-1] == "nan"
    assert "%" not in row


def test_a_mismatch_of_nearly_one_is_a_hundred_percent():
    nearly = cf.ComparedPrediction(*(np.full(SHAPE, 0.9999) for _ in PARTS))
    assert "100 %" in repr(comparison(predictions={"local": nearly}, restart=None))


def test_without_a_flow_at_the_last_record_there_is_no_best_order():
    error = np.array([[0.0, 0.3, np.nan], [0.0, 0.3, np.nan]])
    with pytest.raises(ValueError, match="there is no best order: no flow was compared"):
        _ = comparison(error=error).best_order


def test_a_prediction_that_failed_is_said_to_have():
    failed = {0: cf.Status.TOO_MANY_STEPS, 2: cf.Status.COMPLETED}
    text = repr(comparison(prediction_status=failed))
    assert "predictions, order 0: too many steps: " in text
    assert "order 2:" not in text


def test_what_went_wrong_is_said_with_a_remedy():
    run = comparison(
        status=cf.Status.DIVERGED,
        flow_status={0: cf.Status.COMPLETED, 2: cf.Status.TOO_MANY_STEPS},
    )
    text = repr(run)
    assert "gradient descent diverged" in text.splitlines()[0]
    assert "flow, order 2: too many steps: raise `max_steps`" in text
    assert "order 0:" not in text
    assert "use a smaller learning rate" in text
    assert "use a smaller learning rate" in "".join(Page.of(run).paragraphs)


# --- as HTML --------------------------------------------------------------------------------


class Page(HTMLParser):
    """What a page holds; raises unless every tag is closed in its turn."""

    @classmethod
    def of(cls, run):
        page = cls(convert_charrefs=True)
        page.feed(run._repr_html_())
        page.close()
        assert not page.open
        return page

    def __init__(self, **options):
        super().__init__(**options)
        self.open, self.rows, self.paragraphs = [], [], []

    def handle_starttag(self, tag, attributes):
        assert tag in ("div", "p", "table", "tr", "th", "td")
        self.open.append(tag)
        if tag == "tr":
            assert self.open[-2] == "table"
            self.rows.append([])
        if tag in ("th", "td"):
            assert self.open[-2] == "tr"
            self.rows[-1].append((tag, ""))
        if tag == "p":
            self.paragraphs.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        where = self.open[-1]
        if where == "p":
            self.paragraphs[-1] += data
        elif where in ("th", "td"):
            tag, text = self.rows[-1][-1]
            self.rows[-1][-1] = (tag, text + data)
        else:
            assert not data.strip()


@pytest.mark.parametrize("kinds", [(), KINDS[:2], KINDS], ids=len)
def test_the_html_is_the_same_table(kinds):
    run = comparison(kinds)
    page = Page.of(run)
    header, *rows = page.rows
    assert {tag for tag, _ in header} == {"th"}
    assert {tag for row in rows for tag, _ in row} == {"td"}
    assert [len(row) for row in page.rows] == [4 + 2 * len(kinds)] * 3
    lines = repr(run).splitlines()
    for row, line in zip(page.rows, lines[2:], strict=False):
        assert " ".join(text for _, text in row).split() == line.split()
    assert page.paragraphs[0].split() == " ".join(lines[:2]).split()
    assert page.paragraphs[1:] == lines[5:]


def test_the_html_escapes_what_it_quotes():
    run = comparison(("local",))
    strange = comparison(predictions={"<script>&": run.predictions["local"]}, restart=None)
    html = strange._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;&amp;" in html
    assert ("th", "<script>&") in Page.of(strange).rows[0]
