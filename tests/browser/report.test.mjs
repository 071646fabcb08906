/** Pages that the load tool writes, light and dark, wide and narrow, and on paper. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { access, mkdtemp, rm, writeFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { findings, launch, newContext, tooWide } from "./browser.mjs";
import { Server } from "./server.mjs";

const BINARY = process.env.HUBBUB_BIN ?? fileURLToPath(new URL("../../target/release/hubbub", import.meta.url));

/** Points with names that are longer than a bar is wide. */
const SCENARIO = `title = "Connections of rooms, with one and with many messages under way"
workload = "chat"
repetitions = 2
[options]
messages = 400
warmup-connections = 1
warmup-messages = 10
rooms = 3
[sweep]
connections = [1, 4]
in-flight = [1, 16]
`;

/** Where a page is, by what it is. */
const PAGES = {
  scenario: "a/report.html",
  measurement: "a/01-1/report.html",
  comparison: "compared/compare.html",
  questions: "asked/report.html",
};
const SIZES = { desktop: { viewport: { width: 1280, height: 800 } }, phone: { viewport: { width: 390, height: 844 } } };

let browser, dir, server;

/** Runs the load tool in the directory. What it says of the figures is not asked here. */
function bench(...options) {
  const ran = (error, _, said) => (error?.killed || typeof error?.code === "string" ? new Error(`bench ${options.join(" ")}: ${error} ${said}`) : null);
  return new Promise((resolve, reject) => {
    execFile(BINARY, ["bench", ...options], { cwd: dir, env: { PATH: process.env.PATH } }, (...ended) => {
      const failed = ran(...ended);
      if (failed) reject(failed);
      else resolve(ended[2]);
    });
  });
}

before(async () => {
  browser = await launch();
  dir = await mkdtemp(join(tmpdir(), "hubbub-report-"));
  await writeFile(join(dir, "rooms.toml"), SCENARIO);
  let said = await bench("run", "rooms.toml", "--quiet", "--out", "a");
  said += await bench("run", "rooms.toml", "--quiet", "--out", "b");
  said += await bench("compare", "a", "b", "--out", "compared");
  server = await Server.start();
  await server.fill("lobby", 300);
  said += await bench("query", "--quiet", "--server", server.url, "--rate", "45", "--duration", "1s", "--out", "asked");
  for (const page of Object.values(PAGES)) await assert.doesNotReject(access(join(dir, page)), said);
}, { timeout: 600_000 });

after(async () => {
  await browser?.close();
  await server?.remove();
  if (dir) await rm(dir, { recursive: true, force: true });
});

async function open(test, page, options) {
  const context = await newContext(browser, options);
  test.after(() => context.close());
  const opened = await context.newPage();
  opened.complaints = [];
  opened.on("pageerror", (error) => opened.complaints.push(error.message));
  opened.on("console", (entry) => { if (entry.type() === "error") opened.complaints.push(entry.text()); });
  // All is in the file.
  opened.on("request", (request) => { if (!request.url().startsWith("file:")) opened.complaints.push(request.url()); });
  await opened.goto(pathToFileURL(join(dir, page)).href);
  return opened;
}

/** Charts without a size, and labels that lie on each other. */
const faultsOfCharts = (page) => page.evaluate(() => {
  const faults = [];
  const shown = (element) => `${element.textContent} in ${element.closest(".chart")?.querySelector("h2")?.textContent}`;
  for (const chart of document.querySelectorAll(".chart")) {
    const { width, height } = (chart.querySelector("svg") ?? chart.querySelector(".point") ?? chart).getBoundingClientRect();
    if (width < 200 || height < 20) faults.push(`${shown(chart.querySelector("h2"))} is ${width} by ${height}`);
    const fills = [...chart.querySelectorAll(".fill")].map((fill) => fill.getBoundingClientRect().width);
    if (fills.length > 0 && Math.max(...fills) < 100) faults.push(`${shown(chart.querySelector("h2"))} has no bar`);
    const labels = [...chart.querySelectorAll("h2, text, .name, .value")].filter((label) => label.textContent.trim());
    const boxes = labels.map((label) => label.getBoundingClientRect());
    boxes.forEach((one, index) => {
      if (one.width === 0 || one.height === 0) faults.push(`${shown(labels[index])} is not shown`);
      for (let other = index + 1; other < boxes.length; other++) {
        const two = boxes[other];
        const across = Math.min(one.right, two.right) - Math.max(one.left, two.left);
        const down = Math.min(one.bottom, two.bottom) - Math.max(one.top, two.top);
        if (across > 0.5 && down > 0.5) faults.push(`${shown(labels[index])} lies on ${shown(labels[other])}`);
      }
    });
  }
  return faults;
});

/** What reaches beyond its own box, which scrolls on a screen. */
const cutOff = (page) => page.evaluate(() => {
  const boxes = [...document.querySelectorAll(".scroll, pre")];
  return boxes.filter((box) => box.scrollWidth > box.clientWidth + 1).map((box) => `${box.scrollWidth} of ${box.clientWidth}: ${box.textContent.slice(0, 80)}`);
});

const background = (page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor);

for (const [name, path] of Object.entries(PAGES)) {
  for (const [size, options] of Object.entries(SIZES)) {
    for (const colorScheme of ["light", "dark"]) {
      test(`the page of a ${name} is readable, ${size}, ${colorScheme}`, async (test) => {
        const page = await open(test, path, { ...options, colorScheme });
        if (process.env.HUBBUB_PICTURES) await page.screenshot({ path: `${process.env.HUBBUB_PICTURES}/${name}-${size}-${colorScheme}.png`, fullPage: true });
        assert.deepEqual(await tooWide(page), []);
        assert.ok(await page.locator(".chart").count() > 0, "there are charts");
        assert.deepEqual(await faultsOfCharts(page), []);
        assert.deepEqual(await findings(page), []);
        const dark = colorScheme === "dark";
        assert.equal(await background(page), dark ? "rgb(18, 22, 28)" : "rgb(255, 255, 255)");
        assert.deepEqual(page.complaints, []);
      });
    }
  }

  test(`the page of a ${name} is printed light and whole`, async (test) => {
    // What is left of A4 between its margins, in CSS pixels.
    const page = await open(test, path, { viewport: { width: 680, height: 1009 }, colorScheme: "dark" });
    await page.emulateMedia({ media: "print", colorScheme: "dark" });
    assert.equal(await background(page), "rgb(255, 255, 255)");
    assert.deepEqual(await tooWide(page), []);
    assert.deepEqual(await cutOff(page), [], "nobody scrolls on paper");
    assert.deepEqual(await faultsOfCharts(page), []);
    const pdf = await page.pdf({ format: "A4" });
    assert.equal(pdf.subarray(0, 5).toString(), "%PDF-");
    if (process.env.HUBBUB_PICTURES) await writeFile(`${process.env.HUBBUB_PICTURES}/${name}.pdf`, pdf);
  });
}

test("a chart that is wider than a phone scrolls by keyboard", async (test) => {
  const page = await open(test, PAGES.measurement, SIZES.phone);
  const chart = page.locator(".scroll", { has: page.locator("svg") }).first();
  await chart.focus();
  await page.keyboard.press("ArrowRight");
  await page.waitForFunction((box) => box.scrollLeft > 0, await chart.elementHandle());
});
