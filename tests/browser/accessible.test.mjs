/** Every view for those who read with little contrast, with a keyboard, or with a screen reader: axe, landmarks, headings. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { findings, join, launch, newContext, waitForText, window } from "./browser.mjs";
import { Server } from "./server.mjs";

let browser;
before(async () => { browser = await launch(); });
after(() => browser?.close());

const SIZES = { desktop: { viewport: { width: 1280, height: 800 } }, phone: { viewport: { width: 390, height: 844 }, hasTouch: true } };
const SCHEMES = ["light", "dark"];

async function ask(server, method, path, body) {
  const response = await fetch(`${server.url}/${path}`, { method, body: body && JSON.stringify(body) });
  assert.ok(response.ok, `${path}: ${response.status}`);
}

/** Something of everything that has a colour of its own. */
async function furnish(server) {
  await ask(server, "PUT", "v1/rooms/lobby", { title: "Lobby" });
  await ask(server, "PUT", "v1/rooms/garden", { title: "Secret garden", membersOnly: true });
  await ask(server, "PUT", "v1/rooms/garden/members/ada");
  await ask(server, "PUT", "v1/rooms/lobby/members/grace");
  await ask(server, "POST", "v1/rooms/garden/messages", { userId: "ada", message: "for members" });
  await ask(server, "POST", "v1/rooms/lobby/messages", { userId: "bob", username: "Bob", message: "see https://example.org/" });
  await ask(server, "PUT", "v1/queues/jobs", { maxDeliveries: 1 });
  for (const message of ["one", "two", "three"]) await ask(server, "POST", "v1/queues/jobs/messages", { sender: "boss", message });
  await ask(server, "POST", "v1/queues/jobs/messages", { sender: "boss", message: "later", delayMs: 3_600_000 });
  for (const reject of [true, false]) {
    const leased = await fetch(`${server.url}/v1/queues/jobs/lease`, { method: "POST", body: JSON.stringify({ receiver: "ann" }) });
    const { messages: [{ id, receipt }] } = await leased.json();
    if (reject) await ask(server, "POST", `v1/queues/jobs/messages/${id}/nack`, { receipt });
  }
  await fetch(`${server.url}/kv/config/site`, { method: "PUT", body: "value", headers: { "hubbub-ttl": "3600" } });
  await fetch(`${server.url}/kv/bytes`, { method: "PUT", body: new Uint8Array([0, 255]) });
}

const go = (page, hash) => page.evaluate((to) => { location.hash = to; }, hash);

/** Name of a view → how to get there. */
const VIEWS = {
  chat: async (page) => {
    await go(page, "#/lobby");
    await join(page);
    await waitForText(page, "see https://example.org/");
  },
  people: async (page) => {
    await page.click("#people-button");
    await page.waitForSelector("#people .away");
  },
  "an unknown room": (page) => go(page, "#/nosuch").then(() => page.waitForSelector("#join-bar button")),
  rooms: (page) => go(page, "#/").then(() => page.waitForSelector("[data-room=garden]", { state: "visible" })),
  dialog: async (page) => {
    await page.click("#new-room");
    await page.waitForSelector("#rooms-dialog .room-list button");
  },
  queues: async (page) => {
    await page.keyboard.press("Escape");
    await go(page, "#queues");
    await page.waitForSelector('tr.dead[data-queue="jobs.dead"]');
  },
  queue: (page) => go(page, "#queues/jobs").then(() => page.waitForSelector(".tag.leased")),
  "dead letters": (page) => go(page, "#queues/jobs.dead").then(() => page.waitForSelector(".waiting .tag.dead")),
  keys: (page) => go(page, "#kv").then(() => page.waitForSelector("tr[data-key]")),
  key: (page) => go(page, "#kv/config/site").then(() => page.waitForFunction(() => document.getElementById("kv-value")?.value === "value")),
  bytes: (page) => go(page, "#kv/bytes").then(() => page.waitForSelector(".hex:not([hidden])")),
};

for (const [size, options] of Object.entries(SIZES)) {
  for (const colorScheme of SCHEMES) {
    test(`axe finds nothing serious on the chat page, ${size}, ${colorScheme}`, async (test) => {
      const server = await Server.start(test);
      await furnish(server);
      const page = await window(browser, server, "ada", { ...options, colorScheme, reducedMotion: "reduce", bypassCSP: true });
      test.after(() => page.context().close());
      for (const [view, open] of Object.entries(VIEWS)) {
        await open(page);
        assert.deepEqual(await findings(page), [], view);
      }
      assert.deepEqual(page.complaints, []);
    });

    test(`axe finds nothing serious at the door and on /docs, ${size}, ${colorScheme}`, async (test) => {
      const server = await Server.start(test);
      const context = await newContext(browser, { ...options, colorScheme, bypassCSP: true });
      test.after(() => context.close());
      const page = await context.newPage();
      await page.goto(`${server.url}/`);
      await page.waitForSelector("#welcome:not([hidden])");
      assert.deepEqual(await findings(page), [], "the door");
      await page.goto(`${server.url}/docs`);
      await page.waitForSelector("#main:not([aria-busy])");
      assert.deepEqual(await findings(page), [], "/docs");
    });
  }
}

test("each view has one main part, its heading, and says where one is", async (test) => {
  const server = await Server.start(test);
  await furnish(server);
  for (const options of Object.values(SIZES)) {
    const page = await window(browser, server, "ada", options);
    test.after(() => page.context().close());
    const seen = (selector) => page.$$eval(selector, (elements) => elements.filter((element) => element.checkVisibility()).map((element) => element.textContent));
    for (const [view, heading, current] of [
      ["chat", "Lobby", []], ["queues", "Queues", ["Queues"]], ["queue", "jobs", ["Queues"]], ["keys", "Keys", ["Keys"]], ["key", "config/site", ["Keys"]],
    ]) {
      await VIEWS[view](page);
      await page.waitForFunction((wanted) => document.title.endsWith("· Hubbub") && document.title.includes(wanted), heading);
      assert.deepEqual(await seen("main h1"), [heading], view);
      assert.equal((await seen("main")).length, 1, view);
      assert.equal((await seen("h1")).length, 1, view);
      assert.deepEqual(await page.$$eval(".boards [aria-current=page]", (links) => links.map((link) => link.textContent)), current, view);
    }
    await VIEWS.rooms(page);
    assert.equal((await seen("h1")).length, 1, "rooms");
  }
});

test("the page leads to the documentation of the API", async (test) => {
  const server = await Server.start(test);
  const page = await window(browser, server, "ada");
  test.after(() => page.context().close());
  await page.click('.sidebar a[href="/docs"]');
  await page.waitForURL(`${server.url}/docs`);
});
