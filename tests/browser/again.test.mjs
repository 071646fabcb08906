/** What the chat page does when something fails for a while, or has changed while it was open. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { connectNow, enter as enterWith, launch, newContext, say, waitForText } from "./browser.mjs";
import { Server } from "./server.mjs";

let browser;
before(async () => { browser = await launch(); });
after(() => browser?.close());

const enter = (...who) => enterWith(browser, ...who);

const unavailable = (route) => route.fulfill({ status: 503, contentType: "text/html", body: "<html>not now" });
const textIs = (page, selector, text) => page.waitForFunction(
  ([where, wanted]) => document.querySelector(where)?.textContent === wanted, [selector, text]);

test("older messages that cannot be had are not asked for at each frame, and come later", async (test) => {
  const server = await Server.start(test);
  await server.fill("lobby", 400);
  const page = await enter(test, server, "dora");
  await waitForText(page, "message 400");
  let asked = 0;
  await page.route(/messages\?before=/, (route) => {
    asked += 1;
    return unavailable(route);
  });
  await page.hover("#scroller");
  while (asked === 0) {
    await page.mouse.wheel(0, -1_200);
    await page.waitForTimeout(16);
  }
  await page.waitForFunction(() => document.getElementById("top").textContent.startsWith("The messages cannot be loaded: Something"));
  await page.waitForTimeout(900);
  assert.ok(asked <= 2, `asked ${asked} times`);
  await page.unroute(/messages\?before=/);
  await page.waitForFunction(() => document.querySelector("#messages .row")?.dataset.seq < 300);
});

test("a server that cannot say who calls is asked again, and nobody for a name", async (test) => {
  const server = await Server.start(test);
  const context = await newContext(browser);
  test.after(() => context.close());
  const page = await context.newPage();
  await page.route("**/v1/auth/me", unavailable);
  await page.goto(`${server.url}/#/lobby`);
  await page.waitForSelector("#unreachable:not([hidden])");
  assert.ok(await page.isHidden("#welcome"));
  await page.unroute("**/v1/auth/me");
  await page.waitForSelector("#welcome:not([hidden])");
  assert.ok(await page.isHidden("#unreachable"));
});

test("a message that was not sent is there when the page is loaded again, until it is discarded", async (test) => {
  const server = await Server.start(test);
  const page = await enter(test, server, "ada");
  await server.kill();
  await server.up({ HUBBUB_LIMITS_MESSAGE_BYTES: "30" });
  await connectNow(page);
  await say(page, "a text that this server finds too long to keep");
  for (let round = 0; round < 2; round++) {
    await page.waitForSelector("#pending .failure");
    await page.reload();
  }
  await page.getByText("Discard").click();
  await page.reload();
  await page.waitForSelector('body[data-connection="open"]');
  await say(page, "short enough");
  await waitForText(page, "short enough");
  assert.equal(await page.locator("#pending > *").count(), 0);
});

test("whoever leaves the page is asked if messages would be lost", async (test) => {
  const server = await Server.start(test);
  const page = await enter(test, server, "ada");
  await say(page, "before");
  await waitForText(page, "before");
  await page.evaluate(() => { Storage.prototype.setItem = () => { throw new Error("full"); }; });
  await server.kill();
  await say(page, "not sent yet");
  await page.waitForSelector("#pending .row");
  const asked = new Promise((resolve) => page.once("dialog", resolve));
  await page.close({ runBeforeUnload: true });
  const dialog = await asked;
  assert.equal(dialog.type(), "beforeunload");
  await dialog.accept();
});

test("a text is said to be too long only as long as it is", async (test) => {
  const server = await Server.start(test);
  const page = await enter(test, server, "ada");
  await page.fill("#text", "x".repeat(70_000));
  await textIs(page, "#too-long", "This text is too long to be sent as one message.");
  await page.fill("#text", "x");
  await textIs(page, "#too-long", "");
  assert.doesNotMatch(await page.textContent("#typing"), /too long/);
});

test("at midnight today becomes yesterday", async (test) => {
  const server = await Server.start(test);
  const page = await enter(test, server, "ada", { opened: (page) => page.clock.install() });
  await say(page, "hello");
  await waitForText(page, "hello");
  await textIs(page, "#messages .day span", "Today");
  await page.clock.fastForward("24:00:00");
  await textIs(page, "#messages .day span", "Yesterday");
});

test("all rooms are found, however many there are", async (test) => {
  const server = await Server.start(test);
  const lines = Array.from({ length: 1_150 }, (_, n) => JSON.stringify({ roomId: `room-${String(n).padStart(4, "0")}`, userId: "bob", message: "hello" }));
  for (const part of [lines.slice(0, 600), lines.slice(600)]) {
    assert.ok((await fetch(`${server.url}/v1/messages`, { method: "POST", body: part.join("\n") })).ok);
  }
  const page = await enter(test, server, "ada");
  await page.click("#new-room");
  // With the lobby.
  await textIs(page, ".room-list .empty", "951 more: write a part of the name.");
  await page.fill("#rooms-dialog .search input", "room-1149");
  await textIs(page, ".room-list b", "room-1149");
});

test("the view of a key follows it, also where that could not be done for a while", async (test) => {
  const server = await Server.start(test);
  const page = await enter(test, server, "ada");
  let refused = 0;
  await page.route(/\/v1\/kv\/watch/, (route) => (refused++ === 0 ? unavailable(route) : route.continue()));
  await page.evaluate(() => { location.hash = "#kv/k"; });
  await textIs(page, "#kv .room-title p", "Not there yet");
  const put = (value) => fetch(`${server.url}/kv/k`, { method: "PUT", body: value });
  const shows = (value) => page.waitForFunction((wanted) => document.getElementById("kv-value")?.value === wanted, value);
  await put("first");
  await shows("first");
  // What is being written is not overwritten.
  await page.fill("#kv-value", "mine");
  await put("second");
  await textIs(page, ".board-status", "It has changed meanwhile. Open it again before you save.");
  await page.click("#kv-edit .primary");
  await textIs(page, ".board-status", "the key has revision 2");
  assert.equal(await page.inputValue("#kv-value"), "mine");
});

test("a server with short pages shows its rooms", async (test) => {
  const server = await Server.start(test, { HUBBUB_LIMITS_PAGE_MESSAGES: "20" });
  await server.fill("lobby", 50);
  const page = await enter(test, server, "dora");
  await waitForText(page, "message 50");
  await page.hover("#scroller");
  while (!(await page.textContent("#top")).startsWith("This is where")) {
    await page.mouse.wheel(0, -1_200);
    await page.waitForTimeout(50);
  }
  await waitForText(page, "message 1");
  assert.deepEqual(page.complaints, []);
});

test("a page that wakes finds out soon that its connection is dead", async (test) => {
  const server = await Server.start(test);
  const page = await enter(test, server, "dora", { opened: (page) => page.addInitScript(() => {
    const { WebSocket } = globalThis;
    globalThis.opened = 0;
    globalThis.WebSocket = class extends WebSocket {
      number = ++globalThis.opened;
      send(frame) { if (this.number > (globalThis.dead ?? 0)) super.send(frame); }
    };
  }) });
  await page.waitForSelector('body[data-connection="open"]');
  await page.evaluate(() => { globalThis.dead = globalThis.opened; });
  const begin = Date.now();
  await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
  await page.waitForFunction(() => globalThis.opened > globalThis.dead);
  assert.ok(Date.now() - begin < 22_000, `${Date.now() - begin} ms`);
  await page.waitForSelector('body[data-connection="open"]');
  await say(page, "awake");
  await waitForText(page, "awake");
  assert.deepEqual(page.complaints, []);
});
