/** What stands where: long names, other scripts, narrow screens, many rooms. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { FONTS, join, launch, tooWide, waitForText, window } from "./browser.mjs";
import { Server } from "./server.mjs";

let browser;
before(async () => { browser = await launch(); });
after(() => browser?.close());

const PHONE = { viewport: { width: 390, height: 844 }, hasTouch: true };

async function open(test, server, options, hash) {
  const page = await window(browser, server, "ada", options);
  test.after(() => page.context().close());
  if (hash) await go(page, hash);
  return page;
}

async function ask(server, method, path, body) {
  const response = await fetch(`${server.url}/v1/${path}`, { method, body: body && JSON.stringify(body) });
  assert.ok(response.ok, `${path}: ${response.status}`);
}

const go = (page, hash) => page.evaluate((to) => { location.hash = to; }, hash);
const box = (page, selector) => page.locator(selector).first().boundingBox();
const post = (server, message, userId = "bob") => ask(server, "POST", "rooms/lobby/messages", { userId, message });

test("a long name of a room leaves the composer one line high", async (test) => {
  const server = await Server.start(test);
  await ask(server, "PUT", "rooms/tea", { title: "Tea" });
  await ask(server, "PUT", "rooms/long", { title: "A room whose name says all there is to say about it, and then some more" });
  for (const font of [FONTS[0], FONTS.at(-1)]) {
    const page = await open(test, server, { ...PHONE, font });
    const heights = [];
    for (const room of ["tea", "long"]) {
      await go(page, `#/${room}`);
      await join(page);
      await page.waitForFunction(() => document.getElementById("text").placeholder.includes(document.getElementById("title")?.textContent));
      heights.push((await box(page, "#composer")).height);
    }
    assert.equal(heights[1], heights[0], font);
    // What is written still makes it grow.
    await page.fill("#text", "one\ntwo\nthree");
    assert.ok((await box(page, "#composer")).height > heights[0] + 20);
  }
});

test("text from right to left stands beside its author", async (test) => {
  const server = await Server.start(test);
  await post(server, "مرحبا");
  await post(server, "hello", "carl");
  const page = await open(test, server);
  await waitForText(page, "hello");
  const [arabic, latin] = await page.$$eval("#messages .text", (elements) => elements.map((element) => {
    const range = document.createRange();
    range.selectNodeContents(element);
    return { direction: getComputedStyle(element).direction, left: range.getBoundingClientRect().left };
  }));
  assert.deepEqual([arabic.direction, latin.direction], ["rtl", "ltr"]);
  assert.ok(Math.abs(arabic.left - latin.left) < 3, `${arabic.left} and ${latin.left}`);
});

test("stacked diacritics do not reach into neighbouring messages", async (test) => {
  const server = await Server.start(test);
  const stacked = "H\u0338\u0321\u032a\u032f\u0368\u034a\u033d\u0305\u033e\u030eE\u0328\u032c\u0329\u033e\u035b\u036a\u0308\u0300\u0301".repeat(8);
  for (const text of ["above", stacked, "below"]) await post(server, text);
  const page = await open(test, server);
  await waitForText(page, "below");
  const rows = page.locator("#messages .row");
  const neighbours = () => Promise.all([0, 2].map((index) => rows.nth(index).screenshot()));
  const [above, below] = await neighbours();
  await page.evaluate(() => { document.querySelectorAll("#messages .text")[1].textContent = "x"; });
  const plain = await neighbours();
  assert.ok(above.equals(plain[0]), "the message above is as it would be");
  assert.ok(below.equals(plain[1]), "the message below is as it would be");
});

test("on a phone, queues and keys keep their numbers on the screen", async (test) => {
  const server = await Server.start(test);
  const long = "thumbnails-for-the-gallery-of-last-summer-and-winter";
  await ask(server, "PUT", `queues/${long}`, {});
  await ask(server, "POST", `queues/${long}/messages`, { sender: "boss", message: "one" });
  await fetch(`${server.url}/kv/a/rather/long/key/that/has/many/parts/and/does/not/fit/on/a/phone`, { method: "PUT", body: "x" });
  for (const font of FONTS) {
    const page = await open(test, server, { ...PHONE, font });
    for (const view of ["queues", "kv"]) {
      await go(page, `#${view}`);
      await page.waitForSelector(`#${view} tbody td`);
      const outside = await page.$$eval(`#${view} tbody td, #${view} tbody a`, (cells) => cells.filter((cell) => {
        const { left, right, width } = cell.getBoundingClientRect();
        return left < 0 || right > innerWidth || width === 0;
      }).map((cell) => cell.outerHTML));
      assert.deepEqual(outside, [], `${view}, ${font}`);
      const isScrolled = await page.$eval(`#${view} .table-wrap`, (element) => element.scrollWidth > element.clientWidth);
      assert.ok(!isScrolled, `${view}, ${font}`);
      assert.deepEqual(await tooWide(page), [], `${view}, ${font}`);
    }
    await page.context().close();
  }
});

test("the header of a queue stays low on a phone", async (test) => {
  const server = await Server.start(test);
  await ask(server, "PUT", "queues/jobs", { maxDeliveries: 5 });
  const page = await open(test, server, PHONE, "#queues/jobs");
  await page.waitForSelector(".waiting .empty");
  const lines = await page.$eval("#queues .room-title p", (element) => {
    const range = document.createRange();
    range.selectNodeContents(element);
    return new Set([...range.getClientRects()].map((rect) => Math.round(rect.top))).size;
  });
  assert.ok(lines <= 1, `${lines} lines`);
  assert.deepEqual(await tooWide(page), []);
});

test("the value of a key has the width of the view", async (test) => {
  const server = await Server.start(test);
  await fetch(`${server.url}/kv/config`, { method: "PUT", body: "value" });
  for (const options of [{}, PHONE]) {
    const page = await open(test, server, options, "#kv/config");
    await page.waitForFunction(() => document.getElementById("kv-value")?.value === "value");
    const [value, view] = [await box(page, "#kv-value"), await box(page, "#kv .board-body")];
    assert.ok(value.width > view.width - 60, `${value.width} of ${view.width}`);
    assert.ok(value.height > view.height / 3, `${value.height} of ${view.height}`);
    assert.ok(await page.isVisible("#kv-edit .primary"));
  }
});

test("what stands in an empty field is not cut off", async (test) => {
  const server = await Server.start(test);
  await ask(server, "PUT", "queues/jobs", {});
  /** Placeholders that their fields are too narrow for. */
  const cut = (page) => page.$$eval("input[placeholder]", (inputs) => inputs.filter((input) => input.checkVisibility()).filter((input) => {
    const copy = input.cloneNode();
    copy.type = "text";
    copy.value = input.placeholder;
    input.replaceWith(copy);
    const isCut = copy.scrollWidth > copy.clientWidth;
    copy.replaceWith(input);
    return isCut;
  }).map((input) => input.placeholder));
  for (const options of [{}, PHONE]) {
    const page = await open(test, server, options);
    await join(page);
    await page.click("#people-button");
    await page.waitForSelector("#people .invite input");
    assert.deepEqual(await cut(page), [], "people");
    await page.keyboard.press("Escape");
    for (const hash of ["#queues", "#queues/jobs", "#kv", "#kv/config"]) {
      await go(page, hash);
      await page.waitForSelector(".board:not([hidden]) input");
      assert.deepEqual(await cut(page), [], hash);
    }
  }
});

test("of 200 rooms, the open one is in sight", async (test) => {
  const server = await Server.start(test);
  for (let n = 100; n < 300; n++) {
    await ask(server, "PUT", `rooms/room-${n}`, { title: `Room ${n}` });
    await ask(server, "PUT", `rooms/room-${n}/members/ada`);
  }
  const page = await open(test, server, {}, "#/room-290");
  const isInSight = () => page.waitForFunction(() => {
    const item = document.querySelector(".room-item[aria-current]");
    if (!item || location.hash !== `#/${item.dataset.room}`) return false;
    const [{ top, bottom }, list] = [item.getBoundingClientRect(), document.getElementById("rooms").getBoundingClientRect()];
    return top >= list.top - 1 && bottom <= list.bottom + 1;
  });
  await isInSight();
  await go(page, "#/room-101");
  await isInSight();
  // Whoever looks elsewhere in the list is left there.
  await page.evaluate(() => { document.getElementById("rooms").scrollTop = 5_000; });
  await ask(server, "POST", "rooms/room-101/messages", { userId: "bob", message: "hello" });
  await waitForText(page, "hello");
  await page.waitForFunction(() => document.querySelector("[data-room=room-101] .room-last")?.textContent.endsWith("hello"));
  assert.ok(await page.$eval("#rooms", (element) => element.scrollTop) > 1_000);
});

test("a room for members only has a lock in the list", async (test) => {
  const server = await Server.start(test);
  for (const room of ["open", "closed"]) {
    await ask(server, "PUT", `rooms/${room}`, { membersOnly: room === "closed" });
    await ask(server, "PUT", `rooms/${room}/members/ada`);
  }
  const page = await open(test, server);
  await page.waitForSelector("[data-room=closed]");
  assert.ok(await page.isVisible("[data-room=closed] .lock"));
  assert.equal(await page.textContent("[data-room=closed] .unseen"), "members only");
  assert.ok(await page.isHidden("[data-room=open] .lock"));
});
