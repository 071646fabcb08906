/** Headless Chromium, and what a person does with the page. */

import { chromium } from "playwright-core";

const EXECUTABLE = process.env.CHROMIUM_BIN ?? "/usr/bin/chromium";
/** Software rendering without a sandbox, and no word to anybody outside. */
const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
];

export function launch(flags = []) {
  return chromium.launch({ executablePath: EXECUTABLE, args: [...FLAGS, ...flags] });
}

/**
 * A window of somebody's own: cookies, storage, and everything the page complained about.
 * @returns the page, with `complaints`
 */
export async function window(browser, server, name, options = {}) {
  const { room = "lobby", ...rest } = options;
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...rest });
  if (process.env.HUBBUB_WEB) await fromFolder(context, process.env.HUBBUB_WEB);
  const page = await context.newPage();
  page.complaints = [];
  page.on("pageerror", (error) => page.complaints.push(error.message));
  page.on("console", (entry) => {
    // Attempts to connect while the server is down are told of by the browser itself.
    if (entry.type() === "error" && !/net::ERR|WebSocket connection|Failed to load resource/.test(entry.text())) page.complaints.push(entry.text());
  });
  await page.goto(`${server.url}/#/${room}`);
  await page.fill("#name", name);
  await page.press("#name", "Enter");
  await page.waitForSelector('body[data-connection="open"]');
  return page;
}

/** The page's files from a folder instead of the binary: no build while working on them. */
async function fromFolder(context, folder) {
  await context.route(/\/web\/[0-9a-f]{16}\//, (route) => {
    const path = new URL(route.request().url()).pathname.replace(/^\/web\/[0-9a-f]{16}\//, "");
    return route.fulfill({ path: `${folder}/${path}` });
  });
}

/** Comes in by the door: joins the room on the screen if the page offers to. */
export async function join(page) {
  const offer = page.waitForSelector("#join-bar button", { timeout: 3000 }).catch(() => null);
  const first = await Promise.race([offer, page.waitForTimeout(3000)]);
  await first?.click();
  // Only now: before the page knows its rooms it shows the composer to anybody.
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
