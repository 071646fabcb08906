/** What the pages cost whoever opens them for the first time. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, newContext, window } from "./browser.mjs";
import { Server } from "./server.mjs";

/** Everything that a page loads until it can be used, with the headers of the answers. */
const BYTES_MAX = 260_000;
/** How many answers that are. Each costs a round trip, and where nothing is known to be needed yet, one after another. */
const ANSWERS_MAX = 55;
/** What the page of the API shows, and is not part of it. */
const DOCUMENTS = ["/openapi.json", "/asyncapi.json"];

let browser;
before(async () => { browser = await launch(); });
after(() => browser?.close());

/** Counts what the page receives from now on. @returns path and bytes of each answer that has ended */
async function listen(page) {
  const session = await page.context().newCDPSession(page);
  const paths = new Map();
  const ended = [];
  session.on("Network.responseReceived", ({ requestId, response }) => paths.set(requestId, new URL(response.url).pathname));
  session.on("Network.loadingFinished", ({ requestId, encodedDataLength }) => ended.push([paths.get(requestId), encodedDataLength]));
  await session.send("Network.enable");
  return ended;
}

function isWithin(all, files, name) {
  const loaded = all.filter(([path]) => !DOCUMENTS.includes(path));
  const bytes = loaded.reduce((sum, [, length]) => sum + length, 0);
  const most = loaded.toSorted(([, a], [, b]) => b - a).slice(0, 5).map(([path, length]) => `${path} ${length}`);
  for (const file of files) assert.ok(loaded.some(([path, length]) => path?.endsWith(file) && length > 0), `${name}: ${file} is counted`);
  assert.ok(bytes <= BYTES_MAX, `${name}: ${bytes} bytes in ${loaded.length} answers; most in ${most.join(", ")}`);
  assert.ok(loaded.length <= ANSWERS_MAX, `${name}: ${loaded.length} answers: ${loaded.map(([path]) => path).join(" ")}`);
}

test("the chat page takes at most 260 kB", async (test) => {
  const server = await Server.start(test);
  await server.fill("lobby", 40);
  let loaded;
  const page = await window(browser, server, "ada", { opened: async (opened) => { loaded = await listen(opened); } });
  test.after(() => page.context().close());
  await page.waitForSelector("#messages .text");
  isWithin(loaded, ["/", "/style.css", "/hubbub.js", "/app/main.js", "/messages"], "the chat page");
});

for (const [name, path, ready, files] of [
  ["the dashboard", "/dashboard", "#health li", ["/dashboard", "/uPlot.iife.min.js", "/dashboard/main.js"]],
  ["the page of the API", "/docs", "#main:not([aria-busy])", ["/docs", "/docs/main.js", "/style.css"]],
]) {
  test(`${name} takes at most 260 kB`, async (test) => {
    const server = await Server.start(test);
    const context = await newContext(browser);
    test.after(() => context.close());
    const page = await context.newPage();
    const loaded = await listen(page);
    await page.goto(`${server.url}${path}`);
    await page.waitForSelector(ready);
    isWithin(loaded, files, name);
  });
}
