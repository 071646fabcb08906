/** Figures as people write them, by their unit. */

const PLAIN = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 3 });
const WHOLE = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });

const number = (value) => (Math.abs(value) >= 100 ? WHOLE : PLAIN).format(value);

function scaled(value, steps) {
  const [size, name] = steps.find(([least]) => Math.abs(value) >= least) ?? steps.at(-1);
  return `${number(value / size)} ${name}`;
}

const seconds = (value) => (value === 0 ? "0" : scaled(value, [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]));
const bytes = (value) => (value === 0 ? "0" : scaled(value, [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]]));
const count = (value) => (Math.abs(value) >= 1e6 ? scaled(value, [[1e9, "G"], [1e6, "M"]]) : number(value));

const powers = (base, count, ...steps) => Array.from({ length: count }, (_, power) => steps.map((step) => step * base ** power)).flat();

/** What the axis of an idle server ends with at least. */
export const LEAST_SCALE = { count: 1, perSecond: 1, seconds: 1e-3, bytes: 2 ** 10, bytesPerSecond: 2 ** 10, share: 1, cores: .1 };

/** From mark to mark of an axis: whole things, and bytes as they are written. Other units have any step. */
export const STEPS = { count: powers(10, 16, 1, 2, 5), bytes: powers(2, 53, 1), bytesPerSecond: powers(2, 53, 1) };

const FORMATS = {
  count,
  perSecond: (value) => `${count(value)}/s`,
  seconds,
  bytes,
  bytesPerSecond: (value) => `${bytes(value)}/s`,
  share: (value) => `${number(value * 100)} %`,
  cores: (value) => `${number(Math.round(value * 1_000) / 1_000)} cores`,
};

/** "1.2 ms", "340/s"; a dash where there is nothing. */
export const format = (unit, value) => (value === null || value === undefined ? "–" : FORMATS[unit](value));

/** The same for axes, which are short of room. */
export const brief = (unit, value) => (unit === "perSecond" || unit === "cores" ? count(value) : format(unit, value));
