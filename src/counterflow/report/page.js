// Draws every panel of the page, and makes it answer to buttons, keys, pointers and sizes.
"use strict";

const MOST_ZOOM = 1e6;      // how much shorter than at the start an axis may become
const LEAST_ZOOM = 0.05;    // and how much longer
const REACH = 48;           // pixels between the pointer and a point whose values it shows

// An axis as numbers that move evenly along it.
const straight = (scale, value) => (scale === "log" ? Math.log10(value) : value);
const back = (scale, value) => (scale === "log" ? 10 ** value : value);
const written = (value) => String(value).replace("-", "−").replace("e-", "e−").replace("e+", "e");

function element(name, className, text) {
  const made = document.createElement(name);
  made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

// Columns become the rows that Vega draws, numbered in the order in which they are joined.
function rowsOf(lines) {
  return lines.flatMap(({ x, y, low, high, ...common }) =>
    x.map((value, index) => ({
      ...common, index, x: value, y: y[index],
      ...(low ? { low: low[index], high: high[index] } : {}),
    })));
}

class Panel {
  constructor(place, panel, alone) {
    Object.assign(this, panel, { place, alone, hidden: [] });
    this.home = { x: panel.x.ends, y: panel.y.ends };
    this.tip = element("div", "tip");
    this.dot = element("div", "dot");
    this.tip.hidden = this.dot.hidden = true;
    this.tip.setAttribute("aria-hidden", "true");
  }

  async draw() {
    const inside = element("div", "inside");
    this.place.append(inside, this.dot, this.tip);
    const size = this.size();
    const spec = { ...this.spec, ...size, data: { name: "lines", values: rowsOf(this.lines) } };
    const options = { renderer: "svg", actions: false, ast: true, tooltip: false, defaultStyle: false };
    const drawn = await vegaEmbed(inside, spec, options);
    this.view = drawn.view;
    this.drawnWidth = size.width;
    this.place.view = drawn.view;  // for tests and for the curious
    this.listen();
    new ResizeObserver(() => this.fit()).observe(this.place);
  }

  size() {
    const width = Math.max(120, Math.floor(this.place.clientWidth));
    const share = this.plane ? 0.72 : this.alone ? 0.5 : 0.68;
    const least = this.place.closest("figure.small") ? 165 : 230;
    const height = Math.round(Math.min(Math.max(width * share, least), this.plane ? 520 : 420));
    return { width, height };
  }

  fit() {
    const { width, height } = this.size();
    if (width === this.drawnWidth) return;
    this.drawnWidth = width;
    this.leave();
    this.view.width(width).height(height).resize().runAsync();
  }

  show(hidden) {
    this.hidden = hidden;
    this.leave();
    return this.view.signal("hidden", hidden).runAsync();
  }

  ends(channel) { return this.view.scale(channel).domain(); }

  // Moves both axes: each end keeps its distance from `centre` times `factor`, plus `shift`, where
  // both are shares of the axis.
  move(factor, centre = { x: 0.5, y: 0.5 }, shift = { x: 0, y: 0 }) {
    const next = {};
    for (const channel of ["x", "y"]) {
      const scale = this[channel].scale;
      const [a, b] = this.ends(channel).map((value) => straight(scale, value));
      const home = this.home[channel].map((value) => straight(scale, value));
      const pivot = a + centre[channel] * (b - a) ;
      const slide = shift[channel] * (b - a);
      next[channel] = [a, b].map((value) => pivot + factor * (value - pivot) + slide);
      const zoom = (home[1] - home[0]) / (next[channel][1] - next[channel][0]);
      if (factor !== 1 && (zoom > MOST_ZOOM || zoom < LEAST_ZOOM)) return;
      next[channel] = next[channel].map((value) => back(scale, value));
      if (!next[channel].every(Number.isFinite) || next[channel][0] === next[channel][1]) return;
    }
    this.place.classList.add("zoomed");
    this.set(next);
  }

  reset() {
    this.place.classList.remove("zoomed");
    this.set(this.home);
  }

  set(ends) {
    this.leave();
    this.view.signal("x_ends", ends.x).signal("y_ends", ends.y).runAsync();
  }

  // Where the plane starts inside the chart, and where a pointer is in the plane, in pixels.
  corner() {
    const [left, top] = this.view.origin();
    const padding = this.view.padding();
    return [left + padding.left, top + padding.top];
  }

  locate(event) {
    const box = this.place.querySelector("svg").getBoundingClientRect();
    const [left, top] = this.corner();
    return [event.clientX - box.left - left, event.clientY - box.top - top];
  }

  share([px, py]) {
    return { x: px / this.view.signal("width"), y: 1 - py / this.view.signal("height") };
  }

  listen() {
    const { place } = this;
    let from = null;
    place.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;  // else the page scrolls
      event.preventDefault();
      this.move(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 200), this.share(this.locate(event)));
    }, { passive: false });
    place.addEventListener("pointerdown", (event) => {
      const touch = event.pointerType === "touch";
      if (event.button !== 0 || (touch && !place.classList.contains("zoomed"))) return;
      from = this.locate(event);
      place.setPointerCapture(event.pointerId);
    });
    place.addEventListener("pointermove", (event) => {
      const here = this.locate(event);
      if (!from) { this.hover(here); return; }
      place.classList.add("dragged");
      const [a, b] = [this.share(from), this.share(here)];
      this.move(1, undefined, { x: a.x - b.x, y: a.y - b.y });
      from = here;
    });
    for (const end of ["pointerup", "pointercancel"]) {
      place.addEventListener(end, (event) => {
        from = null;
        place.classList.remove("dragged");
        if (end === "pointerup") this.hover(this.locate(event));
      });
    }
    place.addEventListener("pointerleave", () => this.leave());
    place.addEventListener("dblclick", () => this.reset());
    const step = 0.1;
    const keys = {
      ArrowLeft: () => this.move(1, undefined, { x: -step, y: 0 }),
      ArrowRight: () => this.move(1, undefined, { x: step, y: 0 }),
      ArrowUp: () => this.move(1, undefined, { x: 0, y: step }),
      ArrowDown: () => this.move(1, undefined, { x: 0, y: -step }),
      "+": () => this.move(0.8), "=": () => this.move(0.8), "-": () => this.move(1.25),
      "0": () => this.reset(), Escape: () => this.leave(),
    };
    place.addEventListener("keydown", (event) => {
      if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key]();
    });
  }

  // The values of the nearest point of any curve that is shown.
  hover([px, py]) {
    const [toX, toY] = [this.view.scale("x"), this.view.scale("y")];
    const [width, height] = [this.view.signal("width"), this.view.signal("height")];
    let nearest = null;
    let distance = REACH;
    for (const line of this.lines) {
      if (line.background || this.hidden.includes(line.curve)) continue;
      for (let index = 0; index < line.x.length; index += 1) {
        if (line.x[index] === null || line.y[index] === null) continue;
        const [x, y] = [toX(line.x[index]), toY(line.y[index])];
        if (x < -1 || y < -1 || x > width + 1 || y > height + 1) continue;
        const away = Math.hypot(x - px, y - py);
        if (away < distance) { distance = away; nearest = { line, index, x, y }; }
      }
    }
    if (nearest) this.tell(nearest, width); else this.leave();
  }

  tell({ line, index, x, y }, width) {
    const band = line.low && line.low[index] !== null && line.high[index] !== null
      ? [`from ${written(line.low[index])} to ${written(line.high[index])}`] : [];
    this.tip.replaceChildren(element("strong", "", line.curve),
      ...[`${this.x.title}: ${written(line.x[index])}`, `${this.y.title}: ${written(line.y[index])}`, ...band]
        .map((text) => element("div", "", text)));
    const [left, top] = this.corner();
    this.tip.hidden = this.dot.hidden = false;
    this.dot.style.left = `${left + x}px`;
    this.dot.style.top = `${top + y}px`;
    this.dot.style.background = line.colour;
    const onLeft = x > width / 2;
    this.tip.style.left = onLeft ? "auto" : `${left + x + 14}px`;
    this.tip.style.right = onLeft ? `${this.place.clientWidth - left - x + 14}px` : "auto";
    this.tip.style.top = `${Math.max(0, top + y - 20)}px`;
  }

  leave() { this.tip.hidden = this.dot.hidden = true; }
}

// A figure: its panels, the buttons of its curves, and its tools.
async function drawFigure(figure, panels) {
  const places = [...figure.querySelectorAll(".chart")];
  const charts = panels.map((panel, index) => new Panel(places[index], panel, panels.length === 1));
  for (const chart of charts) await chart.draw();
  const buttons = [...figure.querySelectorAll("button[data-curve]")];
  const tools = {
    in: (chart) => chart.move(0.7),
    out: (chart) => chart.move(1 / 0.7),
    reset: (chart) => chart.reset(),
  };
  figure.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.zoom) charts.forEach(tools[button.dataset.zoom]);
    if (button.dataset.save !== undefined) save(button.dataset.save, charts);
    if (button.dataset.curve === undefined) return;
    button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
    const hidden = buttons.filter((one) => one.getAttribute("aria-pressed") === "false")
      .map((one) => one.dataset.curve);
    charts.forEach((chart) => chart.show(hidden));
  });
  figure.dataset.drawn = "true";
}

// The drawn values as a CSV file, for a spreadsheet or a screen reader.
function save(name, charts) {
  const quoted = (value) => `"${String(value ?? "").replaceAll('"', '""')}"`;
  const rows = charts.flatMap((chart) => chart.lines.flatMap((line) =>
    line.x.map((x, index) => [chart.title, line.curve, x, line.y[index], line.low?.[index], line.high?.[index]])
      .filter((row) => row[2] !== null)));
  const text = [["panel", "curve", "x", "y", "low", "high"], ...rows]
    .map((row) => row.map(quoted).join(",")).join("\r\n");
  const link = element("a", "");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = `${name}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

for (const button of document.querySelectorAll("button[data-copy]")) {
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(source);
      button.textContent = "Selected: copy with Ctrl + C";
    }
  });
}

(async () => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  for (const [id, panels] of Object.entries(figures)) {
    await drawFigure(document.getElementById(id), panels);
  }
  document.documentElement.dataset.drawn = "true";
})();
