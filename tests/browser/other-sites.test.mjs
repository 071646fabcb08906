/** Pages of other sites, in a browser: those of listed ones use the server as its own do, others get nothing out of it. */

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { once } from "node:events";
import { after, before, test } from "node:test";
import { launch, newContext } from "./browser.mjs";
import { Server } from "./server.mjs";

let browser;
before(async () => { browser = await launch(); });
after(() => browser?.close());

/** A site of one page and the client that it copied. */
async function site(test) {
  const client = await readFile(new URL("../../web/hubbub.js", import.meta.url));
  const http = createServer((request, response) => {
    const isClient = request.url === "/hubbub.js";
    response.setHeader("content-type", isClient ? "text/javascript" : "text/html");
    response.end(isClient ? client : "<title>a site</title>");
  });
  http.listen(0, "127.0.0.1");
  await once(http, "listening");
  test.after(() => { http.closeAllConnections(); http.close(); });
  return `http://127.0.0.1:${http.address().port}`;
}

/** What a page of `origin` gets out of the server. */
async function use(test, origin, url) {
  const context = await newContext(browser);
  test.after(() => context.close());
  const page = await context.newPage();
  await page.goto(origin);
  return page.evaluate(async (url) => {
    const { Hubbub } = await import("/hubbub.js");
    const client = new Hubbub({ url, user: "ada", backoffMax: 50 });
    const tried = async (work) => { try { return await work(); } catch (error) { return `${error.code ?? error.name}`; } };
    const made = await tried(async () => (await client.putRoom("r", { title: "made" })).title);
    const missing = await tried(() => client.room("none"));
    const tag = await tried(async () => {
      const put = await fetch(`${url}/kv/a`, { method: "PUT", body: "1", headers: { "if-none-match": "*" } });
      return put.headers.get("etag");
    });
    client.connect();
    const opened = new Promise((resolve) => {
      client.on("state", ({ state }) => { if (state === "open" || state === "waiting") resolve(state); });
    });
    const state = await opened;
    client.close();
    return { made, missing, tag, state };
  }, url);
}

test("pages of listed sites may do what the server's own may, others nothing", async (test) => {
  const [listed, other] = [await site(test), await site(test)];
  const server = await Server.start(test, { HUBBUB_SERVER_ALLOWED_ORIGINS: listed });
  assert.deepEqual(await use(test, other, server.url), {
    made: "unreachable", missing: "unreachable", tag: "TypeError", state: "waiting",
  });
  assert.equal((await fetch(`${server.url}/v1/rooms/r`)).status, 404);
  assert.equal((await fetch(`${server.url}/kv/a`)).status, 404);
  const allowed = await use(test, listed, server.url);
  assert.deepEqual(allowed, { made: "made", missing: "unknown_room", tag: allowed.tag, state: "open" });
  assert.match(allowed.tag, /^"\d+"$/);
});
