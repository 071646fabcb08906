/** Names of people and of rooms, in any script: different ones are different, and whoever takes one in use is told. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { idOf } from "../../web/app/ids.js";
import { FONTS, enter as enterWith, join, launch, newContext, say, tooWide, waitForText, window } from "./browser.mjs";
import { Server } from "./server.mjs";

let browser;
before(async () => { browser = await launch(); });
after(() => browser?.close());

const enter = (...who) => enterWith(browser, ...who);

/** The page at its door. */
async function door(test, server) {
  const context = await newContext(browser);
  test.after(() => context.close());
  const page = await context.newPage();
  await page.goto(`${server.url}/#/lobby`);
  await page.waitForSelector("#welcome:not([hidden])");
  return page;
}

const own = (page) => page.$$eval("#messages .own .text", (elements) => elements.map((element) => element.textContent));

test("people whose names have a part in common are different people", async (test) => {
  const server = await Server.start(test);
  const names = ["Мария Petrova", "Иван Petrova", "Мария", "山田太郎", "نور", "Ann B", "ann-b"];
  const pages = [];
  for (const name of names) pages.push(await enter(test, server, name));
  for (const [index, page] of pages.entries()) {
    await say(page, `from ${names[index]}`);
    await waitForText(page, `from ${names[index]}`);
  }
  for (const [index, page] of pages.entries()) {
    for (const name of names) await waitForText(page, `from ${name}`);
    assert.deepEqual(await own(page), [`from ${names[index]}`]);
    assert.deepEqual(await page.$$eval("#messages .meta b", (elements) => elements.map((element) => element.textContent)), names);
    assert.equal(await page.textContent(".me-name b"), names[index]);
    assert.deepEqual(page.complaints, []);
  }
  const messages = (await server.history("lobby")).filter((message) => message.messageType === "TEXT");
  assert.deepEqual(messages.map((message) => message.username), names);
  assert.equal(new Set(messages.map((message) => message.userId)).size, names.length);
  // Whoever is added by name is who goes by that name.
  await pages[0].click("#people-button");
  await pages[0].waitForFunction((count) => document.querySelectorAll("#people li.here").length === count, names.length);
  const listed = await pages[0].$$eval("#people li .person", (elements) => elements.map((element) => element.textContent));
  assert.deepEqual([...listed].sort(), [...names].sort());
});

test("whoever writes under the name of somebody else is told from them", async (test) => {
  const server = await Server.start(test);
  const ada = await enter(test, server, "Ada");
  await say(ada, "it is me");
  const send = (message) => fetch(`${server.url}/v1/rooms/lobby/messages`, { method: "POST", body: JSON.stringify(message) });
  for (const message of [
    { userId: "eve", username: "Ada", message: "came", messageType: "JOIN" },
    { userId: "eve", username: "Ada", message: "no, me" },
  ]) assert.equal((await send(message)).status, 201);
  await waitForText(ada, "no, me");
  const heads = await ada.$$eval("#messages .meta", (elements) => elements.map((element) => [...element.children].slice(0, 2).map((child) => child.textContent)));
  assert.deepEqual(heads.map(([name]) => name), ["Ada", "Ada"]);
  assert.match(heads[0][1], /:/, "the time stands behind the name");
  assert.equal(heads[1][1].trim(), "eve");
  assert.match(await ada.locator("#messages .event").last().textContent(), /^Ada eve joined · /);
  await ada.waitForFunction(() => document.querySelector("[data-room=lobby] .room-last")?.textContent === "Ada (eve): no, me");
  assert.deepEqual(await tooWide(ada), []);
  assert.deepEqual(ada.complaints, []);
});

test("whoever takes a name in use is told, and may choose another", async (test) => {
  const server = await Server.start(test);
  const first = await enter(test, server, "نور");
  await say(first, "I was here first");
  await waitForText(first, "I was here first");
  const second = await door(test, server);
  await second.fill("#name", "  نور ");
  await second.press("#name", "Enter");
  await second.waitForSelector("#name-taken:not([hidden])");
  assert.match(await second.textContent("#name-taken"), /^Somebody called نور is here already\. .*choose another name/);
  assert.equal(await second.textContent("#come-in"), "Continue as نور");
  assert.ok(await second.isHidden("#app"));
  // Another name takes the notice away and comes in at once.
  await second.fill("#name", "نورا");
  assert.ok(await second.isHidden("#name-taken"));
  await second.press("#name", "Enter");
  await second.waitForSelector('body[data-connection="open"]');
  await join(second);
  assert.equal(await second.textContent(".me-name b"), "نورا");

  // Who went away is not forgotten, and who comes back may go on.
  await first.context().close();
  await second.waitForFunction(() => document.querySelector(".faces-label")?.textContent === "1 here");
  const third = await door(test, server);
  await third.fill("#name", "نور");
  await third.press("#name", "Enter");
  await third.waitForSelector("#name-taken:not([hidden])");
  assert.match(await third.textContent("#name-taken"), /was here before/);
  await third.click("#come-in");
  await third.waitForSelector('body[data-connection="open"]');
  await waitForText(third, "I was here first");
  assert.deepEqual(await own(third), ["I was here first"]);
  // The same window need not be asked again.
  await third.reload();
  await third.waitForSelector('body[data-connection="open"]');
});

test("who wrote through the API and is no member of anything is in use, too", async (test) => {
  const server = await Server.start(test);
  await server.fill("elsewhere", 3, () => "written by a program", ["robot"]);
  const page = await door(test, server);
  await page.fill("#name", "robot");
  await page.press("#name", "Enter");
  await page.waitForSelector("#name-taken:not([hidden])");
});

test("a name without anything to see is refused with a reason", async (test) => {
  const server = await Server.start(test);
  const page = await door(test, server);
  for (const nothing of ["\u200d\u200d", "\u202e"]) {
    await page.fill("#name", nothing);
    assert.match(await page.textContent("#name-hint"), /Use a letter, a digit or a sign/);
    await page.press("#name", "Enter");
    assert.ok(await page.isVisible("#welcome"));
  }
});

test("rooms have names in any script, and addresses that may say them", async (test) => {
  const server = await Server.start(test);
  const ada = await enter(test, server, "ada");
  for (const title of ["Кухня", "Кухня 2", "会議室"]) {
    await ada.keyboard.press("Control+k");
    await ada.keyboard.insertText(title);
    await ada.keyboard.press("Enter");
    await ada.click("#rooms-dialog .primary");
    await ada.waitForFunction((wanted) => document.getElementById("title")?.textContent === wanted, title);
    await join(ada);
    // The id, which says no more than the name, is not shown.
    await ada.waitForFunction(() => document.getElementById("subtitle")?.textContent === "1 member");
  }
  await say(ada, "in the meeting room");
  await waitForText(ada, "in the meeting room");
  const { rooms } = await (await fetch(`${server.url}/v1/rooms`)).json();
  const titles = Object.fromEntries(rooms.map((room) => [room.roomId, room.title]));
  for (const title of ["Кухня", "Кухня 2", "会議室"]) assert.equal(titles[idOf(title)], title);
  // A link that has the name leads to the same room.
  const bob = await window(browser, server, "bob", { room: encodeURIComponent("会議室") });
  test.after(() => bob.context().close());
  await waitForText(bob, "in the meeting room");
  // One that leads to a room nobody made yet keeps the name.
  await bob.goto(`${server.url}/#/${encodeURIComponent("Новая")}`);
  await bob.waitForFunction(() => document.getElementById("title")?.textContent === "Новая");
  await bob.click("#join-bar button");
  await bob.waitForSelector("#composer:not([hidden])");
  const made = await (await fetch(`${server.url}/v1/rooms/${idOf("Новая")}`)).json();
  assert.equal(made.title, "Новая");
  assert.deepEqual([ada.complaints, bob.complaints], [[], []]);
});

test("whoever makes a room of a name that is taken is led to that room", async (test) => {
  const server = await Server.start(test);
  await fetch(`${server.url}/v1/rooms/kitchen-1`, { method: "PUT", body: JSON.stringify({ title: "Кухня" }) });
  const ada = await enter(test, server, "ada");
  await ada.click("#new-room");
  await ada.fill("#rooms-dialog .search input", "Кухня");
  await ada.waitForFunction(() => document.querySelector("#rooms-dialog .hint")?.textContent === "There is a room of that name: choose it above.");
  assert.ok(await ada.isDisabled("#rooms-dialog .primary"));
  await ada.click("#rooms-dialog .room-list button");
  await ada.waitForFunction(() => location.hash === "#/kitchen-1");
  // One that is written almost alike is another room, and that is said.
  await ada.click("#new-room");
  await ada.fill("#rooms-dialog .search input", "кухня");
  await ada.waitForFunction(() => document.querySelector("#rooms-dialog .hint")?.textContent === "There is “Кухня”. This would be another room.");
  assert.ok(await ada.isEnabled("#rooms-dialog .primary"));
});

test("the chat page is no wider than a phone, whatever the font and the names", async (test) => {
  const server = await Server.start(test);
  const long = "Wolfeschlegelsteinhausenbergerdorffsenio";
  for (const font of FONTS) {
    const page = await enter(test, server, long, { viewport: { width: 390, height: 844 }, hasTouch: true, font });
    if (font === FONTS[0]) {
      await page.fill("#text", "https://example.org/".padEnd(300, "long"));
      await page.click("#send");
    }
    await page.waitForFunction(() => document.querySelector("#messages .text"));
    assert.deepEqual(await tooWide(page), [], `room, ${font}`);
    await page.click("#people-button");
    await page.waitForSelector("#people .person");
    assert.deepEqual(await tooWide(page), [], `people, ${font}`);
    await page.click('#people [aria-label="Close"]');
    await page.click("#back");
    await page.waitForSelector(".sidebar", { state: "visible" });
    assert.deepEqual(await tooWide(page), [], `rooms, ${font}`);
    await page.click("#new-room");
    await page.waitForSelector("#rooms-dialog[open] .room-list button");
    assert.deepEqual(await tooWide(page), [], `dialog, ${font}`);
    await page.context().close();
  }
  assert.equal((await server.history("lobby")).filter((message) => message.messageType === "TEXT").length, 1);
});
