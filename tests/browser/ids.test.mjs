/** Names and ids: different names never have one id, and every id is one the server takes. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { idMeant, idOf, isEncoded, isId, nameFrom, nameOfId, saysNoMore, sha256 } from "../../web/app/ids.js";

test("readable names stay readable", () => {
  for (const [name, id] of [
    ["ada", "ada"], ["Ada", "Ada"], ["  Bob  ", "Bob"], ["Ada Lovelace", "Ada--Lovelace"], ["Ada   Lovelace", "Ada--Lovelace"],
    ["j.doe@example.org", "j.doe@example.org"], ["tea-time", "tea-time"], ["7", "7"], ["a-", "a-"],
  ]) {
    assert.equal(idOf(name), id, name);
    assert.ok(saysNoMore(id, nameFrom(name)));
  }
});

test("names that look alike to a program are told apart", () => {
  const names = [
    "Ann B", "ann b", "ANN B", "Ann-B", "ann-b", "Ann--B", "Ann---B", "Ann -B", "Ann- B", "-Ann B", "AnnB", "Ann_B", "Ann.B", "Änn B", "Ann  -  B",
    "Мария Petrova", "Иван Petrova", "Petrova", "petrova", "Мария", "山田太郎", "نور", "🦊", "🦊🦊", "e", "é", "ё", "е", "ﬁ", "fi",
    "n", "n---", idOf("Мария"), `${idOf("Мария")} `.repeat(2), "a".repeat(64), "a".repeat(65), "a".repeat(66), `${"a".repeat(40)} ${"b".repeat(40)}`,
  ];
  const ids = names.map(idOf);
  for (const [index, id] of ids.entries()) assert.ok(isId(id), `${names[index]} → ${id}`);
  assert.equal(new Set(ids).size, names.length, ids.join("\n"));
});

test("one name is one id, however it is written", () => {
  assert.equal(idOf("Zoe\u0308"), idOf("Zo\u00eb"), "composed and not");
  assert.equal(idOf("Мария\u00a0 Petrova\n"), idOf("Мария Petrova"), "spaces of all kinds");
  assert.equal(idOf("\u202eМария\u200f"), idOf("Мария"), "signs that turn the direction");
  assert.equal(nameFrom("\u202eМария\u200f"), "Мария");
  assert.notEqual(idOf("می‌خواهم"), idOf("میخواهم"), "a joiner is part of a word");
  for (const nothing of ["", "   ", "\u200b\u200d\u202e", "\u0301", "\u0000"]) assert.equal(idOf(nothing), "", JSON.stringify(nothing));
});

test("an encoded id is meant as it is, and as a name it is another", () => {
  const id = idOf("Мария");
  assert.match(id, /^n---[a-z2-7]{24}$/);
  assert.equal(idMeant(` ${id} `), id);
  assert.notEqual(idOf(id), id);
  assert.equal(idMeant("Мария"), id);
  assert.equal(idMeant("Ada Lovelace"), "Ada--Lovelace");
});

test("a readable id tells its name, and is meant as it is", () => {
  for (const name of ["ada", "Ada Lovelace", "Tea time at 5"]) assert.equal(nameOfId(idOf(name)), name);
  for (const id of ["a---b", "--a", "a--", idOf("Мария")]) assert.equal(nameOfId(id), id);
  assert.equal(idMeant("Ada--Lovelace"), "Ada--Lovelace");
  assert.deepEqual(["ada", "Ada--Lovelace", idOf("Мария")].map(isEncoded), [false, false, true]);
});

test("the digest is SHA-256", () => {
  for (const length of [0, 1, 3, 54, 55, 56, 57, 63, 64, 65, 119, 120, 1000]) {
    const bytes = Uint8Array.from({ length }, (_, index) => (index * 31 + length) % 256);
    assert.deepEqual(Buffer.from(sha256(bytes)), createHash("sha256").update(bytes).digest(), `${length} bytes`);
  }
});

/** Numbers that follow from a seed (mulberry32). */
function random(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

test("many random names: ids are valid, and equal only where the names are", () => {
  const seed = Number(process.env.SEED ?? 20260131);
  const next = random(seed);
  const pick = (from) => from[Math.floor(next() * from.length)];
  // Few characters, those that ids are taken apart by above all: names that differ in little are what collides.
  const alphabets = [[..."aA- "], [..."ab-_.: "], [..."aé\u0301 -"], [..."Марияия "], [..."山田太郎 a"], [..."نور ل\u200fa"], [..."🦊👩\u200d-b "], [..."n-abc234567"]];
  const names = new Map();
  for (let round = 0; round < 40_000; round++) {
    const alphabet = pick(alphabets);
    const text = Array.from({ length: 1 + Math.floor(next() * (round % 10 === 0 ? 70 : 9)) }, () => pick(alphabet)).join("");
    const [name, id] = [nameFrom(text), idOf(text)];
    assert.equal(id === "", name === "", JSON.stringify(text));
    if (!id) continue;
    assert.ok(isId(id), `${JSON.stringify(text)} → ${id}`);
    assert.equal(idOf(name), id, "a name shown and written again is the same");
    assert.equal(names.get(id) ?? name, name, `seed ${seed}: ${id}`);
    names.set(id, name);
  }
  assert.ok(names.size > 10_000, `${names.size} different names`);
});
