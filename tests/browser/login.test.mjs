/** The page and the client where the server asks for tokens. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { setImmediate } from "node:timers/promises";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import WebSocket from "ws";
import { Hubbub } from "../../web/hubbub.js";
import { join, launch, newContext, say, waitForText } from "./browser.mjs";
import { Server } from "./server.mjs";

const SECRET = "a secret of the tests, which is long enough";
const SETTINGS = { HUBBUB_AUTH_SECRET: SECRET, HUBBUB_AUTH_LEEWAY: "0s" };
const BINARY = process.env.HUBBUB_BIN ?? fileURLToPath(new URL("../../target/release/hubbub", import.meta.url));

const mint = (user, ...options) =>
  execFileSync(BINARY, ["token", "mint", "--user", user, ...options], { env: { PATH: process.env.PATH, HUBBUB_AUTH_SECRET: SECRET } })
    .toString().trim();
const everything = ["--rooms", "*=rwm", "--queues", "*=rw", "--kv", "=rw"];

let browser;
before(async () => { browser = await launch(); });
after(() => browser?.close());

test("page_login", async (test) => {
  const server = await Server.start(test, SETTINGS);
  const context = await newContext(browser);
  test.after(() => context.close());
  const page = await context.newPage();
  const complaints = [];
  page.on("pageerror", (error) => complaints.push(error.message));
  await page.goto(`${server.url}/#/lobby`);
  await page.waitForSelector("#token-form", { state: "visible" });
  // What is no token is refused, and said so.
  await page.fill("#token", "not-a-token");
  await page.click("#token-form button");
  await page.waitForFunction(() => document.getElementById("token-hint").textContent.includes("does not take"));
  await page.fill("#token", mint("ada", "--for", "12s", ...everything));
  await page.click("#token-form button");
  await page.waitForSelector("#app", { state: "visible" });
  await join(page);
  await say(page, "with a token");
  await waitForText(page, "with a token");
  // It is nowhere but in this tab.
  assert.equal(await page.evaluate(() => localStorage.getItem("hubbub.token")), null);
  assert.ok(!page.url().includes("token"));
  assert.equal(await page.evaluate(() => document.cookie), "");
  // It ends: the page asks for another one, and goes on where it was.
  await page.waitForSelector("#token-form", { state: "visible", timeout: 30_000 });
  await page.fill("#token", mint("ada", ...everything));
  await page.click("#token-form button");
  await page.waitForSelector("#app", { state: "visible" });
  await say(page, "with another one");
  await waitForText(page, "with another one");
  const history = await fetch(`${server.url}/v1/rooms/lobby/messages`, { headers: { authorization: `Bearer ${mint("root", "--admin")}` } });
  const said = (await history.json()).messages.filter((message) => message.messageType === "TEXT");
  assert.deepEqual(said.map(({ userId, message }) => [userId, message]), [["ada", "with a token"], ["ada", "with another one"]]);
  assert.deepEqual(complaints, []);
});

test("the client takes a token, and another one on the open socket", async (test) => {
  const server = await Server.start(test, SETTINGS);
  const short = mint("ada", "--for", "4s", ...everything);
  const client = new Hubbub({ url: server.url, WebSocket, token: short });
  test.after(() => client.close());
  client.connect();
  assert.ok((await client.send("lobby", "first").done).seq >= 1);
  client.setToken(mint("ada", ...everything));
  // Until the first token has ended.
  while ((await fetch(`${server.url}/v1/auth/me`, { headers: { authorization: `Bearer ${short}` } })).ok) await setImmediate();
  assert.ok((await client.send("lobby", "second").done).seq >= 2);
  assert.equal(client.connection.state, "open");
});
