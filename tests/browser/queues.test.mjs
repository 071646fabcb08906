/** The Queues view in headless Chromium: make, send, look, delete, redrive. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { idOf } from "../../web/app/ids.js";
import { join, launch, window } from "./browser.mjs";
import { Server } from "./server.mjs";

let browser;
before(async () => { browser = await launch(); });
after(() => browser?.close());

async function ask(server, path, body) {
  const response = await fetch(`${server.url}/v1/${path}`, { method: "POST", body: JSON.stringify(body) });
  assert.ok(response.ok, `${path}: ${response.status}`);
  return response.json();
}

async function enter(test, server, hash = "#queues") {
  const page = await window(browser, server, "ada");
  test.after(() => page.context().close());
  page.on("dialog", (dialog) => dialog.accept());
  await page.evaluate((to) => { location.hash = to; }, hash);
  return page;
}

const cells = (page, queue) => page.$$eval(`tr[data-queue="${queue}"] td`, (elements) => elements.map((element) => element.textContent));
const texts = (page) => page.$$eval(".waiting-text", (elements) => elements.map((element) => element.textContent));
const shows = (page, wanted) => page.waitForFunction(
  (all) => JSON.stringify([...document.querySelectorAll(".waiting-text")].map((element) => element.textContent)) === JSON.stringify(all), wanted);

test("a queue is made, filled, emptied and deleted", async (test) => {
  const server = await Server.start(test);
  const page = await enter(test, server);
  await page.click('a[href="#queues"]');
  await page.waitForFunction(() => document.querySelector("#queues .empty").checkVisibility());
  assert.equal(await page.textContent("#queues .empty"), "There is no queue yet.");
  // An empty list is no error.
  assert.equal(await page.textContent(".board-status"), "");
  await page.fill("#queue-name", "jobs");
  await page.press("#queue-name", "Enter");
  await page.waitForFunction(() => location.hash === "#queues/jobs");
  await page.waitForSelector(".waiting .empty");
  // Whatever a text looks like, it is text.
  const nasty = "<img src=x onerror=\"document.title='owned'\"> & more";
  for (const text of ["one", nasty]) {
    await page.fill("#queue-text", text);
    await page.press("#queue-text", "Enter");
    await page.waitForFunction(() => document.getElementById("queue-text")?.value === "");
  }
  await shows(page, ["one", nasty]);
  assert.equal(await page.locator(".waiting img").count(), 0);
  await page.fill("#queue-delay", "3600");
  await page.fill("#queue-text", "later");
  await page.press("#queue-text", "Enter");
  await shows(page, ["one", nasty, "later"]);
  await page.waitForSelector(".tag.delayed");
  page.removeAllListeners("dialog");
  page.once("dialog", (dialog) => dialog.dismiss());
  await page.click('[aria-label="Delete message 1"]');
  assert.deepEqual(await texts(page), ["one", nasty, "later"]);
  page.on("dialog", (dialog) => dialog.accept());
  await page.click('[aria-label="Delete message 1"]');
  await shows(page, [nasty, "later"]);

  await page.evaluate(() => { location.hash = "#queues"; });
  await page.waitForSelector('tr[data-queue="jobs"]');
  assert.deepEqual((await cells(page, "jobs")).slice(0, 3), ["1", "1", "0"]);
  // The rate is known after the second look.
  await page.waitForFunction(() => document.querySelector('tr[data-queue="jobs"] td:nth-child(5)')?.textContent === "0");
  await page.click('tr[data-queue="jobs"] a');
  await page.click("button.danger:visible");
  await page.waitForFunction(() => location.hash === "#queues");
  await page.waitForFunction(() => !document.querySelector('tr[data-queue="jobs"]'));
  // And back among the rooms.
  await page.evaluate(() => { location.hash = "#/lobby"; });
  await page.waitForSelector("#room:not([hidden]) #title");
  assert.ok(await page.locator("#queues").isHidden());
  assert.deepEqual(page.complaints, []);
});

test("dead letters say why, and are tried again", async (test) => {
  const server = await Server.start(test);
  const put = { method: "PUT", body: JSON.stringify({ maxDeliveries: 1 }) };
  assert.equal((await fetch(`${server.url}/v1/queues/jobs`, put)).status, 201);
  for (const text of ["one", "two"]) {
    await ask(server, "queues/jobs/messages", { sender: "boss", message: text });
    const { messages: [message] } = await ask(server, "queues/jobs/lease", { receiver: "ann" });
    await ask(server, `queues/jobs/messages/${message.id}/nack`, { receipt: message.receipt });
  }
  const page = await enter(test, server);
  await page.waitForSelector('tr.dead[data-queue="jobs.dead"]');
  if (process.env.HUBBUB_SHOTS) await page.screenshot({ path: `${process.env.HUBBUB_SHOTS}/queues.png` });
  await page.click('tr[data-queue="jobs.dead"] a');
  await shows(page, ["one", "two"]);
  assert.equal(await page.locator(".tag.dead").first().textContent(), "from jobs: given back, 1 delivery");
  if (process.env.HUBBUB_SHOTS) await page.screenshot({ path: `${process.env.HUBBUB_SHOTS}/queue.png` });
  await page.click(".waiting li:first-child .link");
  await shows(page, ["two"]);
  await page.click("text=Redrive all");
  await page.waitForFunction(() => document.querySelector(".board-status")?.textContent.startsWith("1 message waits again"));
  assert.deepEqual(await texts(page), []);
  await page.evaluate(() => { location.hash = "#queues/jobs"; });
  await shows(page, ["one", "two"]);
  assert.deepEqual(page.complaints, []);
});

test("senders and receivers go by their names, in any script", async (test) => {
  const server = await Server.start(test);
  for (const path of ["queues/jobs", `clients/${idOf("Нур Ali")}`]) {
    assert.ok((await fetch(`${server.url}/v1/${path}`, { method: "PUT", body: "{}" })).ok, path);
  }
  const page = await window(browser, server, "Мария");
  test.after(() => page.context().close());
  await join(page);
  await page.evaluate(() => { location.hash = "#queues/jobs"; });
  await page.fill("#queue-text", "for Нур");
  await page.fill("#queue-receiver", "Нур Ali");
  await page.press("#queue-text", "Enter");
  const says = (text) => page.waitForFunction((wanted) => document.querySelector(".waiting-head")?.textContent.startsWith(wanted), text);
  // Nobody of that name has written anything yet.
  await says(`Мария→ ${idOf("Нур Ali")}`);
  const other = await window(browser, server, "Нур Ali");
  test.after(() => other.context().close());
  await join(other);
  await page.reload();
  await says("Мария→ Нур Ali");
});

test("on a narrow screen the view takes all of it, and leads back", async (test) => {
  const server = await Server.start(test);
  const page = await window(browser, server, "ada", { viewport: { width: 390, height: 780 } });
  test.after(() => page.context().close());
  await page.evaluate(() => { location.hash = "#queues"; });
  await page.waitForSelector("#queues:not([hidden])");
  assert.ok(await page.locator(".sidebar").isHidden());
  const isWide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
  assert.equal(isWide, false);
  await page.click('[aria-label="Back to rooms"] >> visible=true');
  await page.waitForSelector(".sidebar:not([hidden])");
  assert.ok(await page.locator("#queues").isHidden());
  await server.kill();
  await page.evaluate(() => { location.hash = "#queues"; });
  await page.waitForFunction(() => document.querySelector(".board-status")?.textContent);
});
