/** Pauses, repetition and what an answer says after an attempt without one. */

import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { createServer } from "node:http";
import { test } from "node:test";
import { Client } from "../index.js";
import { pauseOf } from "../http.js";

const OPTIONS = { backoffFirst: 1, backoffMax: 4, patience: 10_000 };

/** A server that gives these answers one after another, the last one again and again. `null`: the connection breaks. */
async function answering(test, answers) {
  const requests = [];
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    requests.push({ method: request.method, url: request.url, headers: request.headers, body });
    const answer = answers[Math.min(requests.length, answers.length) - 1];
    if (answer === null) return request.socket.destroy();
    const [status, json, headers] = answer;
    response.writeHead(status, headers).end(json === undefined ? undefined : JSON.stringify(json));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  test.after(() => { server.closeAllConnections(); server.close(); });
  return { url: `http://127.0.0.1:${server.address().port}/`, requests };
}

test("a pause grows, has a limit and a random part, and is never shorter than the server asks for", () => {
  const options = { backoffFirst: 100, backoffMax: 1_000 };
  const most = [0, 1, 2, 3, 4, 50].map((attempt) => pauseOf(attempt, undefined, options, () => 1));
  assert.deepEqual(most, [100, 200, 400, 800, 1_000, 1_000]);
  assert.equal(pauseOf(5, undefined, options, () => 0), 0);
  assert.equal(pauseOf(0, 3, options, () => 0), 3_000);
  assert.equal(pauseOf(0, 3, options, () => 1), 3_100);
  assert.notEqual(pauseOf(4, undefined, options), pauseOf(4, undefined, options));
});

test("a queue message is sent again with its id until it is acknowledged", async (test) => {
  const overloaded = [503, { code: "overloaded", retryable: true }, { "retry-after": "0" }];
  const { url, requests } = await answering(test, [null, overloaded, [502], [201, { id: "7", duplicate: false }]]);
  const receipt = await new Client(url, { user: "ada", ...OPTIONS }).queue("a b").send("text");
  assert.equal(receipt.id, "7");
  const bodies = requests.map((request) => JSON.parse(request.body));
  assert.equal(requests.length, 4);
  assert.equal(new Set(bodies.map((body) => body.messageId)).size, 1);
  assert.deepEqual([requests[0].url, requests[0].headers["hubbub-user"], bodies[0].sender], ["/v1/queues/a%20b/messages", "ada", "ada"]);
});

test("a final refusal is not repeated", async (test) => {
  const { url, requests } = await answering(test, [[404, { code: "unknown_queue", retryable: false }]]);
  await assert.rejects(new Client(url, OPTIONS).queue("q").take(), { code: "unknown_queue", status: 404, isOpen: false });
  assert.equal(requests.length, 1);
});

test("the patience ends before a pause that would exceed it", async (test) => {
  const { url, requests } = await answering(test, [[429, { code: "too_many_requests", retryable: true }, { "retry-after": "3600" }]]);
  await assert.rejects(new Client(url, OPTIONS).queue("q").send("text"), { code: "too_many_requests", retryable: true });
  assert.equal(requests.length, 1);
});

test("a condition that fails after an attempt without an answer says nothing", async (test) => {
  const failed = [412, { code: "condition_failed", retryable: false, revision: 9 }];
  const sure = await answering(test, [failed]);
  await assert.rejects(new Client(sure.url, OPTIONS).keys.put("k", "v", { revision: 3 }), { code: "condition_failed" });
  const open = await answering(test, [null, failed]);
  await assert.rejects(new Client(open.url, OPTIONS).keys.put("k", "v", { revision: 3 }), { code: "unconfirmed" });
  assert.equal(open.requests[1].headers["if-match"], '"3"');
  const seen = [200, undefined, { etag: '"4"' }];
  const proxy = await answering(test, [[502], failed]);
  await assert.rejects(new Client(proxy.url, OPTIONS).keys.put("k", "v", { revision: 3 }), { code: "unconfirmed" });
  const unknown = [404, { code: "unknown_key" }, { "content-type": "application/problem+json" }];
  const gone = await answering(test, [seen, null, unknown]);
  assert.equal(await new Client(gone.url, OPTIONS).keys.delete("k"), true);
  const never = await answering(test, [seen, unknown]);
  assert.equal(await new Client(never.url, OPTIONS).keys.delete("k"), false);
});

test("a change names the revision it saw, so that a late attempt undoes nothing", async (test) => {
  const seen = [200, undefined, { etag: '"4"' }];
  const faster = [412, { code: "condition_failed", retryable: false }];
  const { url, requests } = await answering(test, [seen, faster, [200, undefined, { etag: '"6"' }], [204, undefined, { etag: '"7"' }]]);
  assert.deepEqual(await new Client(url, OPTIONS).keys.put("k", "v"), { revision: 7, created: false });
  assert.deepEqual(requests.map(({ method, headers }) => [method, headers["if-match"]]),
    [["HEAD", undefined], ["PUT", '"4"'], ["HEAD", undefined], ["PUT", '"6"']]);
});

test("a request refused for a token that was replaced meanwhile is repeated with the newer one", async (test) => {
  const unauthorized = [401, { code: "unauthorized", status: 401, retryable: false }];
  const { url, requests } = await answering(test, [unauthorized, [200, { messages: [] }], unauthorized]);
  const client = new Client(url, {
    ...OPTIONS, token: "first",
    fetch: async (...request) => {
      const response = await fetch(...request);
      client.setToken("second");
      return response;
    },
  });
  assert.deepEqual(await client.queue("q").take({ waitMs: 1_000 }), []);
  assert.deepEqual(requests.map(({ headers }) => headers.authorization), ["Bearer first", "Bearer second"]);
  await assert.rejects(client.queue("q").take(), { code: "unauthorized" });
  assert.equal(requests.length, 3);
});

test("an answer without a body is what its status says", async (test) => {
  const seen = [200, undefined, { etag: '"4"' }];
  for (const status of [408, 429, 503]) {
    const { url, requests } = await answering(test, [[status, undefined, { "retry-after": "0" }], seen, [204, undefined, { etag: '"5"' }]]);
    assert.equal((await new Client(url, OPTIONS).keys.put("k", "v")).revision, 5);
    assert.equal(requests.length, 3);
  }
  const refusals = [[401, "unauthorized", false], [403, "forbidden", false], [501, "not_supported", false], [429, "too_many_requests", true]];
  for (const [status, code, retryable] of refusals) {
    const { url } = await answering(test, [[status]]);
    const { keys } = new Client(url, { ...OPTIONS, patience: 0 });
    await assert.rejects(keys.delete("k"), { code, status, retryable });
  }
  const { url } = await answering(test, [[403]]);
  await assert.rejects(new Client(url, OPTIONS).keys.put("k", "v"), /right to read/);
});

test("a proxy's words are no problem of the server's", async (test) => {
  for (const body of ["no", null, ["no"], { message: "the quota is used up" }]) {
    const { url } = await answering(test, [[429, body]]);
    const taking = new Client(url, { ...OPTIONS, patience: 0 }).queue("q").take();
    await assert.rejects(taking, { code: "too_many_requests", retryable: true, message: JSON.stringify(body) });
  }
});

/** How these calls end. */
async function codesOf(...calls) {
  return (await Promise.allSettled(calls)).map(({ reason }) => reason?.code);
}

test("only the server says that there is no such key", async (test) => {
  const ours = await answering(test, [[404, undefined, { "content-type": "application/problem+json" }]]);
  assert.equal(await new Client(ours.url, OPTIONS).keys.delete("k"), false);
  for (const headers of [{}, { "content-type": "text/html" }]) {
    const { url, requests } = await answering(test, [[404, undefined, headers]]);
    const { keys } = new Client(url, OPTIONS);
    const codes = await codesOf(keys.delete("k"), keys.put("k", "v"), keys.get("k"));
    assert.deepEqual([codes, requests.length], [Array(3).fill("not_found"), 3]);
  }
});

test("a success without the tag of a key is not the server's", async (test) => {
  for (const headers of [{}, { etag: '"57-gzip"' }, { etag: '"a"' }]) {
    const { url, requests } = await answering(test, [[200, undefined, headers]]);
    const { keys } = new Client(url, OPTIONS);
    const codes = await codesOf(keys.get("k"), keys.put("k", "v"), keys.put("k", "v", { revision: 3 }), keys.delete("k"));
    assert.deepEqual([codes, requests.length], [Array(4).fill("protocol"), 4]);
  }
  const { url, requests } = await answering(test, [[200, "v", { etag: 'W/"57"' }], [200, undefined, { etag: 'W/"57"' }], [204]]);
  const { keys } = new Client(url, OPTIONS);
  assert.deepEqual([(await keys.get("k")).revision, await keys.delete("k"), requests[2].headers["if-match"]], [57, true, '"57"']);
});

test("a success that is not what the server answers is none", async (test) => {
  const taken = { messages: [{ id: "1", message: "job", receipt: "r" }] };
  for (const page of [undefined, "<html>", null, { status: "ok" }]) {
    const { url, requests } = await answering(test, [[200, taken], [200, page]]);
    const client = new Client(url, OPTIONS);
    const queue = client.queue("q");
    const [delivery] = await queue.take();
    const codes = await codesOf(
      queue.create(), queue.state(), queue.send("text"), queue.take(), delivery.ack(), delivery.nack(), delivery.extend(),
      client.keys.list(), client.keys.delete("k", { revision: 3 }), client.room("r").history(),
    );
    assert.deepEqual([codes, requests.length], [Array(10).fill("protocol"), 11]);
  }
});

test("a handshake that no repetition makes better is final", async (test) => {
  for (const [status, code] of [[400, "malformed"], [404, "not_found"], [422, "invalid"]]) {
    const { url, requests } = await answering(test, [[status, { code, detail: "why", retryable: false }]]);
    const client = new Client(url, OPTIONS);
    const following = client.room("r").subscribe().next();
    await assert.rejects(client.room("r").send("text"), { code, message: "why" });
    await assert.rejects(following, { code });
    assert.equal(requests.length, 1);
  }
  const { url } = await answering(test, [[408], [404]]);
  await assert.rejects(new Client(url, OPTIONS).room("r").send("text"), { code: "not_found" });
});

test("an address or a token that can never work is refused at once", () => {
  for (const url of ["127.0.0.1:8080", "localhost:8080", "ftp://h", ""]) assert.throws(() => new Client(url), { code: "invalid" });
  for (const token of ["a\nb", "a b", "ö"]) {
    assert.throws(() => new Client("http://h", { token }), { code: "invalid" });
    assert.throws(() => new Client("http://h").setToken(token), { code: "invalid" });
  }
});

test("a handshake refused for its token is final", async (test) => {
  for (const [status, code] of [[401, "unauthorized"], [403, "forbidden"]]) {
    const { url, requests } = await answering(test, [[503], [status]]);
    const client = new Client(url, OPTIONS);
    const following = client.room("r").subscribe().next();
    await assert.rejects(client.room("r").send("text"), { code });
    await assert.rejects(following, { code });
    assert.equal(requests.length, 2);
  }
});

test("a client that is closed ends what waits, and takes nothing more", async (test) => {
  const { url } = await answering(test, [null]);
  const client = new Client(url, { ...OPTIONS, backoffFirst: 5_000, backoffMax: 5_000 });
  const waiting = [client.queue("q").take(), client.room("r").send("text"), client.keys.watch().next()];
  setImmediate(() => client.close());
  const [took, sent, watched] = await Promise.allSettled(waiting);
  assert.deepEqual([took.reason.code, sent.reason.code, watched.value], ["closed", "closed", { value: undefined, done: true }]);
  await assert.rejects(client.keys.get("k"), { code: "closed" });
  await assert.rejects(client.room("r").send("text"), { code: "closed" });
});

/** Resolves once so many requests have come, and the client has their answers. */
async function answered(requests, count) {
  while (requests.length < count) await new Promise((resolve) => setTimeout(resolve, 1));
  await new Promise((resolve) => setTimeout(resolve, 50));
}

const busy = [503, { code: "overloaded", retryable: true }, { "retry-after": "5" }];

test("a client that is closed during a pause says so", async (test) => {
  const { url, requests } = await answering(test, [busy]);
  const client = new Client(url, OPTIONS);
  const taking = assert.rejects(client.queue("q").take(), { code: "closed" });
  await answered(requests, 1);
  client.close();
  await taking;
});

test("work that is refused is asked for again after a pause, whatever the patience", async (test) => {
  const { url, requests } = await answering(test, [busy]);
  const abort = new AbortController();
  const working = new Client(url, { ...OPTIONS, patience: 0 }).queue("q").poll(() => {}, { signal: abort.signal });
  await answered(requests, 1);
  abort.abort();
  await working;
  assert.equal(requests.length, 1);
});

test("calls leave nothing behind at a signal that outlives them", async (test) => {
  const { url } = await answering(test, [[503], [200, { messages: [] }]]);
  const any = test.mock.method(AbortSignal, "any");
  const warnings = [];
  const warn = (warning) => warnings.push(warning.message);
  process.on("warning", warn);
  test.after(() => process.off("warning", warn));
  const [client, { signal }] = [new Client(url, OPTIONS), new AbortController()];
  await Promise.all(Array.from({ length: 20 }, () => client.queue("q").take({ signal })));
  assert.deepEqual([any.mock.callCount(), getEventListeners(signal, "abort").length, warnings], [0, 1, []]);
});

test("a key of any text is one path", async (test) => {
  const { url, requests } = await answering(test, [[201, undefined, { etag: '"5"' }]]);
  const { keys } = new Client(url, OPTIONS);
  assert.deepEqual(await keys.put("user:1/ä ?#%", "v", { revision: 0, ttl: 0.5 }), { revision: 5, created: true });
  assert.equal(requests[0].url, "/kv/user%3A1/%C3%A4%20%3F%23%25");
  assert.deepEqual([requests[0].headers["if-none-match"], requests[0].headers["hubbub-ttl"]], ["*", "0.5"]);
  await assert.rejects(keys.put("a/../b", "v"), { code: "invalid" });
});

test("giving up ends the repetition", async (test) => {
  const { url } = await answering(test, [null]);
  const abort = new AbortController();
  const sent = new Client(url, { ...OPTIONS, backoffFirst: 5_000, backoffMax: 5_000 }).queue("q").send("text", { signal: abort.signal });
  setImmediate(() => abort.abort());
  await assert.rejects(sent, { code: "canceled" });
});

test("a handler that fails gives its message back, and the work goes on", async (test) => {
  const lease = (id) => [200, { messages: [{ id, message: `job ${id}`, receipt: "r" }] }];
  const { url, requests } = await answering(test, [lease("1"), [200, {}], lease("2"), [204], [200, { messages: [] }]]);
  const abort = new AbortController();
  const [seen, errors] = [[], []];
  const watching = setInterval(() => { if (requests.length >= 5) abort.abort(); }, 1);
  test.after(() => clearInterval(watching));
  await new Client(url, OPTIONS).queue("q").poll((delivery) => {
    seen.push(delivery.message);
    if (seen.length === 1) throw new Error("not now");
  }, { signal: abort.signal, onError: (error) => errors.push(error.message) });
  assert.deepEqual([seen, errors], [["job 1", "job 2"], ["not now"]]);
  assert.deepEqual(requests.slice(0, 4).map((request) => request.url.split("/").at(-1)), ["lease", "nack", "lease", "ack"]);
});

test("an acknowledgement that fails is told, whatever its code", async (test) => {
  const taken = [200, { messages: [{ id: "1", message: "job", receipt: "r" }] }];
  const { url } = await answering(test, [taken, [503], [403, { code: "forbidden" }]]);
  const codes = [];
  const working = new Client(url, { ...OPTIONS, patience: 0 }).queue("q").poll(() => {}, { onError: ({ code }) => codes.push(code) });
  await assert.rejects(working, { code: "forbidden" });
  assert.deepEqual(codes, ["unexpected"]);
});

test("a listed key is of use, whatever its bytes are", async (test) => {
  const pages = [{ keys: ["a b", "%FF/%2F", "100%25"].map((key) => ({ key, revision: 1, bytes: 1 })), next: "k%FF" }, { keys: [], next: null }];
  const { url, requests } = await answering(test, [[200, pages[0]], [200, pages[1]], [200, undefined, { etag: '"1"' }]]);
  const { keys } = new Client(url, OPTIONS);
  const page = await keys.list();
  assert.deepEqual(page.keys.map((entry) => entry.key), ["a b", { encoded: "%FF/%2F" }, "100%"]);
  assert.equal((await keys.list({ prefix: page.next, after: page.next })).next, null);
  const { searchParams } = new URL(requests[1].url, url);
  assert.deepEqual([searchParams.get("prefix"), searchParams.get("after")], ["k%FF", "k%FF"]);
  for (const { key } of page.keys) await keys.get(key);
  assert.deepEqual(requests.slice(2).map((request) => request.url), ["/kv/a%20b", "/kv/%FF//", "/kv/100%25"]);
  for (const encoded of ["%FF/..", "%FF/%2e%2E/a"]) await assert.rejects(keys.get({ encoded }), { code: "invalid" });
});

test("a redirection for good is an error that names where to, and is not followed", async (test) => {
  const other = await answering(test, [[200, { id: "1" }]]);
  const { url, requests } = await answering(test, [[308, undefined, { location: other.url }]]);
  const client = new Client(url, { token: "t", ...OPTIONS });
  test.after(() => client.close());
  const refused = { code: "unexpected", status: 308, retryable: false, message: `the server redirects to ${other.url}; only the address that answers itself will do` };
  await assert.rejects(client.queue("q").send("text"), refused);
  await assert.rejects(client.keys.watch().next(), refused);
  assert.deepEqual([requests.length, other.requests.length], [2, 0]);
  // The socket's handshake, too.
  await assert.rejects(client.room("r").send("text"), { code: "unexpected", message: refused.message });
  assert.equal(client.connection.state, "closed");
});

test("a redirection for now is tried again, not followed, and ends no subscription", async (test) => {
  const other = await answering(test, [[200, { id: "1" }]]);
  const away = (status) => [status, undefined, { location: other.url }];
  const calls = await answering(test, [away(302), away(303), away(307), [201, { id: "7" }]]);
  assert.equal((await new Client(calls.url, OPTIONS).queue("q").send("text")).id, "7");
  const impatient = new Client((await answering(test, [away(307)])).url, { ...OPTIONS, patience: 20 });
  await assert.rejects(impatient.queue("q").send("text"), { code: "unexpected", status: 307, retryable: true, message: /redirects to/ });

  const watched = await answering(test, [away(302), away(307), [403, { code: "forbidden", retryable: false }]]);
  await assert.rejects(new Client(watched.url, OPTIONS).keys.watch().next(), { code: "forbidden" });
  assert.equal(watched.requests.length, 3);

  const { url, requests } = await answering(test, [away(302)]);
  const client = new Client(url, OPTIONS);
  test.after(() => client.close());
  const next = client.room("r").subscribe().next().then(() => "an event", (error) => error);
  while (requests.length < 4) await new Promise((resolve) => setTimeout(resolve, 5));
  assert.notEqual(client.connection.state, "closed");
  assert.equal(client.connection.reason, `the server redirects to ${other.url}; only the address that answers itself will do`);
  client.close();
  assert.equal(await next, "an event");
  assert.equal(other.requests.length, 0);
});

test("a key is put when the server says so", async (test) => {
  const { url } = await answering(test, [[200, undefined, { etag: '"4"' }]]);
  await assert.rejects(new Client(url, OPTIONS).keys.put("k", "v", { revision: 3 }), { code: "protocol", message: /status 200/ });
});

test("rooms and queues that a path loses are refused", async (test) => {
  const { url, requests } = await answering(test, [[200, {}]]);
  const client = new Client(url, OPTIONS);
  for (const name of [".", ".."]) {
    await assert.rejects(client.room(name).history(), { code: "invalid" });
    assert.throws(() => client.queue(name), { code: "invalid" });
  }
  assert.equal(requests.length, 0);
});

test("what is given up names the last attempt's error", async (test) => {
  const { url } = await answering(test, [[503, { code: "overloaded", detail: "too busy", retryable: true }, { "retry-after": "60" }]]);
  const sending = new Client(url, { patience: 600_000 }).queue("q").send("text", { signal: AbortSignal.timeout(300) });
  await assert.rejects(sending, { code: "canceled", message: /; the last attempt: too busy$/ });
});

test("a client tells why it is not connected", async (test) => {
  const client = new Client("http://127.0.0.1:1", { backoffFirst: 60_000, backoffMax: 60_000 });
  test.after(() => client.close());
  assert.equal(client.connection.state, "idle");
  const sending = client.room("r").send("text", { signal: AbortSignal.timeout(300) });
  await assert.rejects(sending, { code: "canceled", message: /not connected: connect ECONNREFUSED/ });
  assert.match(client.connection.reason, /ECONNREFUSED/);
});
