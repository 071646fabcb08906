/** The Keys view in headless Chromium: list, page, make, change, delete, and what others do meanwhile. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, window } from "./browser.mjs";
import { Server } from "./server.mjs";

let browser;
before(async () => { browser = await launch(); });
after(() => browser?.close());

async function change(server, method, key, body, headers = {}) {
  const response = await fetch(`${server.url}/kv/${key}`, { method, body, headers });
  assert.ok(response.ok, `${method} ${key}: ${response.status}`);
}

async function enter(test, server, hash) {
  const page = await window(browser, server, "ada");
  test.after(() => page.context().close());
  page.on("dialog", (dialog) => dialog.accept());
  await page.evaluate((to) => { location.hash = to; }, hash);
  return page;
}

const shows = (page, wanted) => page.waitForFunction(
  (all) => JSON.stringify([...document.querySelectorAll("tr[data-key]")].map((row) => row.dataset.key)) === JSON.stringify(all), wanted);
const says = (page, text) => page.waitForFunction(
  (wanted) => document.querySelector(".board-status").textContent === wanted, text);

test("a key is made, changed and deleted", async (test) => {
  const server = await Server.start(test);
  const page = await enter(test, server, "#/lobby");
  await page.click('a[href="#kv"]');
  // An empty list is no error.
  await page.waitForFunction(() => document.querySelector("#kv .empty")?.textContent === "There is no key yet.");
  await says(page, "");
  await page.fill("#kv-new", "user 1/näme");
  await page.press("#kv-new", "Enter");
  await page.waitForFunction(() => location.hash === "#kv/user%201/n%C3%A4me");
  await page.waitForFunction(() => document.querySelector("#kv .room-title p")?.textContent === "Not there yet");
  // Whatever a value looks like, it is text.
  const nasty = "<img src=x onerror=\"document.title='owned'\"> & more";
  await page.fill("#kv-value", nasty);
  await page.fill("#kv-ttl", "3600");
  await page.click("#kv-edit .primary");
  await says(page, "Saved.");
  assert.match(await page.textContent("#kv .room-title p"), /^51 bytes, revision 1, expires /);
  const stored = await fetch(`${server.url}/kv/user%201/n%C3%A4me`);
  assert.equal(await stored.text(), nasty);
  assert.equal(stored.headers.get("hubbub-ttl") > 3000, true);
  // What others do is seen at once, and nothing of theirs is overwritten.
  await change(server, "PUT", "user%201/n%C3%A4me", "by another");
  await page.waitForFunction(() => document.getElementById("kv-value")?.value === "by another");
  await page.fill("#kv-value", "mine");
  await change(server, "PUT", "user%201/n%C3%A4me", "theirs");
  await page.waitForFunction(() => document.querySelector(".board-status")?.textContent.startsWith("It has changed meanwhile"));
  await page.click("#kv-edit .primary");
  await says(page, "the key has revision 3");
  await page.evaluate(() => { location.hash = "#kv"; });
  await shows(page, ["user%201/n%C3%A4me"]);
  await page.click("tr[data-key] a");
  await page.waitForFunction(() => document.getElementById("kv-value")?.value === "theirs");
  await page.click("button.danger:visible");
  await page.waitForFunction(() => location.hash === "#kv");
  await shows(page, []);
  await page.evaluate(() => { location.hash = "#/lobby"; });
  await page.waitForSelector("#room:not([hidden]) #title");
  assert.ok(await page.locator("#kv").isHidden());
  assert.deepEqual(page.complaints, []);
});

test("the list pages, and follows what changes", async (test) => {
  const server = await Server.start(test);
  const names = Array.from({ length: 130 }, (_, number) => `k/${String(number).padStart(3, "0")}`);
  const put = [...names.map((key) => ({ key, value: "x" })), { key: "other", value: "y" }];
  const filled = await fetch(`${server.url}/v1/kv`, { method: "POST", body: JSON.stringify({ put }) });
  assert.equal(filled.status, 200);
  const page = await enter(test, server, "#kv");
  await shows(page, names.slice(0, 100));
  await page.click("text=More");
  await shows(page, [...names, "other"]);
  await page.fill("#kv-prefix", "k/12");
  await shows(page, names.slice(120));
  await change(server, "PUT", "k/125/new", "x");
  await change(server, "DELETE", "k/120");
  await change(server, "PUT", "k/brief", "x");
  await shows(page, [...names.slice(121, 126), "k/125/new", ...names.slice(126)]);
  await change(server, "PUT", "k/12%FF", new Uint8Array([0, 255, 65]), { "hubbub-ttl": "3600" });
  await page.click('tr[data-key="k/12%FF"] a');
  await page.waitForSelector(".hex:not([hidden])");
  assert.match(await page.textContent(".hex"), /^000000 {2}00 ff 41 +··A$/);
  if (process.env.HUBBUB_SHOTS) await page.screenshot({ path: `${process.env.HUBBUB_SHOTS}/key.png` });
  await page.evaluate(() => { location.hash = "#kv"; });
  await page.waitForSelector('tr[data-key="k/12%FF"]');
  if (process.env.HUBBUB_SHOTS) await page.screenshot({ path: `${process.env.HUBBUB_SHOTS}/keys.png` });
  // After a restart it follows on.
  await server.kill();
  await server.up();
  await change(server, "PUT", "k/12/after", "x");
  await page.waitForSelector('tr[data-key="k/12/after"]');
  assert.deepEqual(page.complaints, []);
});

test("the list keeps its pages where the stream of changes ends, until another one is asked for", async (test) => {
  const server = await Server.start(test);
  const names = Array.from({ length: 130 }, (_, number) => `k/${String(number).padStart(3, "0")}`);
  const put = names.map((key) => ({ key, value: "x" }));
  assert.equal((await fetch(`${server.url}/v1/kv`, { method: "POST", body: JSON.stringify({ put }) })).status, 200);
  const page = await enter(test, server, "#kv");
  await shows(page, names.slice(0, 100));
  await page.click("text=More");
  await shows(page, names);
  await server.kill();
  await server.up();
  await change(server, "PUT", "a", "x");
  await shows(page, ["a", ...names]);
  await page.fill("#kv-prefix", "k");
  await shows(page, names.slice(0, 100));
  assert.deepEqual(page.complaints, []);
});
