/**
 * The picture in the README that shows rooms, queues and keys, from a server that is furnished for it.
 *
 * `HUBBUB_BIN=… node pictures.mjs FILE.png`
 */

import { idOf } from "../../web/app/ids.js";
import { launch, newContext, window } from "./browser.mjs";
import { Server } from "./server.mjs";

const [file] = process.argv.slice(2);
/** Of each of the two views. */
const VIEW = { width: 940, height: 570 };
const GAP = 14;

const ROOMS = {
  lobby: ["Lobby", "Good morning everybody 🌱"], garden: ["Community garden", "The tomatoes are in."],
  operations: ["Operations", "Backup verified: no difference."], coffee: ["Coffee corner", "New beans have arrived ☕"],
  "release-week": ["Release week", "Cake at four."],
};
const JOBS = [
  "resize summer/beach-041.jpg to 1600", "resize summer/beach-042.jpg to 1600", "resize summer/harbour-007.jpg to 1600", "extract the text of invoice-2291.pdf",
  "send the weekly report to mira", "resize summer/harbour-008.jpg to 1600", "index the notes of release week",
];
const KEYS = {
  "config/banner": "Maintenance on Sunday, 02:00 to 02:30 UTC", "config/theme": '{"accent":"#3b82f6","density":"cosy"}',
  "feature/reactions": "on", "feature/video": "off", "session/8f1c": '{"user":"ada","since":"08:14"}', "session/b07e": '{"user":"linus","since":"08:31"}',
  "user:1/name": "Ada Lovelace", "user:1/quota": "52428800", "user:2/name": "Linus Berg", "user:2/quota": "10485760",
};

const server = await Server.start();
const browser = await launch();
try {
  await furnish();
  const views = [];
  for (const [hash, ready] of [["#queues/thumbnails", ".waiting-text"], ["#kv", "#kv tbody tr:nth-child(10)"]]) {
    const page = await window(browser, server, "Ada Lovelace", { viewport: VIEW });
    await page.evaluate((to) => { location.hash = to; }, hash);
    await page.waitForSelector(ready);
    await page.waitForTimeout(1000);
    views.push((await page.screenshot()).toString("base64"));
  }
  await montage(views);
} finally {
  await browser.close();
  await server.remove();
}

async function ask(method, path, body, headers = {}) {
  const response = await fetch(`${server.url}/${path}`, { method, headers, body: typeof body === "string" ? body : JSON.stringify(body) });
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
}

async function furnish() {
  for (const [room, [title, message]] of Object.entries(ROOMS)) {
    await ask("PUT", `v1/rooms/${room}`, { title });
    await ask("PUT", `v1/rooms/${room}/members/${idOf("Ada Lovelace")}`);
    await ask("POST", `v1/rooms/${room}/messages`, { userId: "mira-okafor", message });
  }
  for (const queue of ["thumbnails-failed", "thumbnails", "reports"]) {
    await ask("PUT", `v1/queues/${queue}`, queue === "thumbnails" ? { maxDeliveries: 5, deadLetter: "thumbnails-failed" } : {});
  }
  for (const [index, message] of JOBS.entries()) {
    await ask("POST", "v1/queues/thumbnails/messages", { sender: "gallery", message, delayMs: index === JOBS.length - 1 ? 3_600_000 : 0 });
  }
  for (const receiver of ["worker-1", "worker-2"]) await ask("POST", "v1/queues/thumbnails/lease", { receiver, leaseMs: 600_000 });
  for (const [key, value] of Object.entries(KEYS)) {
    await ask("PUT", `kv/${key}`, value, key.startsWith("session/") ? { "Hubbub-TTL": "3600" } : {});
  }
}

/** Both views side by side. */
async function montage(views) {
  const width = 2 * VIEW.width + 3 * GAP;
  const page = await (await newContext(browser, { viewport: { width, height: VIEW.height + 2 * GAP } })).newPage();
  const images = views.map((view) => `<img src="data:image/png;base64,${view}">`).join("");
  await page.setContent(`<style>body{margin:${GAP}px;display:flex;gap:${GAP}px;background:#d5dae2}img{border-radius:8px}</style>${images}`);
  await page.screenshot({ path: file });
}
