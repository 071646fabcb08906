/** Event streams: resumed behind the last event, one reset, no end because of a silence while an event is worked on. */

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";
import { parseEvent } from "../events.js";
import { Client } from "../index.js";

/** A server whose streams are the given texts, one for each connection; a number is the status of a refusal. */
async function streaming(test, streams) {
  const [asked, tokens] = [[], []];
  const server = createServer((request, response) => {
    asked.push(request.url);
    tokens.push(request.headers.authorization);
    const stream = streams[asked.length - 1];
    if (Array.isArray(stream)) return response.writeHead(stream[0]).end(JSON.stringify(stream[1]));
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(stream ?? "");
    if (stream !== undefined && asked.length < streams.length) response.end();
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  test.after(() => { server.closeAllConnections(); server.close(); });
  const options = { backoffFirst: 1, backoffMax: 2, token: "first" };
  return { client: new Client(`http://127.0.0.1:${server.address().port}`, options), asked, tokens };
}

const watching = (epoch, after) => `event: watching\ndata: {"epoch":"${epoch}","after":${after}}\n\n`;
const put = (epoch, revision) => `id: ${epoch}:${revision}\nevent: put\ndata: {"key":"a%20b","revision":${revision}}\n\n`;

async function take(watch, count) {
  const events = [];
  for await (const event of watch) {
    events.push(event);
    if (events.length === count) break;
  }
  return events;
}

test("an event is its fields, a comment has none", () => {
  assert.deepEqual(parseEvent('id: e:1\nevent: put\ndata: {"a":1}'), { id: "e:1", event: "put", data: { a: 1 } });
  assert.deepEqual(parseEvent(": still here"), {});
});

test("a lost stream goes on behind the last change, and behind an id without one", async (test) => {
  const { client, asked } = await streaming(test, [watching("e", 4) + put("e", 5), `${watching("e", 5)}id: e:9\n\n`, watching("e", 9) + put("e", 10)]);
  const watch = client.keys.watch({ prefix: "a b", after: 4, epoch: "e" });
  const events = await take(watch, 5);
  assert.deepEqual(events.map((event) => [event.type, event.revision]), [["ready", 4], ["put", 5], ["ready", 5], ["ready", 9], ["put", 10]]);
  assert.equal(events[1].key, "a b");
  assert.deepEqual(asked.map((url) => new URL(url, "http://h").searchParams.get("after")), ["4", "5", "9"]);
  assert.deepEqual(watch.position, { epoch: "e", revision: 10 });
});

test("another history is one reset, and the watch goes on behind its head", async (test) => {
  const reset = { code: "reset", retryable: false, epoch: "f", oldest: 1, head: 3 };
  const { client, asked } = await streaming(test, [watching("e", 0) + put("e", 7), [410, reset], watching("f", 3) + put("f", 4)]);
  const events = await take(client.keys.watch({ after: 0 }), 5);
  assert.deepEqual(events.map((event) => event.type), ["ready", "put", "reset", "ready", "put"]);
  assert.deepEqual(events[2], { type: "reset", epoch: "f", oldest: 1, head: 3, historyReplaced: true });
  assert.match(asked[2], /after=3&epoch=f/);
});

test("a refusal that cannot get better ends the watch", async (test) => {
  const { client } = await streaming(test, [[403, { code: "forbidden", retryable: false }]]);
  await assert.rejects(take(client.keys.watch(), 1), { code: "forbidden" });
});

const expired = 'event: error\ndata: {"code":"unauthorized","status":401,"retryable":false}\n\n';

test("a watch outlives its first token with a newer one", async (test) => {
  const { client, tokens } = await streaming(test, [watching("e", 4) + expired, watching("e", 4) + expired, ""]);
  const watch = client.keys.watch();
  assert.equal((await watch.next()).value.type, "ready");
  client.setToken("second");
  assert.equal((await watch.next()).value.type, "ready");
  assert.deepEqual(tokens, ["Bearer first", "Bearer second"]);
  await assert.rejects(watch.next(), { code: "unauthorized" });
});

test("closing ends a watch that waits", async (test) => {
  const { client } = await streaming(test, [watching("e", 0)]);
  const watch = client.keys.watch();
  assert.equal((await watch.next()).value.type, "ready");
  const waiting = watch.next();
  watch.close();
  assert.equal((await waiting).done, true);
});
