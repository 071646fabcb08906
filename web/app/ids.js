/**
 * Maps names that people write to ids of the server. Ids are `[A-Za-z0-9_.:@-]{1,64}`; a name may be
 * in any script.
 *
 * Different names have different ids:
 * - A name that is an id stays as it is, unless it has `--` in it or begins with `-`: `ada` → `ada`, `Ada` → `Ada`.
 * - Words that are such ids, with one space between them, are joined by `--`: `Ada Lovelace` → `Ada--Lovelace`. Words
 *   that begin or end with `-` are not, so that the id can be taken apart in one way only.
 * - Every other name is a readable rest, `---`, and 120 bits of the SHA-256 of the name: `Мария Petrova` →
 *   `Petrova---ibwv…`. No id of the first two kinds has `---` in it.
 *
 * Names are equal when they are written alike: Unicode's composed form, without control characters, spaces trimmed and
 * never two in a row.
 */

const ID = /^[A-Za-z0-9_.:@-]{1,64}$/;
const ID_LENGTH_MAX = 64;
const MARK = "---";
const DIGEST_LENGTH = 24;
const ENCODED = /^[A-Za-z0-9_.:@-]*---[a-z2-7]{24}$/;
const BASE32 = "abcdefghijklmnopqrstuvwxyz234567";
/** Control characters, including those that change the text direction. Joiners are allowed: some scripts need them. */
const CONTROLS = /(?![\t-\r])[\p{Cc}\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]/gu;
const VISIBLE = /[\p{L}\p{N}\p{P}\p{S}]/u;

/** Whether the server accepts it as an id. */
export const isId = (text) => ID.test(text);

/** Normalises a name; empty if nothing of it is visible. */
export function nameFrom(text) {
  // Lone surrogates become the replacement character, as they would on the wire.
  const whole = new TextDecoder().decode(new TextEncoder().encode(text));
  const name = whole.normalize("NFC").replace(CONTROLS, "").replace(/\s+/gu, " ").trim();
  return VISIBLE.test(name) ? name : "";
}

/** The id of a name; empty if there is no name. */
export function idOf(text) {
  const name = nameFrom(text);
  if (!name) return "";
  return readableId(name) ?? encodedId(name);
}

/** The id of an existing person or room, from a name or an id that somebody wrote. */
export function idMeant(text) {
  const trimmed = text.trim();
  return isId(trimmed) && (isEncoded(trimmed) || nameOfId(trimmed) !== trimmed) ? trimmed : idOf(text);
}

/** Whether the id does not tell the name. */
export const isEncoded = (id) => ENCODED.test(id);

/** The name behind a readable id: `Ada--Lovelace` → `Ada Lovelace`. Other ids stay as they are. */
export function nameOfId(id) {
  if (!id.includes("--")) return id;
  const name = id.replaceAll("--", " ");
  return readableId(name) === id ? name : id;
}

/** Whether the id tells no more than the name. */
export const saysNoMore = (id, name) => id === name || id === idOf(name);

function readableId(name) {
  const words = name.split(" ");
  const isPlain = (word) => isId(word) && !word.includes("--") && !word.startsWith("-");
  if (!words.every(isPlain) || (words.length > 1 && words.some((word) => word.endsWith("-")))) return null;
  const id = words.join("--");
  return id.length <= ID_LENGTH_MAX ? id : null;
}

function encodedId(name) {
  const most = ID_LENGTH_MAX - MARK.length - DIGEST_LENGTH;
  const plain = name.normalize("NFKD").replace(/\p{M}/gu, "").replace(/[^A-Za-z0-9]+/g, "-").replace(/^-+/, "").slice(0, most);
  return `${plain.replace(/-+$/, "") || "n"}${MARK}${base32(sha256(new TextEncoder().encode(name))).slice(0, DIGEST_LENGTH)}`;
}

function base32(bytes) {
  let text = "";
  let value = 0;
  let bits = 0;
  for (const byte of bytes) {
    value = (value << 8) | byte;
    bits += 8;
    while (bits >= 5) {
      bits -= 5;
      text += BASE32[(value >>> bits) & 31];
    }
    value &= (1 << bits) - 1;
  }
  return text;
}

/** The first 32 bits of the fractional parts of the `power`-th roots of the first `count` primes. */
function rootsOfPrimes(count, power) {
  const roots = [];
  for (let candidate = 2; roots.length < count; candidate++) {
    let divisor = 2;
    while (divisor * divisor <= candidate && candidate % divisor !== 0) divisor++;
    if (divisor * divisor <= candidate) continue;
    const root = candidate ** (1 / power);
    roots.push(Math.floor((root - Math.floor(root)) * 2 ** 32) >>> 0);
  }
  return roots;
}

const START = rootsOfPrimes(8, 2);
const ROUNDS = rootsOfPrimes(64, 3);

/** SHA-256 (FIPS 180-4). The browser's is asynchronous, and missing in pages over plain HTTP. */
export function sha256(bytes) {
  const length = Math.ceil((bytes.length + 9) / 64) * 64;
  const padded = new Uint8Array(length);
  padded.set(bytes);
  padded[bytes.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setUint32(length - 8, Math.floor(bytes.length / 2 ** 29));
  view.setUint32(length - 4, (bytes.length << 3) >>> 0);
  const state = Uint32Array.from(START);
  for (let offset = 0; offset < length; offset += 64) compress(state, view, offset);
  const digest = new DataView(new ArrayBuffer(32));
  state.forEach((word, index) => digest.setUint32(index * 4, word));
  return new Uint8Array(digest.buffer);
}

const rotate = (word, count) => (word >>> count) | (word << (32 - count));

function compress(state, view, offset) {
  const words = new Uint32Array(64);
  for (let index = 0; index < 64; index++) {
    if (index < 16) {
      words[index] = view.getUint32(offset + index * 4);
      continue;
    }
    const [early, late] = [words[index - 15], words[index - 2]];
    const first = rotate(early, 7) ^ rotate(early, 18) ^ (early >>> 3);
    const second = rotate(late, 17) ^ rotate(late, 19) ^ (late >>> 10);
    words[index] = words[index - 16] + first + words[index - 7] + second;
  }
  let [a, b, c, d, e, f, g, h] = state;
  for (let index = 0; index < 64; index++) {
    const mixed = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
    const one = (h + mixed + ((e & f) ^ (~e & g)) + ROUNDS[index] + words[index]) | 0;
    const other = ((rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + one) | 0, c, b, a, (one + other) | 0];
  }
  [a, b, c, d, e, f, g, h].forEach((word, index) => { state[index] += word; });
}
