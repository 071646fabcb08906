/** One chart: a line for each series, with its figures of now, or of the moment the pointer or the arrow keys are at. */

import { make, setText } from "../app/dom.js";
import { clock } from "../app/format.js";
import { pieces } from "./lines.js";
import { brief, format, LEAST_SCALE, STEPS } from "./units.js";

/* global uPlot */

const HEIGHT = 150;
const SECONDS = { recent: 300, hour: 3_600 };
/** Between two rows, as they come from the server. */
const ROW_SECONDS = { recent: 1, hour: 10 };
/** Between two times on the axis: those of which the axis has room. */
const TIME_STEPS = [60, 120, 300, 600, 900, 1_800, 3_600];
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
/** All charts show the same moment. */
const SYNC = "dashboard";

const colour = (name) => {
  const probe = document.getElementById(`colour-${name}`) ?? document.body.appendChild(make("i", { id: `colour-${name}`, class: `probe ${name}`, hidden: true }));
  return getComputedStyle(probe).color;
};

export class Chart {
  element;
  #figures;
  #panel;
  #speak;
  #names;
  #unit;
  #plot = null;
  #box;
  #values;
  #range = "recent";
  #isSeen = false;
  #isStale = true;
  #observers = [];
  /** The row that the pointer is at. */
  #at = null;

  /** `speak`: says something to those who cannot see it. */
  constructor(panel, figures, speak) {
    this.#panel = panel;
    this.#figures = figures;
    this.#speak = speak;
    this.#names = panel.labels.filter(([name]) => figures.series.has(name));
    this.#unit = figures.series.get(this.#names[0][0]).unit;
    this.#values = this.#names.map(() => make("dd", {}, "–"));
    const legend = this.#names.map(([, label], index) => make("div", { class: `series c${index}` }, make("dt", {}, label), this.#values[index]));
    this.#box = make("div", { class: "chart", role: "img", tabindex: 0, "aria-label": `${panel.title}: chart. Arrow keys read it out.`, keydown: (event) => this.#onKey(event) });
    this.element = make("section", { class: "panel", title: panel.about, "data-panel": panel.title, "aria-label": `${panel.title}. ${panel.about}` },
      make("h3", {}, panel.title), make("dl", { class: "now" }, ...legend), this.#box);
    const seen = new IntersectionObserver(([entry]) => {
      this.#isSeen = entry.isIntersecting;
      if (this.#isSeen && this.#isStale) this.draw();
    });
    this.#observers = [new ResizeObserver(() => this.#resize()), seen];
    this.#observers.forEach((observer) => observer.observe(this.#box));
  }

  /** Lets go of everything that others hold of it: all charts know each other by their pointer. */
  destroy() {
    this.#observers.forEach((observer) => observer.disconnect());
    this.#plot?.destroy();
    this.#plot = null;
  }

  set range(range) {
    this.#range = range;
    this.draw();
  }

  /** Draws what has come; a chart that nobody sees does so later. */
  draw() {
    if (this.#at === null) this.#show(null);
    this.#isStale = !this.#isSeen;
    if (this.#isStale) return;
    const data = [this.#figures.times(this.#range), ...this.#names.map(([name]) => this.#figures.column(this.#range, name))];
    if (this.#plot === null) this.#plot = new uPlot(this.#options(), data, this.#box);
    else this.#plot.setData(data);
  }

  /** The colours have changed. */
  redraw() {
    this.#plot?.redraw(false, true);
  }

  #options() {
    const axis = { stroke: () => colour("axis"), grid: { stroke: () => colour("grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    return {
      width: this.#box.clientWidth,
      height: HEIGHT,
      legend: { show: false },
      cursor: { sync: { key: SYNC }, drag: { x: false, y: false }, points: { size: 6 } },
      scales: {
        x: { time: true, range: () => this.#span() },
        // From nothing, so that a line that wavers a little does not look like a mountain.
        y: { range: (_, least, most) => [Math.min(0, least * 1.1), Math.max(most * 1.1, LEAST_SCALE[this.#unit])] },
      },
      axes: [
        { ...axis, space: 60, size: 24, incrs: TIME_STEPS, values: (_, times) => times.map((time) => clock(new Date(time * 1_000))) },
        { ...axis, size: 62, space: 34, ...(STEPS[this.#unit] && { incrs: STEPS[this.#unit] }), values: (_, values) => values.map((value) => brief(this.#unit, value)) },
      ],
      series: [{}, ...this.#names.map((_, index) => this.#line(() => colour(`c${index}`)))],
      hooks: { setCursor: [(plot) => this.#show(plot.cursor.idx)] },
    };
  }

  /** A series that is broken where there is nothing; a figure alone is a point. */
  #line(stroke) {
    const found = (plot, series) => pieces(plot.data[0], plot.data[series], ROW_SECONDS[this.#range]);
    const at = (plot, row) => plot.valToPos(plot.data[0][row], "x", true);
    const between = (plot, all) => all.slice(1).map(([first], index) => [at(plot, all[index][1]), at(plot, first)]);
    const alone = (all) => all.filter(([first, last]) => first === last).map(([row]) => row);
    return {
      stroke, width: 1.6, gaps: (plot, series) => between(plot, found(plot, series)),
      points: { show: false, size: 3, fill: stroke, filter: (plot, series) => alone(found(plot, series)) },
    };
  }

  #span() {
    const newest = this.#figures.times("recent").at(-1) ?? Date.now() / 1_000;
    return [newest - SECONDS[this.#range], newest];
  }

  /** The figures of a row; of now without one. */
  #show(index) {
    this.#at = index ?? null;
    this.#names.forEach(([name], place) => {
      const value = this.#at === null ? this.#figures.newest(name) : this.#figures.column(this.#range, name)[this.#at];
      setText(this.#values[place], format(this.#unit, value));
    });
  }

  #onKey(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    const times = this.#figures.times(this.#range);
    if (event.key === "Escape") this.#plot?.setCursor({ left: -10, top: -10 });
    if (step === undefined || this.#plot === null || times.length === 0) return;
    event.preventDefault();
    const index = Math.min(times.length - 1, Math.max(0, (this.#at ?? times.length - 1) + step));
    this.#plot.setCursor({ left: this.#plot.valToPos(times[index], "x"), top: 10 });
    const said = this.#names.map(([name, label]) => `${label} ${format(this.#unit, this.#figures.column(this.#range, name)[index])}`);
    this.#speak(`${CLOCK.format(times[index] * 1_000)}: ${said.join(", ")}`);
  }

  #resize() {
    const width = this.#box.clientWidth;
    if (this.#plot !== null && width > 0 && width !== this.#plot.width) this.#plot.setSize({ width, height: HEIGHT });
  }
}
