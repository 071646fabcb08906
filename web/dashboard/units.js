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

const FORMATS = {
  count,
  perSecond: (value) => `${count(value)}/s`,
  seconds,
  bytes,
  bytesPerSecond: (value) => `${bytes(value)}/s`,
  share: (value) => `${number(value * 100)} %`,
  cores: (value) => `${number(value)} cores`,
};

/** "1.2 ms", "340/s"; a dash where there is nothing. */
export const format = (unit, value) => (value === null || value === undefined ? "–" : FORMATS[unit](value));

/** The same for axes, which are short of room. */
export const brief = (unit, value) => (unit === "perSecond" || unit === "cores" ? count(value) : format(unit, value));
