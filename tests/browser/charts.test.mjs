/** The charts of the dashboard: what their axes say of a server that does nothing, where lines end, and how a phone shows them. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { pieces } from "../../web/dashboard/lines.js";
import { launch, newContext, tooWide } from "./browser.mjs";
import { Server } from "./server.mjs";

let browser;
before(async () => { browser = await launch(); });
after(() => browser?.close());

/** A dashboard whose canvases note what is written on them, once it has figures. */
async function open(test, server, options) {
  const context = await newContext(browser, options);
  test.after(() => context.close());
  const page = await context.newPage();
  await page.addInitScript(() => {
    globalThis.written = new Set();
    const fill = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function fillText(text, ...rest) {
      globalThis.written.add(text);
      return fill.call(this, text, ...rest);
    };
  });
  await page.goto(`${server.url}/dashboard`);
  await page.waitForFunction(() => document.getElementById("live").textContent === "live" && document.querySelector("#panels .panel"));
  return page;
}

/** Draws every chart, as each is once it is seen. */
async function seeAll(page) {
  for (const panel of await page.$$("#panels .panel")) {
    await panel.scrollIntoViewIfNeeded();
    await panel.waitForSelector("canvas");
  }
}

test("a line is broken where a figure is missing, and where rows are", () => {
  const [now, none] = [[1, 2, 3, 4, 5, 6], undefined];
  assert.deepEqual(pieces([], [], 1), []);
  assert.deepEqual(pieces(now, [7, 7, 7, 7, 7, 7], 1), [[0, 5]]);
  assert.deepEqual(pieces(now, [null, 7, 0, null, none, 7], 1), [[1, 2], [5, 5]]);
  // A second that came late is none that is missing.
  assert.deepEqual(pieces([1, 2, 4.2, 5, 60, 61], [7, 7, 7, 7, 7, 7], 1), [[0, 3], [4, 5]]);
  assert.deepEqual(pieces([10, 20, 30, 60], [7, 7, 7, 7], 10), [[0, 2], [3, 3]]);
});

test("the axes of an idle server have figures that people write", async (test) => {
  const server = await Server.start(test);
  const page = await open(test, server);
  await seeAll(page);
  const written = [...await page.evaluate(() => [...globalThis.written])];
  for (const text of ["1", "1 ms", "1 KiB", "100 %"]) assert.ok(written.includes(text), `${text}: ${written}`);
  for (const text of written.filter((one) => !one.includes(":"))) assert.match(text, /^(\d{1,4}|\d\.\d{1,3}|\d\d\.\d)( (%|µs|m?s|B|[KMG]iB))?(\/s)?$/);
  // More than one moment is named.
  const times = written.filter((one) => one.includes(":"));
  assert.ok(times.length >= 2, `${times}`);
});

/** Columns of pixels in the colour of the first series, as runs without a gap of more than three: where each begins and ends. */
const runs = (page, panel) => page.evaluate((title) => {
  const canvas = document.querySelector(`[data-panel="${title}"] canvas`);
  const [red, green, blue] = getComputedStyle(document.getElementById("colour-c0")).color.match(/\d+/g).map(Number);
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const columns = new Set();
  for (let i = 0; i < data.length; i += 4) {
    if (data[i + 3] > 100 && Math.abs(data[i] - red) + Math.abs(data[i + 1] - green) + Math.abs(data[i + 2] - blue) < 60) columns.add(i / 4 % canvas.width);
  }
  const found = [];
  for (const column of [...columns].sort((a, b) => a - b)) {
    if (found.length > 0 && column - found.at(-1)[1] <= 3) found.at(-1)[1] = column;
    else found.push([column, column]);
  }
  return found;
}, panel);

test("no line is drawn across a time without data", async (test) => {
  const server = await Server.start(test);
  const page = await open(test, server, { viewport: { width: 1280, height: 1000 } });
  const sizes = () => page.evaluate(() => document.querySelector('[data-panel="Batch size"] dd').textContent);
  for (const last of [false, true]) {
    await server.fill("lobby", 1);
    await page.waitForFunction(() => document.querySelector('[data-panel="Batch size"] dd').textContent === "1");
    await page.waitForFunction(() => document.querySelector('[data-panel="Batch size"] dd').textContent === "–");
    if (!last) await page.waitForTimeout(12_000);
  }
  assert.equal(await sizes(), "–");
  const found = await runs(page, "Batch size");
  assert.equal(found.length, 2, `each message is a point: ${JSON.stringify(found)}`);
});

test("on a phone the head takes two rows, and no value moves another", async (test) => {
  const server = await Server.start(test);
  const page = await open(test, server, { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true });
  const box = (selector) => page.locator(selector).first().boundingBox();
  const [home, live, theme, range] = await Promise.all([".dash-head .home", "#live", "#theme", "#range"].map(box));
  const middle = ({ y, height }) => y + height / 2;
  for (const one of [live, theme]) assert.ok(Math.abs(middle(one) - middle(home)) < 4, "the first row has all but the range");
  assert.ok(range.y >= theme.y + theme.height && range.width > 300, "the range has the second");
  const tops = await page.evaluate(() => [...document.querySelectorAll("#panels .now")].map((list) => new Set([...list.children].map((one) => one.getBoundingClientRect().top)).size));
  assert.deepEqual([...new Set(tops)], [1], "the figures of a chart stand side by side");
  assert.deepEqual(await tooWide(page), []);
});
