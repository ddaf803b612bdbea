"use strict";
// Draws the panels of each run from the data in the page. All panels of a run share one time axis, so that zooming one
// zooms all; lines are thinned to the smallest and the largest value per bucket, anew for whatever part is shown.

const BUCKETS = 500;
const PANEL_GAP = 26;
const MARK_DASHES = { join: "dot", leave: "dashdot", controller: "solid", link: "dash" };
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const redraws = [];

function dataOf(id) {
  return JSON.parse(document.getElementById(id).textContent);
}

function floats(base64) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  return new Float32Array(bytes.buffer);
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function themed(pair) {
  return dark.matches ? pair[1] : pair[0];
}

function firstAtOrAfter(times, time) {
  let low = 0, high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < time) low = middle + 1; else high = middle;
  }
  return low;
}

// Returns the points to draw of the part [from, to], one sample more at either side.
function thinned(x, y, [from, to]) {
  const first = Math.max(0, firstAtOrAfter(x, from) - 1);
  const last = Math.min(x.length, firstAtOrAfter(x, to) + 1);
  if (last - first <= 2 * BUCKETS) return [x.subarray(first, last), y.subarray(first, last)];
  const kept = [], step = (x[last - 1] - x[first]) / BUCKETS;
  for (let start = first, bucket = 1; start < last; bucket++) {
    const end = bucket >= BUCKETS ? last : Math.max(start, firstAtOrAfter(x, x[first] + bucket * step));
    let low = -1, high = -1;
    for (let i = start; i < end; i++) {
      if (Number.isNaN(y[i])) continue;
      if (low < 0 || y[i] < y[low]) low = i;
      if (high < 0 || y[i] > y[high]) high = i;
    }
    if (low < 0 && end > start) kept.push(start);
    else if (low >= 0) kept.push(...(low === high ? [low] : [Math.min(low, high), Math.max(low, high)]));
    start = end;
  }
  return [Float32Array.from(kept, (i) => x[i]), Float32Array.from(kept, (i) => y[i])];
}

function axisStyle() {
  return { gridcolor: colour("line"), linecolor: colour("faint"), zeroline: false, tickcolor: colour("faint") };
}

// Plotly's name of the nth axis, from 0: x, x2, x3, …
function nth(name, index) {
  return index === 0 ? name : `${name}${index + 1}`;
}

function plainLayout() {
  return {
    paper_bgcolor: colour("ground"), plot_bgcolor: colour("ground"), showlegend: false,
    font: { color: colour("text"), family: "system-ui, sans-serif", size: 12 },
    hoverlabel: { bgcolor: colour("raised"), bordercolor: colour("line"), font: { color: colour("text") } },
  };
}

const CONFIG = {
  responsive: true, displayModeBar: false, doubleClick: "reset", // the bar would cover the first panel; all it does is on the page
};

class RunPlots {
  constructor(section) {
    this.section = section;
    this.run = dataOf(section.dataset.run);
    this.arrays = this.run.arrays.map(floats);
    this.hidden = new Set();
    this.range = this.whole();
    this.div = section.querySelector(".plots");
    this.buttons();
    this.draw().then(() => {
      this.div.on("plotly_relayout", () => this.zoomed());
      this.section.dataset.drawn = "true";
    });
    redraws.push(() => this.draw());
  }

  whole() {
    return [0, this.run.end_s];
  }

  zoomed() {
    const range = this.div.layout.xaxis.range.map(Number);
    if (range[0] === this.range[0] && range[1] === this.range[1]) return;
    this.range = range;
    this.draw();
  }

  show(range) {
    this.range = range;
    return this.draw();
  }

  toggle(flow) {
    if (!this.hidden.delete(flow)) this.hidden.add(flow);
    return this.changed();
  }

  changed() {
    for (const button of this.section.querySelectorAll("[data-flow]")) {
      button.setAttribute("aria-pressed", String(!this.hidden.has(Number(button.dataset.flow))));
    }
    return this.draw();
  }

  buttons() {
    for (const button of this.section.querySelectorAll("[data-flow]")) {
      button.addEventListener("click", () => this.toggle(Number(button.dataset.flow)));
    }
    const flows = this.run.flows.map((_, index) => index);
    this.section.querySelector("[data-do=all]").addEventListener("click", () => {
      this.hidden = new Set();
      this.changed();
    });
    this.section.querySelector("[data-do=none]").addEventListener("click", () => {
      this.hidden = new Set(flows);
      this.changed();
    });
    this.section.querySelector("[data-do=reset]").addEventListener("click", () => this.show(this.whole()));
  }

  draw() {
    for (const line of this.section.querySelectorAll("[data-flow] line")) {
      line.setAttribute("stroke", themed(this.run.flows[line.closest("button").dataset.flow].colours));
    }
    return Plotly.react(this.div, this.traces(), this.layout(), CONFIG);
  }

  traces() {
    return this.run.panels.flatMap((panel, index) => panel.traces.map((trace) => this.trace(panel, index, trace)));
  }

  trace(panel, index, trace) {
    const x = this.arrays[trace.x], y = this.arrays[trace.y];
    const marks = trace.symbol !== undefined;
    const points = marks ? [x, y] : thinned(x, y, this.range);
    const unit = panel.unit ? ` ${panel.unit}` : "";
    return {
      x: points[0], y: points[1], text: trace.text, name: trace.name, xaxis: "x", yaxis: nth("y", index),
      type: "scatter", mode: marks ? "markers" : "lines", connectgaps: false,
      visible: trace.flow === null || !this.hidden.has(trace.flow),
      line: { color: themed(trace.colours), width: trace.width, dash: trace.dash },
      marker: { color: themed(trace.colours), symbol: trace.symbol, size: 8, line: { width: 1.5, color: themed(trace.colours) } },
      opacity: trace.opacity,
      hovertemplate: trace.text ? "%{text}<extra></extra>" : marks ? "%{x:.2f} s<extra>%{fullData.name}</extra>"
        : `%{y:.4g}${unit}<extra>%{fullData.name}</extra>`,
    };
  }

  layout() {
    const heights = this.run.panels.map((panel) => panel.height);
    const total = heights.reduce((sum, height) => sum + height + PANEL_GAP, -PANEL_GAP);
    const layout = {
      ...plainLayout(), height: total + 90, margin: { l: 64, r: 16, t: 30, b: 60 }, hovermode: "x unified",
      dragmode: "zoom", shapes: this.shapes(), annotations: [], uirevision: "same",
      xaxis: {
        ...axisStyle(), range: [...this.range], title: { text: "time since the run began (s)" },
        anchor: nth("y", heights.length - 1), showspikes: true, spikemode: "across", spikethickness: 1,
        spikecolor: colour("faint"), spikedash: "dot", hoverformat: ".2f",
      },
    };
    let top = 1;
    this.run.panels.forEach((panel, index) => {
      const bottom = Math.max(0, top - panel.height / total);
      layout[nth("yaxis", index)] = {
        ...axisStyle(), domain: [bottom, top], anchor: "x", title: { text: panel.label, standoff: 6 },
        rangemode: panel.from_zero ? "tozero" : "normal", fixedrange: true,
        ...(panel.range ? { range: panel.range } : { autorange: true }),
        ...(panel.ticks.length ? { tickvals: panel.ticks.map((_, place) => place), ticktext: panel.ticks } : {}),
      };
      layout.annotations.push(this.note(panel, index, top));
      panel.references.forEach((value) => layout.shapes.push(this.reference(value, index)));
      top = bottom - PANEL_GAP / total;
    });
    return layout;
  }

  note(panel, index, top) {
    return {
      text: panel.note, xref: "paper", yref: "paper", x: 1, y: top, xanchor: "right", yanchor: "bottom", showarrow: false,
      font: { size: 11, color: colour("faint") },
    };
  }

  reference(value, index) {
    return {
      type: "line", xref: "paper", x0: 0, x1: 1, yref: nth("y", index), y0: value, y1: value,
      line: { color: colour("faint"), width: 1, dash: "dash" },
    };
  }

  shapes() {
    const marks = this.run.marks.map((mark) => ({
      type: "line", xref: "x", yref: "paper", x0: mark.t_s, x1: mark.t_s, y0: 0, y1: 1, opacity: 0.6,
      line: { color: colour(mark.kind === "controller" ? "bad" : mark.kind === "link" ? "good" : "faint"), width: 1,
        dash: MARK_DASHES[mark.kind] },
    }));
    const warmup = {
      type: "rect", xref: "x", yref: "paper", x0: 0, x1: this.run.warmup_s, y0: 0, y1: 1, layer: "below",
      fillcolor: colour("raised"), line: { width: 0 },
    };
    return this.run.warmup_s > 0 ? [warmup, ...marks] : marks;
  }
}

// Draws means with their intervals: a panel for each measure, a colour for each group of repeats.
class Comparison {
  constructor(div) {
    this.div = div;
    this.data = dataOf(div.dataset.comparison);
    this.draw();
    redraws.push(() => this.draw());
  }

  draw() {
    const columns = Math.min(3, this.data.panels.length);
    const rows = Math.ceil(this.data.panels.length / columns);
    const layout = {
      ...plainLayout(), height: 270 * rows + 60, margin: { l: 56, r: 10, t: 30, b: 40 }, showlegend: true,
      legend: { orientation: "h", y: -0.08, yanchor: "top" }, scattermode: "group", annotations: [],
      grid: { rows, columns, pattern: "independent", xgap: 0.16, ygap: 0.28 },
    };
    const traces = this.data.panels.flatMap((panel, index) => {
      layout[nth("xaxis", index)] = { ...axisStyle(), type: "category", fixedrange: true };
      layout[nth("yaxis", index)] = { ...axisStyle(), rangemode: "tozero", fixedrange: true, title: { text: panel.label, standoff: 4 } };
      return panel.groups.map((group, number) => ({
        x: group.names, y: group.means, name: this.data.groups[number], legendgroup: String(number),
        showlegend: index === 0, mode: "markers", type: "scatter", xaxis: nth("x", index), yaxis: nth("y", index),
        marker: { size: 9, color: themed(this.data.colours[number]), symbol: this.data.symbols[number] },
        error_y: { type: "data", symmetric: false, array: group.above, arrayminus: group.below,
          color: themed(this.data.colours[number]) },
        hovertemplate: `%{x}: %{y:.4g}<extra>${panel.label}</extra>`,
      }));
    });
    return Plotly.react(this.div, traces, layout, CONFIG);
  }
}

function start() {
  document.querySelectorAll("[data-comparison]").forEach((div) => new Comparison(div));
  for (const section of document.querySelectorAll("section.run")) {
    const details = section.querySelector(":scope > details.fold");
    const plots = () => { section.plots ??= new RunPlots(section); };
    if (!details || details.open) plots();
    else details.addEventListener("toggle", plots, { once: true });
  }
  dark.addEventListener("change", () => redraws.forEach((redraw) => redraw()));
}

start();
