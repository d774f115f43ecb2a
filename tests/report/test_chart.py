"""Charts of findings, looked at through their specification and their lines."""

import json
from typing import get_args

import numpy as np
import pytest

import findings
from counterflow.experiments.curves import by_pair
from counterflow.experiments.finding import Curve, Finding, Panel, Role
from counterflow.report.chart import chart, figure, interactive, looks_of
from counterflow.report.lines import MOST_POINTS, lines_of, thinned, window_of
from counterflow.report.style import DARK, ROLES, WHITE, look, palette
from counterflow.runs.run import TrainingSeries
from counterflow.runs.training import Training


def panel_of(*curves, **options):
    return Panel("title", "horizontal", "vertical", curves, **options)


def rows_of(drawn):
    return drawn.to_dict()["data"]["values"]


def strict(drawn):
    """The specification as a browser reads it: without what is not JSON."""

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(json.dumps(drawn.to_dict()), parse_constant=refuse)


# --- looks ----------------------------------------------------------------------------------


def luminance(colour):
    parts = np.array(list(bytes.fromhex(colour[1:]))) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ np.array([0.2126, 0.7152, 0.0722]))


def contrast(one, other):
    bright, dim = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def test_every_role_has_a_look():
    assert set(ROLES) == set(get_args(Role))


@pytest.mark.parametrize("role", [role for role in ROLES if role != "background"])
def test_a_curve_stands_out_from_both_pages_in_every_variant(role):
    for variant in range(12):
        assert contrast(look(role, variant).colour, WHITE) >= 3
        assert contrast(look(role, variant).dark, DARK) >= 3


def test_further_variants_differ_in_dash_or_width():
    for role in ROLES:
        looks = [look(role, variant) for variant in range(12)]
        assert len(set(looks)) == 12
        # As many as a figure of the paper has learning rates, and one more, by their dash alone.
        assert len({one.dash for one in looks[:4]}) == 4
        assert len({one.width for one in looks[:4]}) == 1


def test_a_colour_on_white_says_the_colour_on_dark():
    looks = [look(role, variant) for role in ROLES for variant in range(4)]
    assert len(palette()) == len(ROLES)
    assert all(palette()[one.colour] == one.dark for one in looks)


def test_learning_rates_have_tones_that_no_flow_has_and_weight_decays_dashes():
    pairs = [(rate, decay) for rate in (0.1, 0.03, 0.01, 0.001) for decay in (0.01, 0.001)]
    known = [
        TrainingSeries(
            Training(rate, decay, 7, 2, 2, (0,)), np.arange(3), 3, {}, "completed", {}, 0.0
        )
        for rate, decay in pairs
    ]
    panel = by_pair(known, lambda one: one.times + 1, "charge")
    assert [curve.name for curve in panel.curves] == [f"η = {η:g}, λ = {λ:g}" for η, λ in pairs]
    looks = [look(curve.role, curve.variant) for curve in panel.curves]
    assert len(set(looks)) == len(pairs)
    assert not {one.colour for one in looks} & {look(f"order {order}").colour for order in range(5)}
    tones, dashes = ([one[part] for one in looks[:6]] for part in (0, 2))
    assert tones[::2] == tones[1::2]  # one for each learning rate
    assert len(set(tones)) == 3
    assert dashes == dashes[:2] * 3  # one for each weight decay
    assert len(set(dashes)) == 2


# --- lines ----------------------------------------------------------------------------------


def test_a_parametric_curve_keeps_its_order():
    angle = np.linspace(0, 2 * np.pi, 50)
    drawn = chart(panel_of(Curve("circle", "order 1", np.cos(angle), np.sin(angle))))
    rows = rows_of(drawn)
    assert [row["index"] for row in rows] == list(range(50))
    np.testing.assert_allclose([row["x"] for row in rows], np.cos(angle), atol=1e-5)
    line = drawn.to_dict()["layer"][-1]["encoding"]
    assert line["order"]["field"] == "index"


def test_interruptions_are_kept_and_all_is_json():
    linear, logarithmic, nothing = findings.spoiled().panels
    (line,) = lines_of(linear)
    assert line["x"].count(None) == line["y"].count(None) == 1
    assert max(value for value in line["y"] if value is not None) < 100
    (line,) = lines_of(logarithmic)
    assert min(value for value in line["y"] if value is not None) > 0
    assert lines_of(nothing) == []
    for panel in findings.spoiled().panels:
        strict(chart(panel))
        assert np.all(np.isfinite(window_of(panel)))
    strict(figure(findings.spoiled()))


def test_what_is_not_positive_is_not_drawn_on_a_logarithmic_axis():
    x = np.array([-1.0, 0.0, 1.0, 2.0])
    curve = Curve("one", "order 0", x, np.array([1.0, 1.0, -1.0, 5.0]))
    (line,) = lines_of(panel_of(curve, x_scale="log", y_scale="log"))
    assert (line["x"], line["y"]) == ([2.0], [5.0])
    (line,) = lines_of(panel_of(curve))
    assert len(line["x"]) == 4


def test_a_band_that_reaches_below_zero_reaches_the_bottom():
    x, y = np.array([1.0, 2.0]), np.array([1.0, 10.0])
    panel = panel_of(Curve("one", "order 0", x, y, band=(y - 2, y + 2)), y_scale="log")
    (line,) = lines_of(panel)
    assert line["low"] == [pytest.approx(window_of(panel).y[0], rel=1e-5), 8.0]
    assert line["high"] == [3.0, 12.0]
    assert "area" in [layer["mark"]["type"] for layer in strict(chart(panel))["layer"]]


def test_long_curves_are_thinned_without_losing_their_peaks():
    x = np.linspace(0, 1, 10_001)
    y = np.sin(6 * x)
    y[4321] = 9.0
    (line,) = lines_of(panel_of(Curve("one", "order 0", x, y)))
    assert len(line["x"]) <= MOST_POINTS
    assert (line["x"][0], line["x"][-1], max(line["y"])) == (0.0, 1.0, 9.0)
    assert line["x"] == sorted(line["x"])


def test_the_first_decade_of_a_logarithmic_axis_is_not_thinned_away():
    x = np.arange(1.0, 100_001.0)
    (line,) = lines_of(panel_of(Curve("one", "order 0", x, 1 / x), x_scale="log", y_scale="log"))
    assert sum(value <= 10 for value in line["x"]) >= 9


def test_thinning_of_a_curve_that_does_not_move():
    still = np.zeros(1000)
    assert len(thinned(still, still, 100)) <= 100


def test_small_differences_survive_rounding():
    y = 1 + 1e-9 * np.arange(5.0)
    (line,) = lines_of(panel_of(Curve("one", "order 0", np.arange(5.0), y)))
    assert len(set(line["y"])) == 5


# --- charts ---------------------------------------------------------------------------------


def test_a_plane_is_drawn_to_scale():
    (panel,) = findings.plane().panels
    for width, height in ((300, 220), (200, 400)):
        encoding = chart(panel, width, height).to_dict()["layer"][0]["encoding"]
        x, y = encoding["x"]["scale"]["domain"], encoding["y"]["scale"]["domain"]
        assert (x[1] - x[0]) / width == pytest.approx((y[1] - y[0]) / height)
        window = window_of(panel)
        assert x[0] <= window.x[0] < window.x[1] <= x[1]
        assert y[0] <= window.y[0] < window.y[1] <= y[1]


def test_the_background_is_not_listed_and_says_nothing():
    (panel,) = findings.plane().panels
    assert "level" not in looks_of((panel,))
    background, *others = chart(panel).to_dict()["layer"]
    assert background["transform"] == [{"filter": "datum.background"}]
    assert "tooltip" not in background["encoding"]
    assert "color" not in background["encoding"]
    assert any("tooltip" in layer["encoding"] for layer in others)


def test_the_legend_shows_every_look():
    drawn = chart(findings.errors_over_time().panels[0]).to_dict()
    encoding = drawn["layer"][1]["encoding"]
    scale = encoding["color"]["scale"]
    assert scale["domain"][0] == "measured"
    assert scale["range"][0] == ROLES["descent"].colour
    assert encoding["strokeWidth"]["scale"]["type"] == "ordinal"
    assert encoding["strokeDash"]["scale"]["range"][1] == list(ROLES["local"].dash)


def test_curves_of_one_name_look_alike():
    x = np.arange(3.0)
    alike = panel_of(Curve("seed", "order 1", x, x), Curve("seed", "order 1", x, 2 * x))
    assert len(looks_of((alike,))["seed"]) == 1
    assert len(lines_of(alike)) == 2
    different = panel_of(Curve("seed", "order 1", x, x), Curve("seed", "order 2", x, x))
    with pytest.raises(ValueError, match="curves of one name must look alike, got two looks"):
        chart(different)


def test_panels_share_a_legend_where_they_can():
    x = np.arange(3.0)
    one, other = (panel_of(Curve("a", role, x, x)) for role in ("order 1", "order 2"))
    claims = findings.bare().claims
    shared = figure(Finding("n", "t", "c", claims, (one, one))).to_dict()
    assert "resolve" not in shared
    apart = figure(Finding("n", "t", "c", claims, (one, other))).to_dict()
    assert apart["resolve"]["scale"]["color"] == "independent"


def test_a_finding_without_panels_is_refused():
    with pytest.raises(ValueError, match="must have panels to be drawn, got none in 'bare'"):
        figure(findings.bare())


def test_the_chart_of_the_page_follows_its_signals():
    specification = interactive(findings.plane().panels[0])
    assert {param["name"] for param in specification["params"]} == {
        "x_ends",
        "y_ends",
        "hidden",
        "unit",
    }
    assert specification["data"] == {"name": "lines"}
    assert "datasets" not in specification
