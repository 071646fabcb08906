/** The chat page in headless Chromium, against the real server. */

import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import { join as path } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { connectNow, enter as enterWith, isFirefox, join, launch, say, scrollToTop, texts, waitForText, window } from "./browser.mjs";
import { Server } from "./server.mjs";

let browser;
before(async () => { browser = await launch(); });
after(() => browser?.close());

const enter = (...who) => enterWith(browser, ...who);

const spoken = (messages) => messages.filter((message) => message.messageType === "TEXT").map((message) => message.message);
const range = (count) => Array.from({ length: count }, (_, index) => index + 1);

test("two windows talk", async (test) => {
  const server = await Server.start(test);
  const ada = await enter(test, server, "Ada Lovelace");
  const bob = await enter(test, server, "Bob");
  await say(ada, "hello Bob");
  await waitForText(bob, "hello Bob");
  await say(bob, "hello Ada");
  // In the window of whoever wrote it a message is among the others once its acknowledgement has come, perhaps later.
  for (const page of [ada, bob]) await waitForText(page, "hello Ada");
  assert.deepEqual(await texts(ada), ["hello Bob", "hello Ada"]);
  assert.deepEqual(await texts(bob), ["hello Bob", "hello Ada"]);
  assert.equal(await bob.textContent("#messages .meta b"), "Ada Lovelace");
  // Durable, said to whoever wrote it and to nobody else.
  await ada.waitForSelector("#messages .mark.durable");
  assert.equal(await ada.locator("#messages .mark.durable").count(), 1);
  assert.deepEqual([ada.complaints, bob.complaints], [[], []]);
});

test("the server is killed and restarted under two windows, and both end with the same full history", async (test) => {
  const server = await Server.start(test);
  const pages = [await enter(test, server, "ada"), await enter(test, server, "bob")];
  let said = 0;
  for (let round = 0; round < 3; round++) {
    for (let n = 0; n < 4; n++) await say(pages[n % 2], `message ${++said}`);
    await server.kill();
    for (let n = 0; n < 4; n++) await say(pages[n % 2], `message ${++said}`);
    await server.up();
    for (const page of pages) await connectNow(page);
  }
  const wanted = range(said).map((n) => `message ${n}`).sort();
  for (const page of pages) {
    await page.waitForFunction((count) => document.querySelectorAll("#messages .text").length === count, said);
    await page.waitForFunction(() => document.querySelectorAll("#pending > *").length === 0);
  }
  const stored = spoken(await server.history("lobby"));
  assert.deepEqual([...stored].sort(), wanted);
  for (const page of pages) {
    assert.deepEqual(await texts(page), stored);
    assert.deepEqual(page.complaints, []);
  }
  // What one window said is in the order it was said.
  for (const own of [0, 1]) {
    const numbers = stored.map((text) => Number(text.split(" ")[1])).filter((n) => n % 2 !== own);
    assert.deepEqual(numbers, [...numbers].sort((a, b) => a - b));
  }
});

test("a message typed while offline arrives once, also when the page is loaded again", async (test) => {
  const server = await Server.start(test);
  const page = await enter(test, server, "ada");
  await say(page, "before");
  await waitForText(page, "before");
  await server.kill();
  await page.waitForSelector("#banner:not([hidden])");
  await say(page, "while offline");
  await page.waitForSelector('#pending [data-state="queued"]');
  assert.match(await page.textContent("#banner"), /Your message goes out when it is back/);
  await server.up();
  await page.reload();
  await waitForText(page, "while offline");
  await page.waitForFunction(() => document.querySelectorAll("#pending > *").length === 0);
  assert.deepEqual(spoken(await server.history("lobby")), ["before", "while offline"]);
});

test("a refused message says why, and can be tried again or given up", async (test) => {
  const server = await Server.start(test);
  const page = await enter(test, server, "ada");
  await server.kill();
  await server.up({ HUBBUB_LIMITS_MESSAGE_BYTES: "30" });
  const long = "a text that this server finds too long to keep";
  await say(page, long);
  await say(page, "short enough");
  await say(page, `${long}, and another`);
  await waitForText(page, "short enough");
  await page.waitForFunction(() => document.querySelectorAll("#pending .failure").length === 2);
  assert.match(await page.textContent("#pending .failure"), /Not sent: message must/);
  await page.locator("#pending .row").nth(1).getByText("Discard").click();
  await server.kill();
  await server.up();
  await connectNow(page);
  await page.locator("#pending .row").first().getByText("Try again").click();
  await waitForText(page, long);
  await page.waitForFunction(() => document.querySelectorAll("#pending > *").length === 0);
  assert.deepEqual(spoken(await server.history("lobby")), ["short enough", long]);
});

test("history read before the live messages begin leaves no gap", { skip: isFirefox && "frames are not shown there" }, async (test) => {
  const server = await Server.start(test);
  const page = await enter(test, server, "ada");
  await say(page, "first");
  await waitForText(page, "first");
  let isPosted;
  const posted = new Promise((resolve) => { isPosted = resolve; });
  const followed = new Promise((resolve) => {
    page.on("websocket", (socket) => socket.on("framereceived", ({ payload }) => {
      if (String(payload).includes('"type":"subscribed"')) resolve();
    }));
  });
  // Where the rooms stand is asked after the message came, and what they hold was read before.
  await page.route(/messages\?limit=1$|\/users\//, async (route) => {
    await posted;
    await route.continue();
  });
  await page.route(/messages\?limit=100$/, async (route) => {
    const response = await route.fetch();
    await fetch(`${server.url}/v1/rooms/lobby/messages`, { method: "POST", body: JSON.stringify({ userId: "bob", message: "in between" }) });
    isPosted();
    await followed;
    await route.fulfill({ response });
  }, { times: 1 });
  await page.reload();
  await waitForText(page, "in between");
  assert.deepEqual(await texts(page), ["first", "in between"]);
});

test("script in a message stays text", async (test) => {
  const server = await Server.start(test);
  const page = await enter(test, server, "ada");
  const evil = [
    `<script>window.pwned = 1</script>`, `<img src=x onerror="window.pwned = 1">`, `"><svg onload=window.pwned=1>`,
    `javascript:window.pwned=1`, `https://example.org/"onmouseover="window.pwned=1`, `\u202e<b>bold</b>`,
  ];
  for (const text of evil) await say(page, text);
  // Before another connection sends anything.
  await page.waitForFunction((count) => document.querySelectorAll("#messages .text").length === count
    && document.getElementById("pending").childElementCount === 0, evil.length);
  const everywhere = { userId: "mallory", username: `<img src=x onerror="window.pwned=1">`, message: evil[1], messageId: "m1" };
  await fetch(`${server.url}/v1/rooms/lobby/messages`, { method: "POST", body: JSON.stringify(everywhere) });
  await page.waitForFunction((count) => document.querySelectorAll("#messages .text").length === count, evil.length + 1);
  assert.deepEqual(await texts(page), [...evil, evil[1]]);
  assert.equal(await page.evaluate(() => window.pwned), undefined);
  assert.equal(await page.locator("#messages img, #messages script, #messages .text > svg, #messages .text b").count(), 0);
  assert.deepEqual(await page.$$eval("#messages a", (links) => links.map((link) => new URL(link.href).origin)), ["https://example.org"]);
  // The policy would refuse it even if the page did make an element of it.
  await page.evaluate(() => {
    const attempts = [
      () => { document.body.innerHTML += "<img src=x onerror='window.pwned = 1'>"; },
      () => { document.createElement("img").setAttribute("onerror", "window.pwned = 1"); },
      () => {
        const script = document.createElement("script");
        script.append("window.pwned = 1");
        document.body.append(script);
      },
    ];
    for (const attempt of attempts) try { attempt(); } catch { /* refused, as it should be */ }
  });
  // One more of them, made last, has failed to load: so have the others.
  await page.evaluate(() => new Promise((done) => {
    const image = document.createElement("img");
    image.addEventListener("error", done);
    image.src = "x";
    document.body.append(image);
  }));
  assert.equal(await page.evaluate(() => window.pwned), undefined);
});

test("older messages come while scrolling up, all of them, and elements stay few", async (test) => {
  const server = await Server.start(test);
  const page = await enter(test, server, "dora");
  await server.fill("lobby", 4_000);
  await waitForText(page, "message 4000");
  const { seen, most } = await scrollToTop(page);
  assert.ok(most <= 400, `${most} elements`);
  const missing = range(4_000).filter((n) => !seen.has(`message ${n}`));
  assert.deepEqual(missing, []);
  // And back to the end with one key.
  await page.keyboard.press("Control+End");
  await waitForText(page, "message 4000");
  await say(page, "at the end again");
  await waitForText(page, "at the end again");
  assert.deepEqual(page.complaints, []);
});

test("whoever scrolled up stays there, and is told what came", async (test) => {
  const server = await Server.start(test);
  const page = await enter(test, server, "dora");
  await server.fill("lobby", 300);
  await waitForText(page, "message 300");
  await page.hover("#scroller");
  await page.mouse.wheel(0, -1500);
  await page.waitForSelector("#to-bottom:not([hidden])");
  const topOf = () => page.evaluate(() => {
    const edge = document.getElementById("scroller").getBoundingClientRect().top;
    const row = [...document.querySelectorAll("#messages > *")].find((each) => each.getBoundingClientRect().bottom > edge + 60);
    return [row.dataset.seq, Math.round(row.getBoundingClientRect().top)];
  });
  // Scrolling is animated: it is over when the same stands at the same place for many frames.
  await page.evaluate(() => new Promise((done) => {
    const scroller = document.getElementById("scroller");
    let [top, height, frames] = [NaN, NaN, 0];
    const look = () => {
      frames = scroller.scrollTop === top && scroller.scrollHeight === height ? frames + 1 : 0;
      [top, height] = [scroller.scrollTop, scroller.scrollHeight];
      if (frames < 30) requestAnimationFrame(look);
      else done();
    };
    look();
  }));
  const before = await topOf();
  await server.fill("lobby", 50, (n) => `later ${n}`);
  await page.waitForFunction(() => document.getElementById("to-bottom")?.textContent === "50 new");
  assert.deepEqual(await topOf(), before);
  await page.click("#to-bottom");
  await waitForText(page, "later 50");
  await page.waitForSelector("#to-bottom", { state: "hidden" });
});

test("a room with more unread than fits begins where reading stopped", async (test) => {
  const server = await Server.start(test);
  const page = await enter(test, server, "ada");
  await say(page, "I am off for tea");
  await waitForText(page, "I am off for tea");
  await page.evaluate(() => { location.hash = "#/tea"; });
  await server.fill("lobby", 400);
  await page.waitForFunction(() => document.querySelector("[data-room=lobby] .unread")?.textContent === "400");
  await page.click("[data-room=lobby]");
  const line = await page.waitForSelector(".new");
  assert.ok(await line.isVisible());
  const { y } = await line.boundingBox();
  assert.ok(y > 60 && y < 400, `the line is at ${y}`);
  assert.equal(await page.textContent("#to-bottom"), "400 new");
  await page.keyboard.press("Control+End");
  await waitForText(page, "message 400");
  await page.waitForFunction(() => document.querySelector("[data-room=lobby] .unread")?.textContent === "");
});

test("a window that was hidden shows the newest when it is seen again", async (test) => {
  const server = await Server.start(test);
  const page = await enter(test, server, "dora");
  await say(page, "before");
  await waitForText(page, "before");
  // A hidden page gets no frames.
  await page.evaluate(() => {
    const real = window.requestAnimationFrame;
    const held = [];
    window.requestAnimationFrame = (callback) => held.push(callback);
    window.show = () => {
      window.requestAnimationFrame = real;
      held.forEach((callback) => real(callback));
    };
  });
  await server.fill("lobby", 4_000);
  await page.waitForFunction(() => document.querySelector("[data-room=lobby] .room-last")?.textContent.endsWith("message 4000"));
  await page.evaluate(() => window.show());
  await waitForText(page, "message 4000");
  assert.ok((await texts(page)).length <= 400);
  assert.deepEqual(page.complaints, []);
});

test("rooms are found, made and left; unread is counted until it is read", { skip: isFirefox && "one window has the focus there" }, async (test) => {
  const server = await Server.start(test);
  const ada = await enter(test, server, "ada");
  await ada.keyboard.press("Control+k");
  await ada.keyboard.type("Tea time");
  await ada.keyboard.press("Enter");
  await ada.click("#rooms-dialog .primary");
  await ada.waitForFunction(() => location.hash === "#/Tea--time");
  await join(ada);
  const bob = await enter(test, server, "bob", { room: "Tea--time" });
  await ada.keyboard.press("Alt+ArrowDown");
  await ada.waitForFunction(() => location.hash === "#/lobby");
  await say(bob, "one");
  await say(bob, "two");
  await ada.waitForFunction(() => document.querySelector("[data-room=Tea--time] .unread")?.textContent >= "2");
  await ada.click("[data-room=Tea--time]");
  await waitForText(ada, "two");
  await ada.waitForSelector("[data-room=Tea--time] .unread", { state: "hidden" });
  assert.deepEqual(ada.complaints, []);
});

test("the page is cached by name, and asked about otherwise", async (test) => {
  const server = await Server.start(test);
  const page = await fetch(`${server.url}/`);
  assert.equal(page.headers.get("cache-control"), "no-cache");
  assert.match(page.headers.get("content-security-policy"), /default-src 'none'/);
  assert.doesNotMatch(page.headers.get("content-security-policy"), /unsafe/);
  assert.equal(page.headers.get("x-content-type-options"), "nosniff");
  assert.equal(page.headers.get("referrer-policy"), "no-referrer");
  const tag = page.headers.get("etag");
  const again = await fetch(`${server.url}/`, { headers: { "if-none-match": tag } });
  assert.equal(again.status, 304);
  const [, script] = /src="(\/web\/[0-9a-f]+\/app\/main.js)"/.exec(await page.text());
  const named = await fetch(server.url + script);
  assert.equal(named.headers.get("content-type"), "text/javascript; charset=utf-8");
  assert.match(named.headers.get("cache-control"), /immutable/);
  const unnamed = await fetch(`${server.url}/web/hubbub.js`);
  assert.deepEqual([unnamed.status, unnamed.headers.get("cache-control")], [200, "no-cache"]);
  // A page of a server of another version, while they are replaced.
  const other = await fetch(`${server.url}/web/0123456789abcdef/app/main.js`);
  assert.deepEqual([other.status, other.headers.get("cache-control")], [200, "no-cache"]);
  assert.equal((await fetch(`${server.url}/web/../Cargo.toml`)).status, 404);
  // The binary has every file there is.
  const folder = fileURLToPath(new URL("../../web/", import.meta.url));
  for (const file of await readdir(folder, { recursive: true })) {
    if (!file.includes(".") || file.endsWith(".html")) continue;
    assert.equal(await (await fetch(`${server.url}/web/${file}`)).text(), await readFile(path(folder, file), "utf8"), file);
  }
  assert.equal((await fetch(`${server.url}/`, { method: "POST" })).status, 405);
});

test("the page on a phone, and its picture for the README", { skip: isFirefox && "nothing is tapped there" }, async (test) => {
  const server = await Server.start(test);
  await furnish(server);
  const ada = await enter(test, server, "Ada Lovelace");
  for (const room of ["garden", "operations", "coffee", "release-week"]) {
    await ada.evaluate((room) => { location.hash = `#/${room}`; }, room);
    await join(ada);
  }
  await ada.click("[data-room=lobby]");
  const phone = await enter(test, server, "Mira Okafor", { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true });
  const grace = await enter(test, server, "Grace Hopper");
  await converse(server);
  await say(ada, "Agreed: calm, and honest.");
  await ada.waitForSelector("#messages .row:last-child .mark.durable");
  await grace.type("#text", "Then");
  if (process.env.HUBBUB_PICTURE) {
    await ada.mouse.move(700, 760);
    await ada.waitForTimeout(1000);
    await ada.screenshot({ path: path(process.env.HUBBUB_PICTURE) });
  }
  assert.equal(await phone.isVisible(".sidebar"), false);
  assert.equal(await phone.evaluate(() => document.documentElement.scrollWidth), 390);
  await waitForText(phone, "Agreed: calm, and honest.");
  await phone.tap("#back");
  await phone.waitForSelector(".sidebar", { state: "visible" });
  assert.equal(await phone.isVisible("#room"), false);
  await phone.tap("[data-room=lobby]");
  await waitForText(phone, "Agreed: calm, and honest.");
  assert.deepEqual([ada.complaints, phone.complaints, grace.complaints], [[], [], []]);
});

const PEOPLE = { "mira-okafor": "Mira Okafor", "grace-hopper": "Grace Hopper", "linus-berg": "Linus Berg", bob: "Bob" };

async function post(server, room, userId, message) {
  const body = JSON.stringify({ userId, username: PEOPLE[userId], message });
  const response = await fetch(`${server.url}/v1/rooms/${room}/messages`, { method: "POST", body });
  assert.equal(response.status, 201);
}

/** Rooms with a name and a first message. */
async function furnish(server) {
  const rooms = {
    lobby: ["Lobby", "Good morning everybody 🌱"], garden: ["Community garden", "The tomatoes are in."],
    operations: ["Operations", "Quiet night."], coffee: ["Coffee corner", "Who is in?"], "release-week": ["Release week", "Freeze is at noon."],
  };
  for (const [room, [title, message]] of Object.entries(rooms)) {
    await fetch(`${server.url}/v1/rooms/${room}`, { method: "PUT", body: JSON.stringify({ title }) });
    await post(server, room, "mira-okafor", message);
  }
}

async function converse(server) {
  const lines = [
    ["coffee", "bob", "New beans have arrived ☕"],
    ["garden", "linus-berg", "I can water on Thursday."],
    ["garden", "bob", "And I on Friday."],
    ["operations", "grace-hopper", "Backup verified: 4.9 million messages, no difference."],
    ["release-week", "linus-berg", "Two small ones are open, both reviewed."],
    ["release-week", "grace-hopper", "Then we are on time."],
    ["release-week", "bob", "Cake at four."],
    ["lobby", "grace-hopper", "Morning! Did the night shift leave us anything?"],
    ["lobby", "linus-berg", "One machine lost power at 03:12."],
    ["lobby", "linus-berg", "It came back by itself. Nothing that was acknowledged is missing, I counted."],
    ["lobby", "bob", "My notes are at https://example.org/notes/power-loss, worth a read."],
    ["lobby", "grace-hopper", "Then let us talk about what people see while the connection is gone:\n– what they wrote stays on the screen\n– it says that it is waiting\n– and it is sent in order, once"],
    ["lobby", "mira-okafor", "And no red boxes, please."],
  ];
  for (const [room, userId, message] of lines) await post(server, room, userId, message);
}
