/** The chat page and the client where RabbitMQ is the log: receipts come without a number, messages a moment later. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import WebSocket from "ws";
import { Hubbub } from "../../web/hubbub.js";
import { join, launch, say, texts, waitForText, window } from "./browser.mjs";
import { Server } from "./server.mjs";

const URL_OF_BROKER = process.env.HUBBUB_TEST_AMQP;
const SCRIPT = fileURLToPath(new URL("../../scripts/services/rabbitmq.sh", import.meta.url));
const VHOST = `page-${process.pid}`;
const skip = URL_OF_BROKER || process.env.CI === "true" ? false : "HUBBUB_TEST_AMQP names no RabbitMQ";

function broker(...args) {
  const RMQ_PORT = new URL(URL_OF_BROKER).port;
  execFileSync(SCRIPT, args, { env: { ...process.env, RMQ_PORT } });
}

let browser;
let log;
before(async () => {
  if (skip) return;
  broker("vhost", "add", VHOST);
  log = { HUBBUB_LOG: new URL(VHOST, URL_OF_BROKER).href };
  browser = await launch();
});
after(async () => {
  await browser?.close();
  if (!skip) broker("vhost", "delete", VHOST);
});

const range = (count) => Array.from({ length: count }, (_, index) => index + 1);
const settled = (page) => page.waitForFunction(() => document.querySelectorAll("#pending > *").length === 0);
/** Texts on the screen, those that are not stored yet too. */
const shown = (page) => page.$$eval("#messages .text, #pending .text", (elements) => elements.map((element) => element.textContent));

test("what is written is shown once, before and after it is stored, and after a reload", { skip }, async (test) => {
  const server = await Server.start(test, log);
  const pages = [];
  for (const name of ["ada", "bob"]) {
    const page = await window(browser, server, name);
    test.after(() => page.context().close());
    await join(page);
    pages.push(page);
  }
  const [ada, bob] = pages;
  // Whatever the page draws, at no time does a text stand there twice.
  await ada.evaluate(() => {
    globalThis.twice = [];
    new MutationObserver(() => {
      const all = [...document.querySelectorAll("#messages .text, #pending .text")].map((element) => element.textContent);
      if (new Set(all).size < all.length) globalThis.twice.push(all);
    }).observe(document.body, { childList: true, subtree: true });
  });
  const wanted = range(30).map((n) => `message ${n}`);
  for (const text of wanted) await say(ada, text);
  await waitForText(bob, wanted.at(-1));
  await waitForText(ada, wanted.at(-1));
  await settled(ada);
  assert.deepEqual(await texts(ada), wanted);
  assert.deepEqual(await texts(bob), wanted);
  assert.deepEqual(await ada.evaluate(() => globalThis.twice), []);
  await ada.waitForSelector("#messages .mark.durable");

  // Written while the server is away, sent by the page that is loaded again.
  await server.kill();
  await ada.waitForSelector("#banner:not([hidden])");
  await say(ada, "while offline");
  await ada.waitForSelector('#pending [data-state="queued"]');
  await server.up(log);
  await ada.reload();
  await waitForText(ada, "while offline");
  await settled(ada);
  assert.deepEqual(await shown(ada), [...wanted, "while offline"]);
  await waitForText(bob, "while offline");
  for (const page of pages) assert.deepEqual(page.complaints, []);
});

test("the client's receipts have an id and no number, and its own messages come once", { skip }, async (test) => {
  const server = await Server.start(test, log);
  const seen = [];
  const client = new Hubbub({ url: server.url, user: "cleo", WebSocket });
  test.after(() => client.close());
  const all = new Promise((resolve) => {
    client.subscribe("room", { after: 0, onMessage: (message) => seen.push(message) === 20 && resolve() });
  });
  client.connect();
  const sent = range(20).map((n) => client.send("room", `text ${n}`));
  const receipts = await Promise.all(sent.map((outgoing) => outgoing.done));
  assert.deepEqual(receipts.map(({ messageId }) => messageId), sent.map(({ messageId }) => messageId));
  assert.ok(receipts.every(({ seq }) => seq === undefined));
  await all;
  assert.deepEqual(seen.map(({ messageId }) => messageId), sent.map(({ messageId }) => messageId));
  assert.equal((await server.history("room")).length, 20);
});
