/** Name and password at the door, one's own logins, and those that the administrator sees. */

import assert from "node:assert/strict";
import axe from "axe-core";
import { execFileSync } from "node:child_process";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { join, launch, newContext, say, tooWide, waitForText } from "./browser.mjs";
import { Server } from "./server.mjs";

const SECRET = "a secret of the tests, which is long enough";
const SETTINGS = { HUBBUB_AUTH_SECRET: SECRET, HUBBUB_AUTH_ACCOUNTS: "true" };
const BINARY = process.env.HUBBUB_BIN ?? fileURLToPath(new URL("../../target/release/hubbub", import.meta.url));
const PASSWORD = "twelve small penguins";
const SIZES = { desktop: { viewport: { width: 1280, height: 800 } }, phone: { viewport: { width: 390, height: 844 }, hasTouch: true } };

let browser;
let admin;
before(async () => {
  browser = await launch();
  const minted = ["token", "mint", "--user", "root", "--admin"];
  admin = execFileSync(BINARY, minted, { env: { PATH: process.env.PATH, HUBBUB_AUTH_SECRET: SECRET } }).toString().trim();
});
after(() => browser?.close());

async function add(server, user, rights = {}) {
  const made = await fetch(`${server.url}/v1/auth/accounts`, {
    method: "POST", headers: { authorization: `Bearer ${admin}` }, body: JSON.stringify({ user, password: PASSWORD, ...rights }),
  });
  assert.equal(made.status, 201);
}

/** In a browser of its own, or as another tab of one. */
async function open(test, server, path, options = {}, context = undefined) {
  if (context === undefined) {
    context = await newContext(browser, options);
    test.after(() => context.close());
  }
  const page = await context.newPage();
  page.complaints = [];
  page.on("pageerror", (error) => page.complaints.push(error.message));
  await page.goto(`${server.url}${path}`);
  await page.waitForSelector("#password-form", { state: "visible" });
  return page;
}

/** By keyboard alone: the name has the focus, or if it is there already, the password. */
async function logIn(page, user, password = PASSWORD) {
  await page.waitForFunction(() => /^login-/.test(document.activeElement.id));
  if (await page.inputValue("#login-user") === "") {
    await page.keyboard.type(user);
    await page.keyboard.press("Tab");
  }
  assert.equal(await page.inputValue("#login-user"), user);
  await page.keyboard.type(password);
  await page.keyboard.press("Enter");
}

const saysHint = (page, text) => page.waitForFunction((wanted) => document.getElementById("password-hint").textContent.includes(wanted), text);

const isIn = (page) => page.waitForSelector('body[data-connection="open"]');

/** What axe finds serious or critical. */
async function findings(page) {
  if (!await page.evaluate(() => "axe" in globalThis)) await page.evaluate(axe.source);
  const violations = await page.evaluate(async () => (await globalThis.axe.run(document, { resultTypes: ["violations"] })).violations);
  return violations.filter(({ impact }) => ["serious", "critical"].includes(impact)).map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 160))}`);
}

test("page_login with name and password", async (test) => {
  const server = await Server.start(test, SETTINGS);
  await add(server, "ada");
  await fetch(`${server.url}/v1/rooms/lobby`, { method: "PUT", headers: { authorization: `Bearer ${admin}` } });
  const page = await open(test, server, "/#/lobby");
  await logIn(page, "ada", "not the right one");
  await saysHint(page, "The name or the password is wrong.");
  assert.equal(await page.inputValue("#login-password"), "");
  await page.waitForFunction(() => document.activeElement.id === "login-password");
  await page.keyboard.type(PASSWORD);
  await page.keyboard.press("Enter");
  await isIn(page);
  await join(page);
  await say(page, "with a password");
  await waitForText(page, "with a password");
  // Reloaded, one is still in; nothing is where scripts of others, or the address, could show it.
  await page.reload();
  await isIn(page);
  assert.equal(await page.evaluate(() => document.cookie), "");
  assert.deepEqual(await page.evaluate(() => Object.keys(localStorage).filter((key) => /token/.test(key))), []);
  // Logged out, the token is worth nothing, and neither is the cookie.
  const token = await page.evaluate(() => sessionStorage.getItem("hubbub.token"));
  await page.click('#me [aria-label="Log out"]');
  await page.waitForSelector("#password-form", { state: "visible" });
  assert.equal((await fetch(`${server.url}/v1/auth/me`, { headers: { authorization: `Bearer ${token}` } })).status, 401);
  assert.deepEqual((await page.context().cookies()).filter(({ value }) => value !== ""), []);
  // A token is still good for coming in.
  await page.click("#use-token");
  await page.fill("#token", admin);
  await page.click("#token-form button.primary");
  await page.waitForSelector("#name", { state: "visible" });
  assert.deepEqual(page.complaints, []);
});

test("who may write, but not manage rooms, makes the lobby of a new server", async (test) => {
  const server = await Server.start(test, SETTINGS);
  await add(server, "ada");
  const page = await open(test, server, "/");
  await logIn(page, "ada");
  await isIn(page);
  await page.click("#join-lobby");
  await page.waitForSelector("#composer:not([hidden])");
  await say(page, "first");
  await waitForText(page, "first");
  assert.deepEqual(page.complaints, []);
});

test("a login is of one tab", async (test) => {
  const server = await Server.start(test, SETTINGS);
  for (const [user, rights] of [["ada", {}], ["bob", {}], ["root", { admin: true }]]) await add(server, user, rights);
  const first = await open(test, server, "/");
  await logIn(first, "ada");
  await isIn(first);
  const tab = (path) => open(test, server, path, {}, first.context());
  // Another tab is at the door, and can be somebody else.
  const second = await tab("/");
  await logIn(second, "bob");
  await isIn(second);
  assert.equal(await second.textContent("#me .me-name b"), "bob");
  // So is the dashboard's.
  const dashboard = await tab("/dashboard");
  await logIn(dashboard, "root");
  await dashboard.waitForSelector("#live:not(.waiting)");
  const third = await tab("/");
  await third.close();
  // Who logs out is at the door and stays there, and the others stay in.
  await second.click('#me [aria-label="Log out"]');
  await second.waitForSelector("#password-form", { state: "visible" });
  await second.reload();
  await second.waitForSelector("#password-form", { state: "visible" });
  await first.reload();
  await isIn(first);
  assert.equal(await first.textContent("#me .me-name b"), "ada");
  await first.close();
  const again = await tab("/");
  assert.deepEqual([first, second, dashboard, again].flatMap((page) => page.complaints), []);
});

test("logging out is told when it fails, and can be tried again", async (test) => {
  const server = await Server.start(test, SETTINGS);
  await add(server, "ada");
  const page = await open(test, server, "/");
  await logIn(page, "ada");
  await isIn(page);
  const token = () => page.evaluate(() => sessionStorage.getItem("hubbub.token"));
  const login = await token();
  const isGood = async () => (await fetch(`${server.url}/v1/auth/me`, { headers: { authorization: `Bearer ${login}` } })).status === 200;
  const leave = async () => {
    const asked = page.waitForEvent("dialog");
    // The click returns when the dialog is gone.
    const clicked = page.click('#me [aria-label="Log out"]');
    const dialog = await asked;
    const said = dialog.message();
    await dialog.accept();
    await clicked;
    return said;
  };
  const detail = "too many requests; try again in 2 s";
  await page.route("**/v1/auth/session", (route) => route.fulfill({ status: 429, contentType: "application/problem+json",
    body: JSON.stringify({ title: "Too many requests", status: 429, detail, code: "too_many_requests", retryable: true }) }));
  assert.equal(await leave(), `You are still logged in: ${detail}`);
  await page.unroute("**/v1/auth/session");
  await page.route("**/v1/auth/session", (route) => route.abort());
  assert.equal(await leave(), "You are still logged in: The server cannot be reached. Try again in a moment.");
  await page.unroute("**/v1/auth/session");
  assert.equal(await token(), login);
  await isIn(page);
  assert.ok(await isGood());
  await page.click('#me [aria-label="Log out"]');
  await page.waitForSelector("#password-form", { state: "visible" });
  assert.ok(!await isGood());
  assert.deepEqual(page.complaints, []);
});

test("whoever tries too often is told so", async (test) => {
  // A minute to earn one more.
  const server = await Server.start(test, { ...SETTINGS, HUBBUB_AUTH_LOGIN_ATTEMPTS: "1" });
  await add(server, "ada");
  const page = await open(test, server, "/");
  await logIn(page, "ada", "wrong");
  await saysHint(page, "The name or the password is wrong.");
  await logIn(page, "ada");
  await saysHint(page, "Too many attempts. Try again in");
  assert.deepEqual(page.complaints, []);
});

test("one's own logins and password", async (test) => {
  const server = await Server.start(test, SETTINGS);
  await add(server, "ada");
  const [page, other, third] = [await open(test, server, "/"), await open(test, server, "/"), await open(test, server, "/")];
  for (const one of [page, other, third]) {
    await logIn(one, "ada");
    await isIn(one);
  }
  await page.click("#account");
  const logins = (count) => page.waitForFunction((wanted) => document.querySelectorAll("#account-dialog .logins li").length === wanted, count);
  await logins(3);
  assert.equal(await page.locator("#account-dialog .logins em").count(), 1, "this one has no button");
  await page.click("#account-dialog .logins button >> nth=0");
  await logins(2);
  // Its page is at the door again, within moments.
  await Promise.race([other, third].map((one) => one.waitForSelector("#password-form", { state: "visible" })));
  await page.fill("#current-password", "not the right one");
  await page.fill("#new-password", "thirteen tall herons");
  await page.press("#new-password", "Enter");
  const hint = (text) => page.waitForFunction((wanted) => document.querySelector("#change-password .hint").textContent.includes(wanted), text);
  await hint("current password is wrong");
  await page.fill("#current-password", PASSWORD);
  await page.press("#current-password", "Enter");
  await hint("Changed.");
  await logins(1);
  await Promise.all([other, third].map((one) => one.waitForSelector("#password-form", { state: "visible" })));
  // One goes on where the password was changed; elsewhere only the new one is good.
  await page.keyboard.press("Escape");
  await isIn(page);
  await logIn(other, "ada", "thirteen tall herons");
  await other.waitForSelector("#app", { state: "visible" });
  assert.deepEqual([page, other, third].flatMap((one) => one.complaints), []);
});

test("the administrator sees and ends logins on the dashboard", async (test) => {
  const server = await Server.start(test, SETTINGS);
  await add(server, "ada");
  await add(server, "root", { admin: true });
  const ada = await open(test, server, "/");
  await logIn(ada, "ada");
  await isIn(ada);
  const page = await open(test, server, "/dashboard");
  await logIn(page, "ada");
  await page.waitForSelector("#turned-away", { state: "visible" });
  assert.match(await page.textContent("#turned-away .lead"), /^ada is not an administrator/);
  await page.click("#change-user");
  await logIn(page, "root");
  await page.waitForSelector("#logins tr[data-login]");
  assert.deepEqual(await page.$$eval("#logins tr[data-login] bdi", (names) => names.map((name) => name.textContent)), ["ada", "root"]);
  page.once("dialog", (dialog) => dialog.accept());
  await page.click('#logins button[aria-label^="Log out ada"]');
  await page.waitForFunction(() => document.querySelectorAll("#logins tr[data-login]").length === 1);
  await ada.waitForSelector("#password-form", { state: "visible" });
  assert.deepEqual([...page.complaints, ...ada.complaints], []);
  // On the chat page an administrator's account has its own name.
  const chat = await open(test, server, "/");
  await logIn(chat, "root");
  await isIn(chat);
  assert.equal(await chat.textContent("#me .me-name b"), "root");
  assert.ok(await chat.isVisible("#dashboard"));
});

test("who is no administrator stays logged in, is told so in words, and offered nothing in vain", async (test) => {
  const server = await Server.start(test, SETTINGS);
  await add(server, "ada");
  await add(server, "root", { admin: true });
  const page = await open(test, server, "/");
  await logIn(page, "ada");
  await isIn(page);
  await page.click("#browse");
  await page.fill("#rooms-dialog input:not([type=checkbox])", "Quiet Corner");
  await page.click("#rooms-dialog .primary");
  await page.waitForFunction(() => /^You may not make this room\./.test(document.querySelector("#rooms-dialog .hint").textContent));
  await page.keyboard.press("Escape");
  await page.click('a[href="#queues"]');
  await page.waitForSelector("#queues .empty:not([hidden])");
  assert.equal(await page.locator("#new-queue").count(), 0);
  await page.goto(`${server.url}/dashboard`);
  await page.waitForSelector("#turned-away", { state: "visible" });
  assert.match(await page.textContent("#turned-away .lead"), /^ada is not an administrator/);
  assert.deepEqual(await findings(page), []);
  await page.click("#turned-away a");
  await isIn(page);
  assert.equal(await page.textContent("#me .me-name b"), "ada");
  assert.deepEqual(page.complaints, []);
  const administrator = await open(test, server, "/#queues");
  await logIn(administrator, "root");
  await administrator.waitForSelector("#new-queue");
});

for (const [size, options] of Object.entries(SIZES)) {
  for (const colorScheme of ["light", "dark"]) {
    test(`axe finds nothing serious where people log in, ${size}, ${colorScheme}`, async (test) => {
      const server = await Server.start(test, SETTINGS);
      await add(server, "ada");
      await add(server, "root", { admin: true });
      const page = await open(test, server, "/", { ...options, colorScheme, bypassCSP: true, reducedMotion: "reduce" });
      assert.deepEqual(await findings(page), [], "the door");
      assert.deepEqual(await tooWide(page), []);
      await logIn(page, "ada", "wrong");
      await saysHint(page, "wrong.");
      assert.deepEqual(await findings(page), [], "a wrong password");
      await page.fill("#login-password", PASSWORD);
      await page.press("#login-password", "Enter");
      await isIn(page);
      await page.click("#account");
      await page.waitForSelector("#account-dialog .logins li");
      assert.deepEqual(await findings(page), [], "one's account");
      assert.deepEqual(await tooWide(page), []);
      const dashboard = await open(test, server, "/dashboard", { ...options, colorScheme, bypassCSP: true });
      await logIn(dashboard, "root");
      await dashboard.waitForSelector("#logins tr[data-login]");
      assert.deepEqual(await findings(dashboard), [], "the dashboard");
      assert.deepEqual(await tooWide(dashboard), []);
    });
  }
}
