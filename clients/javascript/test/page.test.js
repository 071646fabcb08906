/** What bundlers take for pages. */

import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import { test } from "node:test";

test("in pages nothing of Node is needed", async () => {
  const folder = new URL("..", import.meta.url);
  const files = (await readdir(folder)).filter((name) => name.endsWith(".js"));
  assert.ok(files.includes("index.js") && files.includes("websocket-browser.js"));
  for (const name of files.filter((name) => name !== "websocket.js")) {
    const text = await readFile(new URL(name, folder), "utf8");
    assert.doesNotMatch(text, /from "node:|"\.\/websocket\.js"|\bBuffer\b|\bprocess\./, name);
  }
});
