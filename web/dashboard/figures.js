/**
 * The server's figures: the last hour as the stream begins, then a sample every second.
 *
 * Times are those of the server's monotonic clock, moved to the reader's wall clock once, when the stream begins. So
 * neither clock bends a chart when it is set.
 */

import { Emitter } from "../app/dom.js";
import { openEvents } from "../app/events.js";
import { whoCalls } from "../app/token.js";

const PATH = "/v1/stats/live";
/** Without a sample for so long, what is shown is not of now. */
const LATE_MS = 5_000;
/** Rows that are kept, as on the server. */
const ROWS = { recent: 300, hour: 360 };

/** Emits `figures` after each sample, `state` with components and top lists, `live` with a boolean, `refused` with who calls. */
export class Figures extends Emitter {
  /** By name: its place in the columns, and its unit. */
  series = new Map();
  #ranges = { recent: { at: [], values: [] }, hour: { at: [], values: [] } };
  #offset = 0;
  #end = () => {};
  #again;
  #late = null;

  /** Opens the stream, again and again until the server refuses it. */
  open() {
    this.#end();
    clearTimeout(this.#again);
    const take = { begun: (data) => this.#begin(data), sample: (data) => this.#add(data), state: (data) => this.emit("state", data) };
    const end = this.#end = openEvents(PATH, (name, data) => take[name]?.(data), async (pause) => {
      this.emit("live", false);
      const caller = await whoCalls();
      if (this.#end !== end) return;
      if (caller === null || caller?.admin === false) return this.emit("refused", caller);
      this.#again = setTimeout(() => this.open(), pause);
    });
  }

  /** Times and values of one series; `undefined` if this server does not have it. */
  column(range, name) {
    const place = this.series.get(name)?.place;
    return place === undefined ? undefined : this.#ranges[range].values[place];
  }

  times(range) {
    return this.#ranges[range].at;
  }

  newest(name) {
    return this.column("recent", name)?.at(-1) ?? null;
  }

  /** What a rate adds up to over the last so many seconds. */
  total(name, seconds) {
    const range = seconds > ROWS.recent ? "hour" : "recent";
    const [at, values] = [this.times(range), this.column(range, name) ?? []];
    const from = (this.times("recent").at(-1) ?? 0) - seconds;
    const step = range === "hour" ? 10 : 1;
    return values.reduce((sum, value, index) => sum + (at[index] > from ? (value ?? 0) * step : 0), 0);
  }

  #begin({ series, recent, hour, now, version, uptimeSeconds }) {
    this.#offset = Date.now() / 1_000 - now;
    this.series = new Map(series.map(({ name, unit }, place) => [name, { place, unit }]));
    for (const [range, { at, values }] of Object.entries({ recent, hour })) {
      this.#ranges[range] = { at: at.map((time) => time + this.#offset), values };
    }
    this.emit("begun", { version, uptimeSeconds });
    this.#changed();
  }

  #add({ at, values, tenSeconds }) {
    const time = at + this.#offset;
    // One that was remembered when the stream began may come again.
    if (values.length !== this.series.size || time <= (this.times("recent").at(-1) ?? 0)) return;
    this.#append("recent", time, values);
    if (tenSeconds) this.#append("hour", time, tenSeconds);
    this.#changed();
  }

  #append(range, time, row) {
    const { at, values } = this.#ranges[range];
    at.push(time);
    row.forEach((value, place) => values[place].push(value));
    if (at.length <= ROWS[range]) return;
    at.shift();
    values.forEach((column) => column.shift());
  }

  #changed() {
    clearTimeout(this.#late);
    this.#late = setTimeout(() => this.emit("live", false), LATE_MS);
    this.emit("live", true);
    this.emit("figures");
  }
}
