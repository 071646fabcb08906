/**
 * How long each page takes on this machine until it can be used, with nothing cached: from the begin of its navigation, by the
 * page's own clock, to the moment what it shows is there.
 *
 * A benchmark, not a test: it prints figures in milliseconds and judges none. `node ready.mjs [rounds]`
 */

import { launch, newContext, window } from "./browser.mjs";
import { Server } from "./server.mjs";

const ROUNDS = Number(process.argv[2] ?? 20);
const PAGES = [
  // What the browser alone takes.
  ["nothing", "/health/live", "body"],
  ["chat", "/#/lobby", "#messages .text"],
  ["dashboard", "/dashboard", "#health li"],
  ["docs", "/docs", "#main:not([aria-busy])"],
];

const server = await Server.start();
const browser = await launch();
try {
  await server.fill("lobby", 40);
  // Somebody who was here before, on a machine that has nothing of it cached.
  const known = await window(browser, server, "ada");
  await known.waitForSelector("#messages .text");
  const storageState = await known.context().storageState();
  for (const [name, path, ready] of PAGES) {
    const times = [];
    for (let round = 0; round < ROUNDS; round++) {
      // Each has a cache of its own.
      const context = await newContext(browser, { storageState });
      await context.addInitScript((selector) => {
        const look = () => {
          if (document.querySelector(selector)) window.readyAfter = performance.now();
          else requestAnimationFrame(look);
        };
        requestAnimationFrame(look);
      }, ready);
      const page = await context.newPage();
      await page.goto(server.url + path);
      times.push(await (await page.waitForFunction(() => window.readyAfter)).jsonValue());
      await context.close();
    }
    times.sort((a, b) => a - b);
    const at = (share) => Math.round(times[Math.min(times.length - 1, Math.floor(times.length * share))]);
    console.log(JSON.stringify({ page: name, rounds: ROUNDS, median: at(0.5), p90: at(0.9), most: at(1) }));
  }
} finally {
  await browser.close();
  await server.remove();
}
