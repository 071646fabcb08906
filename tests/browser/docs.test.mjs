/** The page of the API in headless Chromium: it shows all there is, and its commands work. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { FONTS, launch, newContext, tooWide } from "./browser.mjs";
import { Server } from "./server.mjs";

let browser;
before(async () => { browser = await launch(); });
after(() => browser?.close());

/** The page, with everything the browser complained about. */
async function open(test, server, options = {}, hash = "") {
  const context = await newContext(browser, { viewport: { width: 1400, height: 900 }, ...options });
  test.after(() => context.close());
  const page = await context.newPage();
  page.complaints = [];
  page.on("pageerror", (error) => page.complaints.push(error.message));
  // A breach of the Content-Security-Policy is told of here too.
  page.on("console", (entry) => { if (["error", "warning"].includes(entry.type())) page.complaints.push(entry.text()); });
  page.on("request", (request) => { if (!request.url().startsWith(server.url)) page.complaints.push(`asks ${request.url()}`); });
  await page.goto(`${server.url}/docs${hash}`);
  await page.waitForSelector("#main:not([aria-busy])");
  return page;
}

const document = async (server, name) => (await fetch(`${server.url}/${name}.json`)).json();
const visible = (page, selector) => page.locator(`${selector}:visible`).count();

test("the page shows every operation, frame, schema and code", async (test) => {
  const server = await Server.start(test);
  const page = await open(test, server);
  const openapi = await document(server, "openapi");
  const asyncapi = await document(server, "asyncapi");
  const operations = Object.values(openapi.paths).flatMap((methods) => Object.values(methods));
  assert.ok(operations.length > 10);
  const ids = [
    ...operations.map((operation) => operation.operationId),
    ...Object.keys(asyncapi.components.messages).map((name) => `frame-${name}`),
    ...Object.keys(openapi.components.schemas).map((name) => `schema-${name}`),
  ];
  for (const id of ids) {
    assert.ok(await page.locator(`[id="${id}"]`).isVisible(), id);
    assert.equal(await page.locator(`#contents a[href="#${id}"]`).count(), 1, id);
  }
  for (const { code } of openapi.components.schemas.Problem.properties.code["x-codes"]) {
    assert.equal(await page.locator("#errors td code", { hasText: new RegExp(`^${code}$`) }).count(), 1, code);
  }
  // Every link leads somewhere.
  const lost = await page.$$eval('a[href^="#"]', (links) => links.map((link) => link.hash.slice(1)).filter((id) => !globalThis.document.getElementById(id)));
  assert.deepEqual(lost, []);
  assert.deepEqual(page.complaints, []);
});

test("the filter leaves what holds every word", async (test) => {
  const server = await Server.start(test);
  const page = await open(test, server);
  await page.keyboard.press("/");
  await page.keyboard.type("presence room");
  assert.equal(await visible(page, "article#listPresent"), 1);
  assert.equal(await visible(page, "article#sendMessage"), 0);
  assert.equal(await visible(page, '#contents a[href="#sendMessage"]'), 0);
  assert.match(await page.textContent("#count"), /^\d+ of \d+$/);
  await page.fill("#filter", "no such thing anywhere");
  assert.equal(await visible(page, "article"), 0);
  assert.ok(await page.locator("#no-match").isVisible());
  await page.keyboard.press("Escape");
  assert.equal(await visible(page, "article#sendMessage"), 1);
  assert.deepEqual(page.complaints, []);
});

test("an example's command does what is shown beside it", async (test) => {
  const server = await Server.start(test);
  const page = await open(test, server, { permissions: ["clipboard-read", "clipboard-write"] }, "#sendMessage");
  const article = page.locator("article#sendMessage");
  for (const [name, part] of [["first", '"duplicate":false'], ["again", '"duplicate":true'], ["with key", '"seq":2'], ["invalid", '"code":"invalid"']]) {
    await article.locator(".tabs button", { hasText: new RegExp(`^${name}\\d`) }).click();
    await article.locator(".copy").click();
    const command = await page.evaluate(() => navigator.clipboard.readText());
    assert.equal(command, await article.locator("pre").first().textContent());
    const { stdout } = await promisify(execFile)("bash", ["-c", `${command} -sS`]);
    assert.ok(stdout.includes(part), `${command}\n${stdout}`);
  }
  assert.deepEqual(page.complaints, []);
});

test("the page is no wider than the screen, whatever the font", async (test) => {
  const server = await Server.start(test);
  for (const font of FONTS) {
    for (const [name, options] of [
      ["phone", { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, hasTouch: true, colorScheme: "dark" }],
      ["small phone", { viewport: { width: 320, height: 568 } }],
      ["desktop", {}],
    ]) {
      const page = await open(test, server, { ...options, font });
      assert.deepEqual(await tooWide(page), [], `${name}, ${font}`);
      if (process.env.HUBBUB_PICTURES) await page.screenshot({ path: `${process.env.HUBBUB_PICTURES}/docs-${name}.png` });
      assert.deepEqual(page.complaints, []);
      await page.context().close();
    }
  }
});
