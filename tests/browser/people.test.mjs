/** What the page shows of other people: unread counts on every device, who is here, who types, who may come in. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { enter as enterWith, join, launch, say, waitForText, window } from "./browser.mjs";
import { Server } from "./server.mjs";

let browser;
before(async () => { browser = await launch(); });
after(() => browser?.close());

const enter = (...who) => enterWith(browser, ...who);

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
  await bob.waitForFunction(() => document.getElementById("subtitle")?.textContent === "2 members");
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
  await ada.waitForFunction(() => document.getElementById("typing")?.textContent === "Bob is typing");
  await bob.press("#text", "Enter");
  await waitForText(ada, "hm");
  await ada.waitForFunction(() => document.getElementById("typing")?.textContent === "");
  await bob.context().close();
  await faces(ada, "1 here");
});

test("a removed member of an open room looks on as a guest, and may come back", async (test) => {
  const server = await Server.start(test);
  const ada = await enter(test, server, "ada");
  const bob = await enter(test, server, "bob");
  await asAdministrator(server, "DELETE", "/rooms/lobby/members/ada");
  await ada.waitForSelector("#join-bar:not([hidden])");
  await say(bob, "for all who look");
  await waitForText(ada, "for all who look");
  assert.equal(await ada.locator("#composer").isVisible(), false);
  await ada.click("#join-bar button");
  await ada.waitForSelector("#composer:not([hidden])");
  await say(ada, "here again");
  await waitForText(bob, "here again");
});

test("a removed member of a room for members receives nothing more", async (test) => {
  const server = await Server.start(test);
  const ada = await enter(test, server, "ada");
  await enter(test, server, "bob");
  await asAdministrator(server, "PUT", "/rooms/lobby", { membersOnly: true });
  await asAdministrator(server, "DELETE", "/rooms/lobby/members/ada");
  await ada.waitForFunction(() => document.getElementById("join-bar")?.textContent.endsWith("your id: ada"));
  await asAdministrator(server, "POST", "/rooms/lobby/messages", { userId: "bob", message: "behind her back" });
  await ada.waitForFunction(() => document.querySelector("#messages .text") === null);
  assert.equal(await ada.getByText("behind her back").count(), 0);
});

test("a room for members only lets nobody else look, until somebody adds them", async (test) => {
  const server = await Server.start(test);
  const ada = await enter(test, server, "ada");
  await ada.click("#new-room");
  await ada.fill("#rooms-dialog .search input", "Secret garden");
  await ada.check("#members-only");
  await ada.click("#rooms-dialog .primary");
  await ada.waitForFunction(() => document.getElementById("title")?.textContent === "Secret garden");
  await say(ada, "between us");
  await waitForText(ada, "between us");
  const carl = await window(browser, server, "carl", { room: "Secret--garden" });
  test.after(() => carl.context().close());
  await carl.waitForFunction(() => document.getElementById("join-bar")?.textContent.endsWith("your id: carl"));
  assert.equal(await carl.locator("#join-bar button").count(), 0);
  assert.equal(await carl.textContent("#subtitle"), "members only");
  assert.deepEqual(await carl.$$eval("#messages .text", (elements) => elements.length), 0);
  await ada.click("#people-button");
  await ada.fill(".invite input", "carl");
  await ada.press(".invite input", "Enter");
  // Whoever has not been in any room yet is unknown.
  await ada.click("text=Add anyway");
  await carl.waitForSelector("[data-room=Secret--garden]");
  await carl.waitForSelector("#composer:not([hidden])");
  await waitForText(carl, "between us");
});

test("adding somebody nobody knows is asked about, and adding can be undone", async (test) => {
  const server = await Server.start(test);
  const maria = await enter(test, server, "Мария", { room: "tea" });
  await maria.context().close();
  const ada = await enter(test, server, "ada");
  await ada.click("#people-button");
  const add = async (name) => {
    await ada.fill(".invite input", name);
    await ada.press(".invite input", "Enter");
  };
  const hint = (text) => ada.waitForFunction((wanted) => document.querySelector(".invite .hint")?.textContent.startsWith(wanted), text);
  const listed = (names) => ada.waitForFunction((wanted) =>
    JSON.stringify([...document.querySelectorAll("#people .person")].map((element) => element.textContent)) === wanted, JSON.stringify(names));
  await add("Marja");
  await hint("Nobody called Marja has been on this server.");
  await listed(["ada"]);
  // The name that was typed is shown, though its id does not tell it.
  await add("Мария");
  await hint("Мария was added.");
  await listed(["ada", "Мария"]);
  // Also where nobody typed it: it is looked up.
  const bob = await enter(test, server, "bob");
  await bob.click("#people-button");
  await bob.waitForFunction(() => document.querySelector("#people .away b")?.textContent === "Мария");
  await bob.context().close();
  await ada.click("text=Undo");
  await hint("Мария was removed again.");
  await listed(["ada", "bob"]);
  await add("ada");
  await hint("ada is a member already.");
  // Without an answer nobody is said to be unknown.
  await server.kill();
  await add("Marja");
  await hint("The server cannot be reached.");
  assert.deepEqual(ada.complaints, []);
});

test("leaving a room for members only is asked about", async (test) => {
  const server = await Server.start(test);
  await asAdministrator(server, "PUT", "/rooms/garden", { title: "Сад", membersOnly: true });
  await asAdministrator(server, "PUT", "/rooms/garden/members/ada");
  const ada = await enter(test, server, "ada", { room: "garden" });
  await ada.click("#people-button");
  const asked = [];
  let isMeant = false;
  ada.on("dialog", (dialog) => {
    asked.push(dialog.message());
    return isMeant ? dialog.accept() : dialog.dismiss();
  });
  await ada.click("text=Leave room");
  assert.match(asked[0], /^Leave Сад\?/);
  assert.equal(await ada.evaluate(() => location.hash), "#/garden");
  isMeant = true;
  await ada.click("text=Leave room");
  await ada.waitForFunction(() => location.hash === "#/");
  assert.equal(asked.length, 2);
  const { members } = await (await asAdministrator(server, "GET", "/rooms/garden/members")).json();
  assert.deepEqual(members, []);
});

test("a room that does not exist is said not to, and can be created", async (test) => {
  const server = await Server.start(test);
  const ada = await window(browser, server, "ada", { room: "nosuch" });
  test.after(() => ada.context().close());
  await ada.waitForFunction(() => document.getElementById("subtitle")?.textContent === "no such room yet");
  assert.equal(await ada.textContent("#join-bar span"), "There is no room nosuch yet.");
  await ada.click("text=Create room");
  await ada.waitForFunction(() => document.getElementById("subtitle")?.textContent === "1 member");
});

test("somebody who only looks at a room sees its name", async (test) => {
  const server = await Server.start(test);
  await asAdministrator(server, "PUT", "/rooms/kitchen", { title: "Кухня" });
  const bob = await window(browser, server, "bob", { room: "kitchen" });
  test.after(() => bob.context().close());
  await bob.waitForFunction(() => document.getElementById("title")?.textContent === "Кухня");
  await bob.waitForFunction(() => document.title === "Кухня · Hubbub");
  await bob.waitForFunction(() => document.getElementById("join-bar")?.textContent.startsWith("You are looking at Кухня"));
  // Names behind readable ids are read from them.
  await asAdministrator(server, "PUT", "/rooms/Tea--time", {});
  await asAdministrator(server, "PUT", "/rooms/Tea--time/members/bob");
  await bob.waitForFunction(() => document.querySelector("[data-room=Tea--time] .room-name")?.textContent === "Tea time");
});

test("offline, the list of rooms says one sentence", async (test) => {
  const server = await Server.start(test);
  const ada = await enter(test, server, "ada");
  await server.kill();
  await ada.click("#new-room");
  await ada.waitForFunction(() => document.querySelector(".room-list")?.textContent === "The server cannot be reached. Try again in a moment.");
  assert.doesNotMatch(await ada.textContent("#rooms-dialog"), /Failed|no room/);
  await ada.keyboard.press("Escape");
  for (const board of ["queues", "kv"]) {
    await ada.evaluate((to) => { location.hash = `#${to}`; }, board);
    await ada.waitForFunction((to) => document.querySelector(`#${to} .board-status`)?.textContent.startsWith("The server cannot be reached."), board);
    assert.ok(await ada.isHidden(`#${board} .empty`));
  }
});
