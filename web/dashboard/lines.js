/** Where the line of a series is broken: nothing is drawn across a time of which there is no figure. */

/** Rows further apart than so many of their usual distances have others missing between them. */
const MISSING = 2.5;

/** @returns the first and the last row of each piece of the line, in order; a row alone is both */
export function pieces(times, values, seconds) {
  const found = [];
  values.forEach((value, row) => {
    if (value === null || value === undefined) return;
    const last = found.at(-1);
    if (last?.[1] === row - 1 && times[row] - times[row - 1] <= MISSING * seconds) last[1] = row;
    else found.push([row, row]);
  });
  return found;
}
