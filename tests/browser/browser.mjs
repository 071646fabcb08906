/** Headless Chromium, or Firefox where FIREFOX_BIN names one, and what a person does with the page. */

import axe from "axe-core";
import { readFile } from "node:fs/promises";
import { chromium, firefox } from "playwright-core";

const EXECUTABLE = process.env.CHROMIUM_BIN ?? "/usr/bin/chromium";
const FIREFOX = process.env.FIREFOX_BIN;
/** Software rendering without a sandbox, and no word to anybody outside. */
const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
];

/** How long anything may take on a busy machine, in milliseconds; only for tests that would otherwise hang. */
export const PATIENCE = 120_000;

/** For tests of what is not to be had there. */
export const isFirefox = FIREFOX !== undefined;

/** `flags`: more of Chromium's. */
export function launch(flags = []) {
  // As people have it: spoken to by WebDriver BiDi, not a build of its own.
  if (FIREFOX) return firefox.launch({ channel: "moz-firefox", executablePath: FIREFOX });
  return chromium.launch({ executablePath: EXECUTABLE, args: [...FLAGS, ...flags] });
}

/** Cookies and storage of its own. `font`: declarations for everything on the page. */
export async function newContext(browser, { font, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  context.setDefaultTimeout(PATIENCE);
  if (process.env.HUBBUB_WEB) await fromFolder(context, process.env.HUBBUB_WEB);
  if (font) await withFont(context, font);
  return context;
}

/**
 * A window of somebody's own: cookies, storage, and everything the page complained about.
 * `options.opened` is called before anything is loaded.
 * @returns the page, with `complaints`
 */
export async function window(browser, server, name, options = {}) {
  const { room = "lobby", opened, ...rest } = options;
  const context = await newContext(browser, rest);
  const page = await context.newPage();
  await opened?.(page);
  page.complaints = [];
  page.on("pageerror", (error) => {
    // Firefox tells of the page's sockets like this, not on the console: of one that it could not open, and of one that was
    // being opened when the server went away.
    if (!(isFirefox && /can’t establish a connection|The connection to wss?:/.test(error.message))) page.complaints.push(error.message);
  });
  page.on("console", (entry) => {
    // Attempts to connect while the server is down are told of by the browser itself.
    if (entry.type() === "error" && !/net::ERR|WebSocket connection|Failed to load resource/.test(entry.text())) page.complaints.push(entry.text());
  });
  await page.goto(`${server.url}/#/${room}`);
  await page.fill("#name", name);
  await page.press("#name", "Enter");
  // A name that is in use is asked about. Whoever opens a second window means it.
  await page.waitForSelector('body[data-connection="open"], #name-taken:not([hidden])');
  if (await page.isVisible("#name-taken")) await page.press("#name", "Enter");
  await page.waitForSelector('body[data-connection="open"]');
  return page;
}

/** Somebody's window with the lobby open, and the composer ready, until the test ends. */
export async function enter(browser, test, server, name, options) {
  const page = await window(browser, server, name, options);
  test.after(() => page.context().close());
  await join(page);
  return page;
}

/** Connects at once rather than after a pause. */
export function connectNow(page) {
  return page.evaluate(() => globalThis.dispatchEvent(new Event("online")));
}

/** Declarations for everything on the page: what a machine's fonts may be like, narrow to wider than any. */
export const FONTS = [
  "", "font-family: serif", "font-family: monospace", 'font-family: "DejaVu Sans"', 'font-family: "Noto Sans"', 'font-family: "Liberation Sans Narrow"',
  'font-family: "DejaVu Sans Mono"; letter-spacing: .12em', "letter-spacing: .3em; word-spacing: .5em",
];

/** Loads the page's style sheet with another font at its end. */
async function withFont(context, font) {
  const important = font.split(";").map((declaration) => `${declaration} !important`).join(";");
  await context.route(/\/style\.css$/, async (route) => {
    const response = await route.fetch();
    const style = process.env.HUBBUB_WEB ? await readFile(`${process.env.HUBBUB_WEB}/style.css`, "utf8") : await response.text();
    await route.fulfill({ response, body: `${style}\n*, *::before, *::after { ${important} }` });
  });
}

/** What makes the page wider than the screen, if it is: the elements that reach beyond its edge, with their widths. */
export function tooWide(page) {
  return page.evaluate(() => {
    const width = globalThis.innerWidth;
    if (document.documentElement.scrollWidth <= width) return [];
    const beyond = [...document.querySelectorAll("body *")].filter((element) => element.getBoundingClientRect().right > width + 0.5);
    return [`${document.documentElement.scrollWidth} of ${width}`, ...beyond.slice(-5).map((element) => `${element.outerHTML.slice(0, 120)} ${element.getBoundingClientRect().right}`)];
  });
}

/** What axe finds serious or critical, one line each. */
export async function findings(page, scope) {
  if (!await page.evaluate(() => "axe" in globalThis)) await page.evaluate(axe.source);
  const violations = await page.evaluate(async (selector) => {
    const { violations } = await globalThis.axe.run(selector ?? document, { resultTypes: ["violations"] });
    return violations.map(({ id, impact, nodes }) => ({ id, impact, nodes: nodes.map(({ html, any }) => `${html.slice(0, 160)} ${any[0]?.message ?? ""}`) }));
  }, scope);
  return violations.filter(({ impact }) => ["serious", "critical"].includes(impact)).flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node}`));
}

/** The page's files from a folder instead of the binary: no build while working on them. */
async function fromFolder(context, folder) {
  // A page that does not come from the server may otherwise not open a socket to this machine.
  await context.grantPermissions(["local-network-access"]);
  await context.route(/\/web\/[0-9a-f]{16}\//, (route) => {
    const path = new URL(route.request().url()).pathname.replace(/^\/web\/[0-9a-f]{16}\//, "");
    return route.fulfill({ path: `${folder}/${path}` });
  });
  for (const [path, file] of [["/", "index.html"], ["/dashboard", "dashboard.html"], ["/docs", "docs.html"]]) {
    await context.route((url) => url.pathname === path, async (route) => {
      const response = await route.fetch();
      const [, version] = /"\/web\/([0-9a-f]{16})\//.exec(await response.text());
      const html = await readFile(`${folder}/${file}`, "utf8");
      return route.fulfill({ response, body: html.replaceAll('"/web/', `"/web/${version}/`) });
    });
  }
}

/**
 * Comes in by the door: joins the room that the address names if the page offers to. Before the page knows its rooms it
 * shows the composer to anybody, and until it has drawn another room it shows the one before.
 */
export async function join(page) {
  const isShown = () => {
    const room = document.getElementById("room");
    const isRoom = location.hash === `#/${room.dataset.shown}` && room.getAttribute("aria-busy") === "false";
    const isOffered = document.querySelector("#join-bar button") !== null;
    const isIn = !document.getElementById("composer").hidden;
    return isRoom && (isOffered ? "offered" : isIn && "in");
  };
  const shown = await page.waitForFunction(isShown);
  if (await shown.jsonValue() === "offered") await page.click("#join-bar button");
  await page.waitForSelector("#composer:not([hidden])");
}

export async function say(page, text) {
  await page.fill("#text", text);
  await page.press("#text", "Enter");
}

/** Texts on the screen, oldest first. */
export function texts(page) {
  return page.$$eval("#messages .text", (elements) => elements.map((element) => element.textContent));
}

export function waitForText(page, text) {
  return page.waitForFunction(
    (wanted) => [...document.querySelectorAll("#messages .text")].some((element) => element.textContent === wanted), text,
  );
}

/** Scrolls up until the room's beginning is on the screen. @returns texts seen, and the most elements at any time */
export async function scrollToTop(page) {
  const seen = new Set();
  let most = 0;
  await page.hover("#scroller");
  for (;;) {
    const state = await page.evaluate(() => ({
      texts: [...document.querySelectorAll("#messages .text")].map((element) => element.textContent),
      isTop: document.getElementById("top").textContent.startsWith("This is where") && document.getElementById("scroller").scrollTop < 5,
    }));
    for (const text of state.texts) seen.add(text);
    most = Math.max(most, state.texts.length);
    if (state.isTop) return { seen, most };
    await page.mouse.wheel(0, -1200);
    await page.waitForTimeout(16);
  }
}
