/** Rules of the socket's code that a healthy server shows rarely, with a WebSocket by hand. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Hubbub } from "../hubbub.js";

function engine(options = {}) {
  const sockets = [];
  class Socket {
    frames = [];
    bufferedAmount = 0;
    constructor(url, protocols) {
      this.protocols = protocols;
      sockets.push(this);
    }
    /** As in a browser, it counts until the system has it, whether or not anybody is there. */
    send(text) {
      this.frames.push(JSON.parse(text));
      this.bufferedAmount += text.length;
      setTimeout(() => { this.bufferedAmount -= text.length; }, 1);
    }
    close() {}
    say(frame) { this.onmessage({ data: JSON.stringify(frame) }); }
    ack(frame) { this.say({ type: "ack", ref: frame.ref, messageId: frame.messageId, seq: 1, epoch: "e" }); }
  }
  const hubbub = new Hubbub({ url: "http://h", WebSocket: Socket, backoffFirst: 1, backoffMax: 1, ...options });
  hubbub.connect();
  return { hubbub, sockets };
}

test("what is given up behind a ping holds nothing up, and is counted until its answer", (test) => {
  const { hubbub, sockets: [socket] } = engine();
  test.after(() => hubbub.close());
  socket.onopen();
  const givenUp = hubbub.send("r", "given up");
  socket.onping();
  givenUp.cancel();
  hubbub.send("r", "next");
  hubbub.send("s", "elsewhere");
  assert.equal(socket.frames.length, 1);
  socket.ack(socket.frames[0]);
  assert.deepEqual(socket.frames.map((frame) => frame.message), ["given up", "next", "elsewhere"]);
  assert.equal(givenUp.state, "failed");
});

test("no room waits for ever while others are busy", (test) => {
  const { hubbub, sockets: [socket] } = engine();
  test.after(() => hubbub.close());
  socket.onopen();
  const rooms = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
  for (const room of rooms) for (let count = 0; count < 40; count++) hubbub.send(room, "text");
  const served = new Map(rooms.map((room) => [room, 0]));
  for (let at = 0; at < 600; at++) {
    const { roomId } = socket.frames[at];
    served.set(roomId, served.get(roomId) + 1);
    socket.ack(socket.frames[at]);
    hubbub.send(roomId, "more");
  }
  assert.ok(Math.min(...served.values()) >= 20, JSON.stringify([...served]));
});

test("a WebSocket that cannot be made is told of, and no connection waits for it", () => {
  class Socket { constructor() { throw new SyntaxError("no such address"); } }
  const hubbub = new Hubbub({ url: "h:80", WebSocket: Socket });
  for (let i = 0; i < 2; i++) assert.throws(() => hubbub.connect(), SyntaxError);
  assert.equal(hubbub.connection.state, "idle");
});

test("what is given up and retried is a message of its own", async (test) => {
  const { hubbub, sockets: [socket] } = engine();
  test.after(() => hubbub.close());
  socket.onopen();
  const outgoing = hubbub.send("r", "text");
  outgoing.cancel();
  outgoing.retry();
  assert.equal(socket.frames.length, 2);
  socket.say({ type: "error", ref: socket.frames[0].ref, code: "bad", retryable: false });
  assert.equal(outgoing.state, "sent");
  socket.ack(socket.frames[1]);
  assert.equal((await outgoing.done).seq, 1);
});

test("the newest ones are asked for once", async (test) => {
  const { hubbub, sockets } = engine();
  test.after(() => hubbub.close());
  const again = new Promise((resolve) => hubbub.on("state", ({ state }) => { if (state === "connecting") resolve(); }));
  hubbub.subscribe("r", { last: 3 });
  sockets[0].onopen();
  const [first] = sockets[0].frames;
  sockets[0].say({ type: "subscribed", ref: first.ref, roomId: "r", epoch: "e", oldest: 1, head: 9 });
  sockets[0].onclose({ code: 1006, reason: "" });
  await again;
  sockets[1].onopen();
  const [second] = sockets[1].frames;
  assert.deepEqual([first.last, first.after], [3, undefined]);
  assert.deepEqual([second.last, second.after, second.epoch], [undefined, 6, "e"]);
});

test("a token given during the handshake is sent behind it", (test) => {
  const { hubbub, sockets: [socket] } = engine({ token: "first" });
  test.after(() => hubbub.close());
  hubbub.setToken("second");
  assert.deepEqual(socket.protocols, ["hubbub", "hubbub.bearer.first"]);
  socket.onopen();
  assert.deepEqual(socket.frames, [{ type: "auth", ref: "auth", token: "second" }]);
});

const protocolsOf = (sockets) => sockets.map(({ protocols }) => protocols[1]);
const reaching = (hubbub, wanted) => new Promise((resolve) => {
  const stop = hubbub.on("state", ({ state }) => { if (state === wanted) resolve(stop()); });
});

test("a socket that ends for its first token is followed by one with the newer token", async (test) => {
  const { hubbub, sockets } = engine({ token: "first" });
  test.after(() => hubbub.close());
  sockets[0].onopen();
  hubbub.setToken("second");
  const connecting = reaching(hubbub, "connecting");
  sockets[0].onclose({ code: 4401, reason: "the token has expired" });
  assert.equal(hubbub.connection.state, "waiting");
  await connecting;
  assert.deepEqual(protocolsOf(sockets), ["hubbub.bearer.first", "hubbub.bearer.second"]);
  sockets[1].onclose({ code: 4401, reason: "the token has expired" });
  assert.equal(hubbub.connection.state, "closed");
});

test("a handshake refused for a token that was replaced meanwhile is tried again", async (test) => {
  const { hubbub, sockets } = engine({ token: "first" });
  test.after(() => hubbub.close());
  hubbub.setToken("second");
  const connecting = reaching(hubbub, "connecting");
  sockets[0].onclose({ code: 4401, reason: "the server answered 401" });
  assert.equal(hubbub.connection.state, "waiting");
  await connecting;
  assert.deepEqual(protocolsOf(sockets), ["hubbub.bearer.first", "hubbub.bearer.second"]);
});

test("a refused handshake is not repeated before the server asks for it, nor much later than a minute", (test) => {
  for (const [retryAfter, asked] of [[5, 5_000], [3_600, 60_000]]) {
    const { hubbub, sockets: [socket] } = engine();
    test.after(() => hubbub.close());
    const before = Date.now();
    socket.onclose({ code: 1013, reason: "the server answered 503", retryAfter });
    const wait = hubbub.connection.retryAt - before;
    assert.ok(wait >= asked && wait < asked + 1_000, `${wait} ms`);
  }
});

test("what answers no frame ends the subscription of its room, whatever its code", (test) => {
  const { hubbub, sockets: [socket] } = engine();
  test.after(() => hubbub.close());
  const [removed, heard] = [[], []];
  hubbub.on("removed", ({ roomId, code }) => removed.push([roomId, code]));
  hubbub.subscribe("r", { after: 0 });
  socket.onopen();
  announce(socket, "r", "e");
  socket.say({ type: "error", roomId: "r", code: "forbidden", retryable: false });
  assert.deepEqual(removed, [["r", "forbidden"]]);
  hubbub.subscribe("r", { after: 0, onSubscribed: (room) => heard.push(room) });
  socket.say({ type: "error", ref: socket.frames[0].ref, roomId: "r", code: "removed", retryable: false });
  assert.equal(removed.length, 1, "an answer to the one before ends no other");
  socket.say({ type: "subscribed", ref: socket.frames.at(-1).ref, roomId: "r", epoch: "e", oldest: 1, head: 9 });
  assert.deepEqual(heard, ["r"]);
});

test("what concerns the subscription before is not taken by the next one", (test) => {
  const { hubbub, sockets: [socket] } = engine();
  test.after(() => hubbub.close());
  const resets = [];
  const { unsubscribe } = hubbub.subscribe("r", { after: 2 });
  socket.onopen();
  announce(socket, "r", "e");
  unsubscribe();
  const next = hubbub.subscribe("r", { after: 7, epoch: "e", onReset: (room) => resets.push(room) });
  reset(socket, "r", "e");
  socket.say({ type: "error", roomId: "r", code: "forbidden", retryable: false });
  socket.say({ type: "unsubscribed", roomId: "r" });
  assert.deepEqual([next.cursor, socket.frames.at(-1).after, resets], [{ epoch: "e", seq: 7 }, 7, []]);
});

test("the pause after a refusal ends with its connection", (test) => {
  const { hubbub, sockets } = engine({ backoffFirst: 100, backoffMax: 10_000 });
  test.after(() => hubbub.close());
  test.mock.timers.enable({ apis: ["setTimeout"] });
  const refuse = (socket) =>
    socket.say({ type: "error", ref: socket.frames[0].ref, code: "overloaded", retryable: true });
  sockets[0].onopen();
  hubbub.send("r", "text");
  refuse(sockets[0]);
  sockets[0].onclose({ code: 1006, reason: "" });
  hubbub.connect();
  sockets[1].onopen();
  refuse(sockets[1]);
  // The first pause would be over, the second takes 100 to 200 ms.
  test.mock.timers.tick(99);
  assert.equal(sockets[1].frames.length, 1);
  test.mock.timers.tick(101);
  assert.equal(sockets[1].frames.length, 2);
});

/** Connects again, as after a cut. @returns the new socket, with its `subscribe` as first frame */
async function again(hubbub, sockets) {
  const connecting = new Promise((resolve) => {
    const stop = hubbub.on("state", ({ state }) => { if (state === "connecting") resolve(stop()); });
  });
  sockets.at(-1).onclose({ code: 1006, reason: "" });
  await connecting;
  sockets.at(-1).onopen();
  return sockets.at(-1);
}

const announce = (socket, roomId, epoch, more) =>
  socket.say({ type: "subscribed", ref: socket.frames[0].ref, roomId, epoch, oldest: 1, head: 9, ...more });
const live = (socket) => socket.say({ type: "subscribed", ref: socket.frames[0].ref, roomId: "*", rooms: 1 });

test("no cursor of an older history goes out with the epoch of a newer one", async (test) => {
  const { hubbub, sockets } = engine();
  test.after(() => hubbub.close());
  const resets = [];
  hubbub.subscribe("*", {
    cursors: { a: 5, b: 7 }, epoch: "old",
    onReset: (room, { historyReplaced }) => resets.push([room, historyReplaced]),
  });
  sockets[0].onopen();
  announce(sockets[0], "a", "new");
  sockets[0].say({ type: "reset", roomId: "a", epoch: "new", oldest: 1, head: 9 });
  sockets[0].say({ type: "message", roomId: "a", seq: 1 });
  announce(sockets[0], "b", "new");
  // Cut before the reset of b.
  const second = await again(hubbub, sockets);
  assert.deepEqual([second.frames[0].cursors, second.frames[0].epoch], [{ a: 1, b: 7 }, "old"]);
  for (const roomId of ["a", "b"]) {
    announce(second, roomId, "new");
    second.say({ type: "reset", roomId, epoch: "new", oldest: 1, head: 9 });
  }
  live(second);
  const third = await again(hubbub, sockets);
  assert.deepEqual([third.frames[0].cursors, third.frames[0].epoch], [{ a: 0, b: 0 }, "new"]);
  assert.deepEqual(resets, [["a", true], ["a", false], ["b", true]]);
});

test("a room that a restored history took away begins anew when it comes back", async (test) => {
  const { hubbub, sockets } = engine();
  test.after(() => hubbub.close());
  const seen = [];
  hubbub.subscribe("*", {
    cursors: { a: 5, b: 7 }, epoch: "old",
    onReset: (room, { historyReplaced }) => seen.push(`reset ${room} ${historyReplaced}`),
    onMessage: ({ seq }) => seen.push(seq),
  });
  sockets[0].onopen();
  announce(sockets[0], "a", "new");
  sockets[0].say({ type: "reset", roomId: "a", epoch: "new", oldest: 1, head: 9 });
  live(sockets[0]);
  const second = await again(hubbub, sockets);
  assert.deepEqual([second.frames[0].cursors, second.frames[0].epoch], [{ a: 0 }, "new"]);
  announce(second, "b", "new", { readSeq: 4 });
  second.say({ type: "message", roomId: "b", seq: 5 });
  assert.deepEqual(seen, ["reset a true", "reset b true", 5]);
});

test("a room joined later begins with the first message that comes, wherever the read mark is by now", async (test) => {
  const { hubbub, sockets: [socket] } = engine();
  test.after(() => hubbub.close());
  const heard = [];
  hubbub.subscribe("*", { onMessage: ({ seq }) => heard.push(seq) });
  socket.onopen();
  live(socket);
  announce(socket, "r", "e", { readSeq: 6 });
  for (const seq of [4, 5, 5, 7]) socket.say({ type: "message", roomId: "r", seq });
  assert.deepEqual(heard, [4, 5, 7]);
});

test("the newest ones have a position before the first of them came", (test) => {
  const { hubbub, sockets: [socket] } = engine();
  test.after(() => hubbub.close());
  const subscription = hubbub.subscribe("r", { last: 3 });
  socket.onopen();
  announce(socket, "r", "e");
  assert.deepEqual(subscription.cursor, { epoch: "e", seq: 6 });
});

test("a read mark that was refused goes out again, the newest of each room", async (test) => {
  const { hubbub, sockets: [socket] } = engine();
  test.after(() => hubbub.close());
  socket.onopen();
  const refuse = ({ ref }, more) => socket.say({ type: "error", ref, code: "overloaded", retryable: true, ...more });
  const marks = () => socket.frames.splice(0).map(({ roomId, seq }) => [roomId, seq]);
  hubbub.markRead("r", 1);
  hubbub.markRead("s", 7);
  socket.frames.forEach((frame) => refuse(frame));
  hubbub.markRead("r", 2);
  assert.deepEqual(marks(), [["r", 1], ["s", 7], ["r", 2]]);
  while (socket.frames.length < 2) await new Promise((resolve) => setTimeout(resolve, 1));
  const answered = [...socket.frames];
  assert.deepEqual(marks(), [["r", 2], ["s", 7]]);
  for (const { ref, roomId, seq } of answered) socket.say({ type: "read", ref, roomId, seq });
  hubbub.markRead("r", 3);
  hubbub.markRead("s", 8);
  refuse(socket.frames[0], { code: "not_member", retryable: false });
  refuse(socket.frames[1]);
  hubbub.close();
  socket.frames.length = 0;
  await new Promise((resolve) => setTimeout(resolve, 5));
  assert.deepEqual(marks(), []);
});

const marksOf = (socket) =>
  socket.frames.filter(({ type }) => type === "read").map(({ roomId, seq }) => [roomId, seq]);
const reset = (socket, roomId, epoch) => socket.say({ type: "reset", roomId, epoch, oldest: 1, head: 9 });

test("a mark without an answer goes out again once its room is announced, unless its history was replaced", async (test) => {
  const { hubbub, sockets } = engine();
  test.after(() => hubbub.close());
  hubbub.subscribe("*");
  sockets[0].onopen();
  for (const room of ["same", "other"]) announce(sockets[0], room, "e1", { readSeq: 0 });
  hubbub.markRead("same", 5);
  hubbub.markRead("other", 6);
  assert.deepEqual(marksOf(sockets[0]), [["same", 5], ["other", 6]]);
  const second = await again(hubbub, sockets);
  assert.deepEqual(marksOf(second), []);
  announce(second, "other", "e2", { readSeq: 0 });
  hubbub.markRead("late", 7);
  assert.deepEqual(marksOf(second), []);
  announce(second, "same", "e1", { readSeq: 0 });
  assert.deepEqual(marksOf(second), [["same", 5]]);
  live(second);
  assert.deepEqual(marksOf(second), [["same", 5], ["late", 7]], "a room that is not announced is none of mine");
  reset(second, "other", "e2");
  hubbub.markRead("other", 1);
  assert.deepEqual(marksOf(second).at(-1), ["other", 1]);
  reset(second, "other", "e3");
  assert.deepEqual(marksOf(await again(hubbub, sockets)), []);
});

test("marks of rooms that nothing follows wait for nobody", async (test) => {
  const { hubbub, sockets } = engine();
  test.after(() => hubbub.close());
  hubbub.subscribe("followed");
  sockets[0].onopen();
  hubbub.markRead("followed", 1);
  hubbub.markRead("elsewhere", 2);
  assert.deepEqual(marksOf(sockets[0]), [["elsewhere", 2]]);
  announce(sockets[0], "followed", "e1");
  assert.deepEqual(marksOf(sockets[0]), [["elsewhere", 2], ["followed", 1]]);
  assert.deepEqual(marksOf(await again(hubbub, sockets)), [["elsewhere", 2]]);
});

test("a mark waits for no announcement that does not come, nor goes out between one and its reset", (test) => {
  const { hubbub, sockets: [socket] } = engine();
  test.after(() => hubbub.close());
  hubbub.subscribe("*");
  socket.onopen();
  hubbub.markRead("left", 1);
  const { unsubscribe } = hubbub.subscribe("left");
  hubbub.markRead("refused", 2);
  hubbub.subscribe("refused");
  unsubscribe();
  assert.deepEqual(marksOf(socket), [], "with all rooms they may be announced yet");
  const refOf = (room) => socket.frames.find(({ type, roomId }) => type === "subscribe" && roomId === room).ref;
  socket.say({ type: "error", ref: refOf("*"), code: "too_many_subscriptions", retryable: false });
  assert.deepEqual(marksOf(socket), [["left", 1]]);
  socket.say({ type: "error", ref: refOf("refused"), code: "invalid", retryable: false });
  assert.deepEqual(marksOf(socket), [["left", 1], ["refused", 2]]);
  hubbub.subscribe("r", { after: 5, epoch: "e1" });
  announce(socket, "r", "e2", { ref: refOf("r") });
  hubbub.markRead("r", 5);
  reset(socket, "r", "e2");
  hubbub.markRead("r", 3);
  assert.deepEqual(marksOf(socket), [["left", 1], ["refused", 2], ["r", 3]]);
});

test("a mark that is answered or refused for good keeps later ones from nothing", (test) => {
  const { hubbub, sockets: [socket] } = engine();
  test.after(() => hubbub.close());
  hubbub.subscribe("r");
  socket.onopen();
  announce(socket, "r", "e1");
  hubbub.markRead("r", 500);
  socket.say({ type: "read", ref: socket.frames.at(-1).ref, roomId: "r", seq: 9, unread: 0, head: 9 });
  hubbub.markRead("r", 11);
  assert.deepEqual(marksOf(socket), [["r", 500], ["r", 11]]);
  const errors = [];
  hubbub.on("error", (error) => errors.push(error));
  socket.say({ type: "error", ref: socket.frames.at(-1).ref, code: "not_member", retryable: false });
  hubbub.markRead("r", 0);
  assert.deepEqual(marksOf(socket).at(-1), ["r", 0]);
  assert.deepEqual(errors, []);
});

test("what listeners throw stops nothing, and is reported", async (test) => {
  const thrown = [];
  const listeners = process.listeners("uncaughtException");
  process.removeAllListeners("uncaughtException");
  process.on("uncaughtException", (error) => thrown.push(error.message));
  test.after(() => {
    process.removeAllListeners("uncaughtException");
    for (const listener of listeners) process.on("uncaughtException", listener);
  });
  const { hubbub, sockets } = engine();
  const fail = (what) => () => { throw new Error(what); };
  for (const event of ["state", "outgoing"]) hubbub.on(event, fail(event));
  hubbub.subscribe("r", { after: 0, onSubscribed: fail("subscribed"), onMessage: fail("message"), onReset: fail("reset") });
  const outgoing = hubbub.send("r", "text");
  const connecting = reaching(hubbub, "connecting");
  sockets[0].onopen();
  assert.deepEqual(sockets[0].frames.map(({ type }) => type), ["subscribe", "send"]);
  sockets[0].onclose({ code: 1006, reason: "" });
  await connecting;
  sockets[1].onopen();
  const [subscribe, send] = sockets[1].frames;
  const position = { roomId: "r", epoch: "e", oldest: 1, head: 9 };
  sockets[1].say({ type: "subscribed", ref: subscribe.ref, ...position });
  sockets[1].say({ type: "message", roomId: "r", seq: 1 });
  sockets[1].say({ type: "reset", ...position });
  sockets[1].ack(send);
  assert.equal((await outgoing.done).seq, 1);
  hubbub.close();
  await new Promise(setImmediate);
  assert.deepEqual([...new Set(thrown)].sort(), ["message", "outgoing", "reset", "state", "subscribed"]);
});

test("nothing waits for a connection that has ended for good, but for want of a token", async (test) => {
  for (const [end, detail] of [
    [(hubbub) => hubbub.close(), "the client was closed"],
    [(hubbub, socket) => socket.onclose({ code: 4403, reason: "no" }), "the server closed the connection for good: no"],
  ]) {
    const { hubbub, sockets: [socket] } = engine();
    test.after(() => hubbub.close());
    const before = hubbub.send("r", "before");
    end(hubbub, socket);
    for (const { done } of [before, hubbub.send("r", "after")]) await assert.rejects(done, { code: "closed", message: detail });
    assert.equal(hubbub.waiting, 0);
  }
  const { hubbub, sockets } = engine({ token: "first" });
  test.after(() => hubbub.close());
  sockets[0].onclose({ code: 4401, reason: "expired" });
  const outgoing = hubbub.send("r", "text");
  hubbub.setToken("second");
  sockets[1].onopen();
  sockets[1].ack(sockets[1].frames[0]);
  assert.equal((await outgoing.done).seq, 1);
});

test("whoever sends while told that a socket is gone, waits for the next", (test) => {
  const { hubbub, sockets: [socket] } = engine();
  test.after(() => hubbub.close());
  socket.onopen();
  hubbub.send("r", "text");
  let late;
  const stop = hubbub.on("outgoing", ({ state }) => {
    if (state !== "queued") return;
    stop();
    late = hubbub.send("s", "late");
  });
  socket.onclose({ code: 1006, reason: "" });
  assert.deepEqual([late.state, hubbub.waiting], ["queued", 2]);
});

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

test("a connection lives while its bytes move, in either direction", async (test) => {
  for (const move of [(socket) => { socket.bufferedAmount -= 1; }, (socket) => { socket.bytesRead += 1; }]) {
    const { hubbub, sockets } = engine({ answerMax: 100, silenceMax: 100 });
    test.after(() => hubbub.close());
    Object.assign(sockets[0], { bufferedAmount: 1_000, bytesRead: 0 });
    sockets[0].onopen();
    hubbub.send("r", "text");
    for (let i = 0; i < 20; i++) {
      await wait(25);
      move(sockets[0]);
    }
    assert.deepEqual([sockets.length, hubbub.connection.state], [1, "open"]);
    while (hubbub.connection.reason !== "no answer") await wait(10);
  }
});

test("what goes out is no sign that anybody is there", async (test) => {
  for (const talks of [false, true]) {
    const { hubbub, sockets: [socket] } = engine({ answerMax: 100, silenceMax: 100 });
    test.after(() => hubbub.close());
    const lost = reaching(hubbub, "waiting");
    socket.onopen();
    const talking = talks && setInterval(() => { for (const room of ["r", "s"]) hubbub.send(room, "text"); }, 40);
    await Promise.race([lost, wait(800)]);
    clearInterval(talking);
    assert.equal(hubbub.connection.reason, "no answer");
    if (!talks) assert.deepEqual(socket.frames, [{ type: "ping" }]);
  }
});

test("a probe tells whether the connection lives, and leaves it the time of any answer", async (test) => {
  const { hubbub, sockets } = engine({ answerMax: 200 });
  test.after(() => hubbub.close());
  sockets[0].onopen();
  await wait(5);
  hubbub.probe();
  hubbub.probe();
  assert.deepEqual(sockets[0].frames, [{ type: "ping" }]);
  await wait(100);
  sockets[0].say({ type: "pong" });
  await wait(300);
  assert.equal(hubbub.connection.state, "open");
  const lost = reaching(hubbub, "waiting");
  const askedAt = performance.now();
  hubbub.probe();
  await Promise.race([lost, wait(2_000)]);
  assert.ok(performance.now() - askedAt >= 200);
  assert.equal(hubbub.connection.reason, "no answer");
  hubbub.probe();
  assert.deepEqual([sockets.length, hubbub.connection.state], [2, "connecting"]);
});

test("what is given up tells why there was no connection, and so does the state while it is tried again", async (test) => {
  const { hubbub, sockets: [socket] } = engine();
  test.after(() => hubbub.close());
  const outgoing = hubbub.send("r", "text");
  const connecting = reaching(hubbub, "connecting");
  socket.onclose({ code: 1006, reason: "connect ECONNREFUSED" });
  await Promise.all([connecting, wait(50)]);
  assert.equal(hubbub.connection.reason, "connect ECONNREFUSED");
  outgoing.cancel();
  await assert.rejects(outgoing.done, { code: "canceled", message: "the message was given up; it may be stored; not connected: connect ECONNREFUSED" });
});
