/** The dashboard: the figures of a server under load, who may see them, and what they are good for. */

import assert from "node:assert/strict";
import axe from "axe-core";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import WebSocket from "ws";
import { launch, newContext, tooWide } from "./browser.mjs";
import { Server } from "./server.mjs";

const BINARY = process.env.HUBBUB_BIN ?? fileURLToPath(new URL("../../target/release/hubbub", import.meta.url));
const SECRET = "a secret of the tests, which is long enough";
const SETTINGS = { HUBBUB_AUTH_SECRET: SECRET };

const mint = (user, ...options) =>
  execFileSync(BINARY, ["token", "mint", "--user", user, ...options], { env: { PATH: process.env.PATH, HUBBUB_AUTH_SECRET: SECRET } })
    .toString().trim();

let browser;
before(async () => { browser = await launch(); });
after(() => browser?.close());

/** A page with what it complained about. */
async function open(test, server, options = {}) {
  const context = await newContext(browser, options);
  test.after(() => context.close());
  const page = await context.newPage();
  page.complaints = [];
  page.on("pageerror", (error) => page.complaints.push(error.message));
  page.on("console", (entry) => {
    if (entry.type() === "error" && !/net::ERR|Failed to load resource/.test(entry.text())) page.complaints.push(entry.text());
  });
  page.on("response", (response) => {
    if (response.status() === 501) page.complaints.push(`${response.url()} is not there`);
  });
  await page.goto(`${server.url}/dashboard`);
  return page;
}

const isLive = (page) => page.waitForFunction(() => document.getElementById("live").textContent === "live" && document.querySelectorAll("#health li").length > 0);

/** The load generator until the test ends. @returns a function that ends it */
function load(test, server, ...options) {
  const bench = spawn(BINARY, ["bench", "chat", "--target", server.url, "--quiet", "-d", "300s", "-n", "100000000", ...options], { stdio: "ignore", env: { PATH: process.env.PATH } });
  const end = async () => {
    if (bench.exitCode !== null || bench.signalCode !== null) return;
    const gone = once(bench, "exit");
    bench.kill("SIGKILL");
    await gone;
  };
  test.after(end);
  return end;
}

/** Follows a room as somebody, until the test ends. */
async function follow(test, server, user, room) {
  const socket = new WebSocket(`${server.url.replace("http", "ws")}/v1/ws?user=${user}`);
  test.after(() => socket.terminate());
  socket.on("error", () => { /* the server ends before it */ });
  await once(socket, "open");
  socket.send(JSON.stringify({ type: "subscribe", roomId: room }));
  await once(socket, "message");
  return socket;
}

/** A figure of a panel, without its unit; NaN as long as there is none. */
const shown = (page, panel, label) => page.evaluate(([title, wanted]) => {
  const rows = [...document.querySelectorAll(`[data-panel="${title}"] .series`)];
  const row = rows.find((one) => one.querySelector("dt").textContent === wanted);
  return Number.parseFloat((row?.querySelector("dd").textContent ?? "").replaceAll(",", ""));
}, [panel, label]);

async function until(page, what, condition) {
  const end = Date.now() + 120_000;
  while (!await condition()) {
    assert.ok(Date.now() < end, `in vain: ${what}`);
    await page.waitForTimeout(100);
  }
}

/** Whether a canvas has more than its axes and its grid on it: pixels in the colour of the first series. */
const isDrawn = (page, panel) => page.evaluate((title) => {
  const canvas = document.querySelector(`[data-panel="${title}"] canvas`);
  if (!canvas?.width) return false;
  const [red, green, blue] = getComputedStyle(document.getElementById("colour-c0")).color.match(/\d+/g).map(Number);
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let count = 0;
  for (let i = 0; i < data.length; i += 4) {
    if (data[i + 3] > 200 && Math.abs(data[i] - red) + Math.abs(data[i + 1] - green) + Math.abs(data[i + 2] - blue) < 40) count++;
  }
  return count > 20;
}, panel);

test("dashboard_shows_load", async (test) => {
  const server = await Server.start(test);
  const page = await open(test, server);
  await isLive(page);
  await until(page, "nothing comes in yet", async () => await shown(page, "Messages", "in") === 0);
  await follow(test, server, "mira", "bench-1");
  const end = load(test, server, "-c", "16", "--rooms", "3", "--users", "40");
  for (const [panel, label] of [
    ["Messages", "in"], ["Messages", "out"], ["Acknowledged after", "p50"], ["Acknowledged after", "p99"], ["Batch size", "operations"],
    ["Commit time", "p99"], ["Time per stage, p99", "store"], ["CPU", "used"], ["Memory", "used"], ["Store size", "size"],
  ]) await until(page, `${panel}, ${label}`, async () => await shown(page, panel, label) > 0);
  await until(page, "16 sockets and one", async () => await shown(page, "Connections", "WebSocket") >= 17);
  assert.equal(await shown(page, "Subscriptions", "live"), 1);
  await until(page, "a line", () => isDrawn(page, "Messages"));
  await page.waitForSelector("#top-rooms tbody tr:nth-child(3)");
  await page.waitForSelector("#top-users tbody tr:nth-child(10)");
  // What is refused is there with its reason.
  for (let n = 0; n < 3; n++) assert.equal((await fetch(`${server.url}/v1/rooms/1/messages`, { method: "POST", body: "{}" })).status, 422);
  await page.waitForSelector('#refusals tr[data-reason="invalid"]');
  if (process.env.HUBBUB_DASHBOARD_PICTURE) await picture(page, process.env.HUBBUB_DASHBOARD_PICTURE);
  // A page that opens later has seen it all.
  const late = await open(test, server);
  await isLive(late);
  await late.waitForSelector('#refusals tr[data-reason="invalid"]');
  await until(late, "the line of the past", () => isDrawn(late, "Messages"));
  await end();
  for (const one of [page, late]) await until(one, "nothing more comes in", async () => await shown(one, "Messages", "in") === 0);
  assert.deepEqual([page.complaints, late.complaints], [[], []]);
});

/** After a while under load, so that there is something to see. */
async function picture(page, path) {
  await page.waitForTimeout(Number(process.env.HUBBUB_PICTURE_AFTER ?? 75_000));
  await page.screenshot({ path });
}

test("a dashboard goes on after the server was killed", async (test) => {
  const server = await Server.start(test);
  const page = await open(test, server);
  await isLive(page);
  await server.kill();
  await page.waitForFunction(() => document.getElementById("live").textContent === "reconnecting");
  await server.up();
  await isLive(page);
  assert.deepEqual(page.complaints, []);
});

/** Streams that the page opens while `isDead` get an answer of which nothing comes any more. */
const dyingStreams = (page) => page.addInitScript(() => {
  const { fetch } = globalThis;
  globalThis.fetch = async (path, init) => {
    const isStream = init?.headers?.accept === "text/event-stream";
    if (isStream) globalThis.streams = (globalThis.streams ?? 0) + 1;
    const response = await fetch(path, init);
    if (!isStream) return response;
    const filter = new TransformStream({ transform(chunk, controller) { if (!globalThis.isDead) controller.enqueue(chunk); } });
    return new Response(response.body.pipeThrough(filter), { status: response.status });
  };
});

test("a stream that died without a word is opened again", async (test) => {
  const server = await Server.start(test);
  const page = await open(test, server);
  await dyingStreams(page);
  await page.clock.install();
  await page.reload();
  await isLive(page);
  await page.evaluate(() => { globalThis.isDead = true; });
  await page.clock.fastForward(40_000);
  await page.waitForFunction(() => document.getElementById("live").textContent === "reconnecting");
  assert.equal(await page.evaluate(() => globalThis.streams), 1);
  await page.clock.fastForward(10_000);
  await page.evaluate(() => { globalThis.isDead = false; });
  await until(page, "another stream", async () => {
    await page.clock.fastForward(1_000);
    return await page.evaluate(() => globalThis.streams) > 1;
  });
  await isLive(page);
  // Keys are followed the same way.
  await page.goto(`${server.url}/#kv`);
  await page.fill("#name", "ada");
  await page.press("#name", "Enter");
  await page.waitForFunction(() => globalThis.streams === 1);
  await page.evaluate(() => { globalThis.isDead = true; });
  await fetch(`${server.url}/kv/meanwhile`, { method: "PUT", body: "x" });
  await page.clock.fastForward(50_000);
  await page.evaluate(() => { globalThis.isDead = false; });
  await until(page, "the key", async () => {
    await page.clock.fastForward(1_000);
    return await page.locator('tr[data-key="meanwhile"]').count() === 1;
  });
  assert.deepEqual(page.complaints, []);
});

test("a connection is closed from the dashboard", async (test) => {
  const server = await Server.start(test);
  const socket = await follow(test, server, "mira", "lobby");
  const closed = once(socket, "close");
  const page = await open(test, server);
  const row = page.locator("#connections tr", { hasText: "mira" });
  await row.waitFor();
  assert.match(await row.textContent(), /WebSocket.*127\.0\.0\.1.*lobby/);
  page.on("dialog", (dialog) => dialog.accept());
  // By keyboard.
  await row.locator("button").focus();
  await page.keyboard.press("Enter");
  const [code, reason] = await closed;
  assert.deepEqual([code, String(reason)], [4410, "the administrator closed it"]);
  await row.waitFor({ state: "detached" });
  assert.deepEqual(page.complaints, []);
});

test("a dashboard is for administrators, and revokes their keys", async (test) => {
  const server = await Server.start(test, SETTINGS);
  const admin = mint("root", "--admin");
  const made = await fetch(`${server.url}/v1/auth/keys`, {
    method: "POST", headers: { authorization: `Bearer ${admin}` }, body: JSON.stringify({ name: "billing", user: "billing", rooms: { "*": "rw" } }),
  });
  const { apiKey } = await made.json();
  const rooms = () => fetch(`${server.url}/v1/rooms`, { headers: { authorization: `Bearer ${apiKey}` } }).then((response) => response.status);
  assert.equal(await rooms(), 200);
  const page = await open(test, server);
  for (const token of ["not-a-token", mint("ada", "--rooms", "*=rwm", "--scope", "stats")]) {
    await page.waitForSelector("#token-form", { state: "visible" });
    await page.fill("#token", token);
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => /does not take/.test(document.getElementById("login").textContent) || !document.getElementById("turned-away").hidden);
    assert.equal(await page.isVisible("#app"), false);
    if (await page.isVisible("#turned-away")) await page.click("#change-user");
  }
  await page.fill("#token", admin);
  await page.keyboard.press("Enter");
  await isLive(page);
  assert.ok(!page.url().includes("token"));
  page.on("dialog", (dialog) => dialog.accept());
  const key = page.locator("#keys tr", { hasText: "billing" });
  assert.match(await key.textContent(), /rooms \* rw/);
  await key.locator("button").click();
  await key.waitFor({ state: "detached" });
  assert.equal(await rooms(), 401);
  assert.deepEqual(page.complaints, []);
});

const SIZES = { desktop: { viewport: { width: 1280, height: 800 } }, phone: { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true } };

for (const [size, options] of Object.entries(SIZES)) {
  for (const colorScheme of ["light", "dark"]) {
    test(`axe finds nothing serious on the dashboard, ${size}, ${colorScheme}`, async (test) => {
      const server = await Server.start(test, SETTINGS);
      // Made while tokens are asked for, and listed without.
      await fetch(`${server.url}/v1/auth/keys`, {
        method: "POST", headers: { authorization: `Bearer ${mint("root", "--admin")}` }, body: JSON.stringify({ name: "billing", user: "billing", admin: true }),
      });
      await server.kill();
      await server.up();
      await follow(test, server, "mira", "lobby");
      await server.fill("lobby", 50);
      await fetch(`${server.url}/v1/rooms/lobby/messages`, { method: "POST", body: "{}" });
      const page = await open(test, server, { ...options, colorScheme, bypassCSP: true });
      await isLive(page);
      await page.waitForSelector("#connections tbody tr");
      await page.waitForSelector("#keys tbody tr");
      await page.waitForSelector("#refusals tbody tr");
      await page.evaluate(axe.source);
      const violations = await page.evaluate(async () => {
        const { violations } = await globalThis.axe.run(document, { resultTypes: ["violations"] });
        return violations.map(({ id, impact, nodes }) => `${impact} ${id}: ${nodes.map(({ html, any }) => `${html.slice(0, 160)} ${any[0]?.message ?? ""}`).join("; ")}`);
      });
      assert.deepEqual(violations.filter((one) => /^(serious|critical)/.test(one)), []);
      assert.deepEqual(await tooWide(page), []);
      if (process.env.HUBBUB_PICTURES) await page.screenshot({ path: `${process.env.HUBBUB_PICTURES}/dashboard-${size}-${colorScheme}.png`, fullPage: true });
    });
  }
}

test("a chart is read by keyboard", async (test) => {
  const server = await Server.start(test);
  const page = await open(test, server);
  await isLive(page);
  await server.fill("lobby", 20);
  await until(page, "the messages", async () => (await page.textContent("#top-rooms")).includes("20"));
  await page.focus('[data-panel="Messages"] .chart');
  await page.keyboard.press("Home");
  const first = await page.waitForFunction(() => document.getElementById("spoken").textContent);
  assert.match(await first.jsonValue(), /in .*\/s, out .*\/s$/);
  await page.keyboard.press("End");
  await page.waitForFunction((before) => document.getElementById("spoken").textContent !== before, await first.jsonValue());
});

test("the chat page leads administrators to the dashboard, and nobody else", async (test) => {
  const server = await Server.start(test, SETTINGS);
  for (const [token, isShown] of [[mint("root", "--admin", "--rooms", "*=rw"), true], [mint("ada", "--rooms", "*=rw"), false]]) {
    const context = await newContext(browser);
    test.after(() => context.close());
    const page = await context.newPage();
    await page.goto(server.url);
    await page.fill("#token", token);
    await page.press("#token", "Enter");
    if (isShown) {
      // An administrator has no name yet.
      await page.fill("#name", "Root");
      await page.press("#name", "Enter");
    }
    await page.waitForSelector("#app", { state: "visible" });
    assert.equal(await page.isVisible("#dashboard"), isShown);
    if (!isShown) continue;
    await page.click("#dashboard");
    // The token is that of the tab.
    await isLive(page);
  }
});
