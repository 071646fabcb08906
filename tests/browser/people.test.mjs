/** What the page shows of other people: unread counts on every device, who is here, who types, who may come in. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { join, launch, say, waitForText, window } from "./browser.mjs";
import { Server } from "./server.mjs";

let browser;
before(async () => { browser = await launch(); });
after(() => browser?.close());

async function enter(test, server, name, options) {
  const page = await window(browser, server, name, options);
  test.after(() => page.context().close());
  await join(page);
  return page;
}

function asAdministrator(server, method, path, body) {
  return fetch(`${server.url}/v1${path}`, { method, body: body && JSON.stringify(body) });
}

const badge = (room) => `[data-room=${room}] .unread`;
const badgeSays = (page, room, text) => page.waitForFunction(
  ([selector, wanted]) => document.querySelector(selector)?.textContent === wanted, [badge(room), text]);
const faces = (page, label) => page.waitForFunction(
  (wanted) => document.querySelector(".faces-label")?.textContent === wanted, label);

test("what is read on one device is read on the other", async (test) => {
  const server = await Server.start(test);
  const bob = await enter(test, server, "bob");
  const devices = [await enter(test, server, "ada", { room: "tea" }), await enter(test, server, "ada", { room: "tea" })];
  for (const device of devices) {
    await device.evaluate(() => { location.hash = "#/lobby"; });
    await join(device);
    await device.evaluate(() => { location.hash = "#/tea"; });
  }
  await bob.waitForFunction(() => document.getElementById("subtitle").textContent === "2 members");
  for (const text of ["one", "two", "three"]) await say(bob, text);
  for (const device of devices) await badgeSays(device, "lobby", "3");
  await devices[0].click("[data-room=lobby]");
  await waitForText(devices[0], "three");
  assert.equal(await devices[0].locator(".new").count(), 1);
  await devices[0].bringToFront();
  for (const device of devices) await badgeSays(device, "lobby", "");
});

test("unread is counted while away", async (test) => {
  const server = await Server.start(test);
  const ada = await enter(test, server, "ada", { room: "tea" });
  await ada.evaluate(() => { location.hash = "#/lobby"; });
  await join(ada);
  await ada.evaluate(() => { location.hash = "#/tea"; });
  const bob = await enter(test, server, "bob");
  await badgeSays(ada, "lobby", "1");
  await ada.goto("about:blank");
  for (const text of ["one", "two", "three"]) await say(bob, text);
  await waitForText(bob, "three");
  await ada.goto(`${server.url}/#/tea`);
  await badgeSays(ada, "lobby", "4");
});

test("who is here and who types", async (test) => {
  const server = await Server.start(test);
  const ada = await enter(test, server, "ada");
  await faces(ada, "1 here");
  const bob = await enter(test, server, "Bob");
  await faces(ada, "2 here");
  await faces(bob, "2 here");
  await bob.type("#text", "hm");
  await ada.waitForFunction(() => document.getElementById("typing").textContent === "Bob is typing");
  await bob.press("#text", "Enter");
  await waitForText(ada, "hm");
  await ada.waitForFunction(() => document.getElementById("typing").textContent === "");
  await bob.context().close();
  await faces(ada, "1 here");
});

test("a removed member receives nothing more, and may come back", async (test) => {
  const server = await Server.start(test);
  const ada = await enter(test, server, "ada");
  const bob = await enter(test, server, "bob");
  await asAdministrator(server, "DELETE", "/rooms/lobby/members/ada");
  await ada.waitForSelector("#join-bar:not([hidden])");
  await say(bob, "behind her back");
  await waitForText(bob, "behind her back");
  assert.deepEqual(await ada.$$eval("#messages .text", (elements) => elements.length), 0);
  await ada.click("#join-bar button");
  await waitForText(ada, "behind her back");
});

test("a room for members only lets nobody else look, until somebody adds them", async (test) => {
  const server = await Server.start(test);
  const ada = await enter(test, server, "ada");
  await ada.click("#new-room");
  await ada.fill("#rooms-dialog .search input", "Secret garden");
  await ada.check("#members-only");
  await ada.click("#rooms-dialog .primary");
  await ada.waitForFunction(() => document.getElementById("title").textContent === "Secret garden");
  await say(ada, "between us");
  await waitForText(ada, "between us");
  const carl = await window(browser, server, "carl", { room: "Secret--garden" });
  test.after(() => carl.context().close());
  await carl.waitForFunction(() => document.getElementById("join-bar").textContent.includes("you are carl"));
  assert.equal(await carl.locator("#join-bar button").count(), 0);
  assert.equal(await carl.textContent("#subtitle"), "members only");
  assert.deepEqual(await carl.$$eval("#messages .text", (elements) => elements.length), 0);
  await ada.click("#people-button");
  await ada.fill(".invite input", "carl");
  await ada.press(".invite input", "Enter");
  await carl.waitForSelector("[data-room=Secret--garden]");
  await carl.waitForSelector("#composer:not([hidden])");
  await waitForText(carl, "between us");
});
