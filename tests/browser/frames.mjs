/**
 * How smooth the page is with 10,000 messages in a room and 200 messages a second arriving: frames from Chromium's own
 * trace, the time of its main thread, and memory, while it follows the room and while somebody scrolls through it.
 *
 * A benchmark, not a test: it prints figures and judges none. `node frames.mjs [seconds] [messages per second]`
 */

import { readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join as path } from "node:path";
import { join, launch, window } from "./browser.mjs";
import { Server } from "./server.mjs";
import WebSocket from "ws";
import { Hubbub } from "../../web/hubbub.js";

const SECONDS = Number(process.argv[2] ?? 20);
const RATE = Number(process.argv[3] ?? 200);
const STORED = 10_000;
const CATEGORIES = ["disabled-by-default-devtools.timeline.frame", "devtools.timeline", "disabled-by-default-devtools.timeline", "benchmark", "cc", "viz"];

const server = await Server.start();
const browser = await launch();
const results = [];
try {
  await server.fill("lobby", STORED, text);
  const page = await window(browser, server, "reader");
  await join(page);
  await page.waitForTimeout(1000);
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable");
  const sender = new Hubbub({ url: server.url, WebSocket });
  sender.connect();
  results.push(await measure(page, session, sender, "following"));
  // Somebody scrolls without a pause, up more than down: every frame shows something else.
  await page.evaluate(() => {
    const scroller = document.getElementById("scroller");
    let step = 0;
    const scroll = () => {
      scroller.scrollTop += step++ % 180 < 120 ? -40 : 40;
      requestAnimationFrame(scroll);
    };
    scroll();
  });
  results.push(await measure(page, session, sender, "scrolling up and down"));
  sender.close();
  const stored = await server.history("lobby");
  console.log(JSON.stringify({ stored: stored.length, rate: RATE, seconds: SECONDS, results }, null, 2));
} finally {
  await browser.close();
  await server.remove();
}

function text(n) {
  return `message ${n}${n % 7 === 0 ? "\nwith a second line, as people write them" : ""}${n % 11 === 0 ? ` and a longer thought that ${"goes on and ".repeat(12)}ends` : ""}`;
}

async function measure(page, session, sender, what) {
  const trace = path(tmpdir(), `hubbub-trace-${process.pid}.json`);
  const before = await figures(session);
  await browser.startTracing(page, { path: trace, categories: CATEGORIES });
  const from = Date.now();
  let sent = 0;
  const receipts = [];
  while (Date.now() - from < SECONDS * 1000) {
    const due = Math.floor(((Date.now() - from) / 1000) * RATE);
    for (; sent < due; sent++) receipts.push(sender.send("lobby", text(sent), { userId: ["ada", "bob", "cleo", "dora"][sent % 4] }).done);
    await new Promise((resolve) => setTimeout(resolve, 16));
  }
  const seconds = (Date.now() - from) / 1000;
  await browser.stopTracing();
  await Promise.all(receipts);
  const after = await figures(session);
  const events = JSON.parse(await readFile(trace, "utf8")).traceEvents;
  await rm(trace);
  return {
    what, sent,
    ...frames(events, seconds),
    mainThreadShare: round((after.TaskDuration - before.TaskDuration) / seconds),
    heapMiB: [before, after].map((each) => round(each.JSHeapUsedSize / 2 ** 20)),
    elements: await page.evaluate(() => document.querySelectorAll("#messages > *").length),
    nodes: [before.Nodes, after.Nodes],
  };
}

/** Frames that reached the screen: `DrawFrame` of the page's compositor. */
function frames(events, seconds) {
  const byThread = new Map();
  for (const event of events) {
    if (event.name !== "DrawFrame") continue;
    const key = `${event.pid}/${event.tid}/${event.args?.layerTreeId}`;
    byThread.set(key, [...(byThread.get(key) ?? []), event.ts]);
  }
  const drawn = [...byThread.values()].sort((a, b) => b.length - a.length)[0] ?? [];
  drawn.sort((a, b) => a - b);
  const gaps = drawn.slice(1).map((ts, index) => (ts - drawn[index]) / 1000).sort((a, b) => a - b);
  const at = (share) => round(gaps[Math.min(gaps.length - 1, Math.floor(gaps.length * share))] ?? NaN);
  return {
    framesPerSecond: round(drawn.length / seconds),
    gapMs: { median: at(0.5), p95: at(0.95), p99: at(0.99), most: at(1) },
    dropped: events.filter((event) => event.name === "DroppedFrame").length,
  };
}

async function figures(session) {
  await session.send("HeapProfiler.collectGarbage");
  const { metrics } = await session.send("Performance.getMetrics");
  return Object.fromEntries(metrics.map((metric) => [metric.name, metric.value]));
}

function round(number) {
  return Math.round(number * 100) / 100;
}
