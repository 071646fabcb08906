/** `web/hubbub.js` in Node, against the real server. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import WebSocket, { WebSocketServer } from "ws";
import { WebSocket as NodeWebSocket } from "../../clients/javascript/websocket.js";
import { Delivery, Hubbub, HubbubError, State, makeId } from "../../web/hubbub.js";
import { BINARY, Server } from "./server.mjs";

function client(test, url, options = {}) {
  const hubbub = new Hubbub({ url, user: "ada", WebSocket, backoffFirst: 50, backoffMax: 200, ...options });
  test.after(() => hubbub.close());
  return hubbub;
}

/** Resolves with everything a subscription brought once there are `count` messages. */
function collect(hubbub, room, count, options = {}) {
  const messages = [];
  const complete = new Promise((resolve) => {
    hubbub.subscribe(room, { ...options, onMessage: (message) => {
      messages.push(message);
      if (messages.length === count) resolve(messages);
    } });
  });
  return { messages, complete };
}

function reaching(hubbub, state) {
  if (hubbub.connection.state === state) return Promise.resolve();
  return new Promise((resolve) => {
    const stop = hubbub.on("state", (now) => {
      if (now.state !== state) return;
      stop();
      resolve(now);
    });
  });
}

/** A token for the user, with these rights in rooms. */
const mint = (secret, user, rooms) =>
  execFileSync(BINARY, ["token", "mint", "--user", user, "--rooms", rooms], { env: { HUBBUB_AUTH_SECRET: secret } }).toString().trim();

const range = (count) => Array.from({ length: count }, (_, index) => index + 1);

test("a receipt comes, and so does the message", async (test) => {
  const server = await Server.start(test);
  const hubbub = client(test, server.url);
  const { complete } = collect(hubbub, "lobby", 1, { after: 0 });
  hubbub.connect();
  const outgoing = hubbub.send("lobby", "hello", { username: "Ada" });
  assert.equal(outgoing.state, Delivery.QUEUED);
  const receipt = await outgoing.done;
  assert.deepEqual([receipt.seq, receipt.duplicate, receipt.messageId], [1, false, outgoing.messageId]);
  const [message] = await complete;
  assert.equal(message.messageId, outgoing.messageId);
  assert.deepEqual([message.userId, message.username, message.message], ["ada", "Ada", "hello"]);
  assert.equal(hubbub.waiting, 0);
});

test("what is written while offline arrives once, in order", async (test) => {
  const server = await Server.start(test);
  const hubbub = client(test, server.url);
  hubbub.connect();
  await hubbub.send("lobby", "text 0").done;
  await server.kill();
  await reaching(hubbub, State.WAITING);
  const sent = range(100).map((n) => hubbub.send("lobby", `text ${n}`));
  assert.equal(hubbub.waiting, 100);
  await server.up();
  await Promise.all(sent.map((outgoing) => outgoing.done));
  const stored = (await server.history("lobby")).map((message) => message.message);
  assert.deepEqual(stored, ["text 0", ...range(100).map((n) => `text ${n}`)]);
});

test("a server killed again and again loses and repeats nothing", async (test) => {
  const server = await Server.start(test);
  const [sender, reader] = [client(test, server.url), client(test, server.url, { user: "bob" })];
  const { messages, complete } = collect(reader, "lobby", 600, { after: 0 });
  sender.connect();
  reader.connect();
  const done = [];
  for (let round = 0; round < 3; round++) {
    // Killed with messages on the wire, some stored and not yet acknowledged.
    for (const n of range(200)) done.push(sender.send("lobby", `${round}.${n}`).done);
    await done[round * 200 + 20];
    await server.kill();
    await server.up();
  }
  const receipts = await Promise.all(done);
  await complete;
  const wanted = [0, 1, 2].flatMap((round) => range(200).map((n) => `${round}.${n}`));
  assert.deepEqual((await server.history("lobby")).map((message) => message.message), wanted);
  assert.deepEqual(messages.map((message) => message.message), wanted);
  assert.deepEqual(receipts.map((receipt) => receipt.seq), messages.map((message) => message.seq));
});

test("the last few, then what comes", async (test) => {
  const server = await Server.start(test);
  await server.fill("lobby", 100);
  const hubbub = client(test, server.url);
  let complete;
  await new Promise((onSubscribed) => {
    ({ complete } = collect(hubbub, "lobby", 11, { last: 10, onSubscribed }));
    hubbub.connect();
  });
  // Before that it may be one of the last.
  await hubbub.send("lobby", "and one more").done;
  const messages = await complete;
  assert.deepEqual(messages.map((message) => message.seq), range(11).map((n) => n + 90));
});

test("a cursor of another history is answered with a reset, and everything comes again", async (test) => {
  const server = await Server.start(test);
  await server.fill("lobby", 5);
  const hubbub = client(test, server.url);
  const resets = [];
  const { complete } = collect(hubbub, "lobby", 5, { after: 3, epoch: "another", onReset: (room, at) => resets.push([room, at.head]) });
  hubbub.connect();
  const messages = await complete;
  assert.deepEqual(resets, [["lobby", 5]]);
  assert.deepEqual(messages.map((message) => message.seq), [1, 2, 3, 4, 5]);
});

test("a refusal that cannot get better fails the message, not those behind it", async (test) => {
  const server = await Server.start(test);
  const hubbub = client(test, server.url);
  hubbub.connect();
  const id = makeId();
  const first = hubbub.send("lobby", "one", { messageId: id });
  const reused = hubbub.send("lobby", "two", { messageId: id });
  const last = hubbub.send("lobby", "three");
  await first.done;
  await assert.rejects(reused.done, (error) => error instanceof HubbubError && error.code === "id_reused" && !error.retryable);
  assert.equal(reused.state, Delivery.FAILED);
  assert.equal((await last.done).seq, 2);
});

test("the queue is bounded, and a refused message can be tried again", async (test) => {
  const server = await Server.start(test);
  const hubbub = client(test, server.url, { waitingMax: 2 });
  const outgoing = range(3).map((n) => hubbub.send("lobby", `text ${n}`));
  await assert.rejects(outgoing[2].done, { code: "queue_full" });
  hubbub.connect();
  await outgoing[1].done;
  outgoing[2].retry();
  assert.equal((await outgoing[2].done).seq, 3);
});

test("unsubscribe and subscribe again begin anew", async (test) => {
  const server = await Server.start(test);
  await server.fill("lobby", 20);
  const hubbub = client(test, server.url);
  hubbub.connect();
  await reaching(hubbub, State.OPEN);
  const stale = [];
  hubbub.subscribe("lobby", { after: 0, onMessage: (message) => stale.push(message) }).unsubscribe();
  const { complete } = collect(hubbub, "lobby", 5, { after: 15 });
  assert.deepEqual((await complete).map((message) => message.seq), [16, 17, 18, 19, 20]);
  assert.deepEqual(stale, []);
});

test("history and rooms over HTTP, and errors with their code", async (test) => {
  const server = await Server.start(test);
  await server.fill("lobby", 3);
  const hubbub = client(test, server.url);
  const page = await hubbub.history("lobby", { before: 3, limit: 1 });
  assert.deepEqual(page.messages.map((message) => message.seq), [2]);
  assert.deepEqual((await hubbub.rooms()).rooms.map((room) => room.roomId), ["lobby"]);
  await assert.rejects(hubbub.history("nowhere"), { code: "unknown_room", status: 404 });
});

test("a token that may not read a room ends its subscription, and not the others", async (test) => {
  const secret = "a secret of the tests, which is long enough";
  const server = await Server.start(test, { HUBBUB_AUTH_SECRET: secret });
  const hubbub = client(test, server.url, { user: undefined, token: mint(secret, "ada", "*=rwm") });
  const removed = new Promise((resolve) => hubbub.on("removed", resolve));
  const { complete } = collect(hubbub, "mine", 1, { after: 0 });
  hubbub.connect();
  await new Promise((resolve) => hubbub.subscribe("theirs", { after: 0, onSubscribed: resolve }));
  hubbub.setToken(mint(secret, "ada", "mine=rwm"));
  const { roomId, code } = await removed;
  assert.deepEqual([roomId, code], ["theirs", "forbidden"]);
  await hubbub.send("mine", "hello").done;
  assert.equal((await complete)[0].message, "hello");
});

// What a healthy server does not do on demand is done by one made for it.

async function scripted(test, onFrame) {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1" });
  const sockets = [];
  server.on("connection", (socket) => {
    sockets.push(socket);
    socket.on("message", (data) => onFrame(JSON.parse(data), (frame) => socket.send(JSON.stringify(frame)), socket, sockets.length));
  });
  await new Promise((resolve) => server.once("listening", resolve));
  test.after(() => {
    for (const socket of sockets) socket.terminate();
    server.close();
  });
  return { url: `http://127.0.0.1:${server.address().port}`, sockets };
}

const ackOf = (frame, seq) => ({ type: "ack", ref: frame.ref, messageId: frame.messageId, seq, epoch: "e", receivedAt: "t", duplicate: false });

test("after an overload the rest goes out again in order", async (test) => {
  const stored = [];
  let refusals = 3;
  const { url } = await scripted(test, (frame, answer) => {
    if (frame.type !== "send") return;
    if (refusals > 0) {
      refusals -= 1;
      return answer({ type: "error", ref: frame.ref, code: "overloaded", retryable: true });
    }
    stored.push(frame.message);
    answer(ackOf(frame, stored.length));
  });
  // All three are on the wire when the first is refused.
  const hubbub = client(test, url);
  hubbub.connect();
  await reaching(hubbub, State.OPEN);
  await Promise.all(["a", "b", "c"].map((text) => hubbub.send("lobby", text).done));
  assert.deepEqual(stored, ["a", "b", "c"]);
});

test("after a refusal one message is asked for, then more", async (test) => {
  let refusals = 4;
  const waiting = [];
  const { url } = await scripted(test, (frame, answer) => {
    if (refusals > 0) {
      refusals -= 1;
      return answer({ type: "error", ref: frame.ref, code: "overloaded", retryable: true });
    }
    waiting.push([frame, answer]);
  });
  const hubbub = client(test, url, { backoffFirst: 1 });
  hubbub.connect();
  await reaching(hubbub, State.OPEN);
  const sent = ["a", "b", "c", "d"].map((text) => hubbub.send("lobby", text));
  const widths = [];
  for (let seq = 0; seq < 4;) {
    while (waiting.length === 0 || sent.filter(({ state }) => state === Delivery.SENT).length > waiting.length) {
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    widths.push(waiting.length);
    for (const [frame, answer] of waiting.splice(0)) answer(ackOf(frame, ++seq));
  }
  await Promise.all(sent.map(({ done }) => done));
  assert.equal(widths[0], 1);
});

test("nothing overtakes a refusal behind its pong", async (test) => {
  const texts = [];
  let overtaken;
  const ponged = new Promise((resolve) => { overtaken = resolve; });
  let refuse;
  const { url } = await scripted(test, (frame, answer, socket) => {
    texts.push(frame.message);
    if (texts.length > 1) return answer(ackOf(frame, texts.length));
    socket.ping("12345678");
    // The server takes frames again from here on.
    socket.once("pong", () => overtaken());
    refuse = () => answer({ type: "error", ref: frame.ref, code: "overloaded", retryable: true });
  });
  const hubbub = client(test, url, { backoffFirst: 1, WebSocket: NodeWebSocket });
  hubbub.connect();
  await reaching(hubbub, State.OPEN);
  const one = hubbub.send("lobby", "one");
  await ponged;
  const two = hubbub.send("lobby", "two");
  assert.equal(two.state, Delivery.QUEUED);
  refuse();
  await Promise.all([one.done, two.done]);
  assert.deepEqual(texts, ["one", "one", "two"]);
});

test("an unsubscribing that was refused is repeated, and a new subscription waits for it", async (test) => {
  const types = [];
  const { url } = await scripted(test, (frame, answer) => {
    types.push(frame.type);
    if (frame.type === "subscribe") return answer({ type: "subscribed", ref: frame.ref, roomId: "lobby", epoch: "e", oldest: 1, head: 0 });
    if (types.length === 2) return answer({ type: "error", ref: frame.ref, code: "too_many_requests", retryable: true });
    answer({ type: "unsubscribed", roomId: frame.roomId });
  });
  const hubbub = client(test, url, { backoffFirst: 1 });
  hubbub.connect();
  await reaching(hubbub, State.OPEN);
  hubbub.subscribe("lobby", { after: 0 }).unsubscribe();
  await new Promise((resolve) => hubbub.subscribe("lobby", { after: 0, onSubscribed: resolve }));
  assert.deepEqual(types, ["subscribe", "unsubscribe", "unsubscribe", "subscribe"]);
});

test("a reset tells whether the history was replaced, and is not asked for again", async (test) => {
  const asked = [];
  const { url, sockets } = await scripted(test, (frame, answer) => {
    asked.push([frame.after, frame.epoch]);
    answer({ type: "subscribed", ref: frame.ref, roomId: "lobby", epoch: "f", oldest: 4, head: 9 });
    if (asked.length === 1) answer({ type: "reset", roomId: "lobby", epoch: "f", oldest: 4, head: 9 });
    else answer({ type: "message", roomId: "lobby", seq: 4 });
  });
  const hubbub = client(test, url, { backoffFirst: 1 });
  const resets = [];
  const heard = new Promise((resolve) => hubbub.subscribe("lobby", {
    after: 20, epoch: "e", onMessage: resolve,
    onReset: (_, reset) => {
      resets.push(reset.historyReplaced);
      sockets.at(-1).close(1001, "shutting down; reconnect after 0 ms");
    },
  }));
  hubbub.connect();
  await heard;
  assert.deepEqual([resets, asked], [[true], [[20, "e"], [0, "f"]]]);
});

test("a message that is given up keeps nothing from those behind it", async (test) => {
  const { url } = await scripted(test, (frame, answer) => { if (frame.message === "two") answer(ackOf(frame, 1)); });
  const hubbub = client(test, url, { inFlightMax: 1 });
  hubbub.connect();
  const one = hubbub.send("lobby", "one");
  const two = hubbub.send("lobby", "two");
  await reaching(hubbub, State.OPEN);
  one.cancel();
  await assert.rejects(one.done, { code: "canceled" });
  assert.equal((await two.done).seq, 1);
});

test("refusals without end fail the message, and a retry keeps its id", async (test) => {
  const ids = new Set();
  let isBetter = false;
  const { url } = await scripted(test, (frame, answer) => {
    if (frame.type !== "send") return;
    ids.add(frame.messageId);
    answer(isBetter ? ackOf(frame, 1) : { type: "error", ref: frame.ref, code: "disk_full", retryable: true });
  });
  const hubbub = client(test, url, { attemptsMax: 2, backoffFirst: 1 });
  hubbub.connect();
  const outgoing = hubbub.send("lobby", "text");
  await assert.rejects(outgoing.done, { code: "disk_full" });
  isBetter = true;
  outgoing.retry();
  assert.equal((await outgoing.done).seq, 1);
  assert.equal(ids.size, 1);
});

test("close codes that say so end the attempts, others do not", async (test) => {
  const { url, sockets } = await scripted(test, () => {});
  const hubbub = client(test, url, { backoffFirst: 1 });
  hubbub.connect();
  await reaching(hubbub, State.OPEN);
  for (const code of [4409, 1001, 1011]) {
    sockets.at(-1).close(code);
    await reaching(hubbub, State.WAITING);
    await reaching(hubbub, State.OPEN);
  }
  sockets.at(-1).close(4403, "not you");
  const state = await reaching(hubbub, State.CLOSED);
  assert.deepEqual([state.code, state.reason], [4403, "not you"]);
});

test("a connection that died without a word is replaced", async (test) => {
  let silent = null;
  const { url } = await scripted(test, (frame, answer, socket, number) => {
    if (frame.type !== "send") return;
    if (number === 1) silent = socket;
    else answer(ackOf(frame, 1));
  });
  const hubbub = client(test, url, { answerMax: 100, backoffFirst: 1 });
  hubbub.connect();
  assert.equal((await hubbub.send("lobby", "text").done).seq, 1);
  assert.notEqual(silent, null);
});

test("of all my rooms each goes on where it was, and a room one was removed from does not", async (test) => {
  const asked = [];
  let to;
  const { url, sockets } = await scripted(test, (frame, answer) => {
    if (frame.type !== "subscribe") return;
    asked.push(frame);
    to = answer;
    for (const roomId of ["a", "b"]) answer({ type: "subscribed", roomId, epoch: "e", oldest: 1, head: 7 });
    answer({ type: "message", roomId: "a", seq: 8, message: "eight" });
    answer({ type: "message", roomId: "a", seq: 8, message: "eight" });
  });
  const hubbub = client(test, url, { backoffFirst: 1 });
  const texts = [];
  const removed = [];
  hubbub.on("removed", ({ roomId }) => removed.push(roomId));
  hubbub.subscribe("*", { cursors: { a: 7, b: 5 }, onMessage: ({ message }) => {
    texts.push(message);
    if (message === "eight") to({ type: "error", code: "removed", roomId: "b" });
  } });
  hubbub.connect();
  while (removed.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  sockets.at(-1).close(1001);
  while (asked.length < 2) await new Promise((resolve) => setTimeout(resolve, 5));
  assert.deepEqual(texts, ["eight"]);
  assert.deepEqual(asked.map((frame) => frame.cursors), [{ a: 7, b: 5 }, { a: 8 }]);
  assert.deepEqual(removed, ["b"]);
});
