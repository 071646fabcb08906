/** How the chat page counts: its model in Node, against frames and answers by hand. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Hubbub } from "../../web/hubbub.js";
import { Model } from "../../web/app/model.js";
import { Room } from "../../web/app/room.js";

const states = ({ readSeq, unread, unseen }) => ({ readSeq, unread, unseen });

test("what was asked for is shown as read, and counted when the server says so", () => {
  const room = new Room("r");
  room.takeMark(0, 0, 0);
  room.hear(1, false);
  room.asked = 1;
  assert.deepEqual(states(room), { readSeq: 0, unread: 1, unseen: 0 });
  // Stored before the mark came to the server: there it stays unread.
  room.hear(2, true);
  room.hear(3, false);
  assert.deepEqual(states(room), { readSeq: 0, unread: 3, unseen: 1 });
  room.takeMark(1, 1, 2);
  assert.deepEqual(states(room), { readSeq: 1, unread: 2, unseen: 2 });
});

test("the first mark that the server tells is taken, later ones only forward", () => {
  const room = new Room("r");
  room.hear(5, true);
  room.takeMark(4, 1, 5);
  assert.deepEqual(states(room), { readSeq: 4, unread: 1, unseen: 1 });
  room.takeMark(3, 2, 5);
  assert.deepEqual(states(room), { readSeq: 4, unread: 1, unseen: 1 });
});

/** A model of ada, a member of `rooms`, and the socket that it opened. */
async function started(test, rooms) {
  let socket;
  const given = { WebSocket: globalThis.WebSocket, fetch: globalThis.fetch };
  globalThis.WebSocket = class {
    frames = [];
    constructor() { socket = this; }
    send(text) { this.frames.push(JSON.parse(text)); }
    close() {}
    say(frame) { this.onmessage({ data: JSON.stringify(frame) }); }
  };
  const http = {
    rooms,
    answer(url) {
      const { pathname } = new URL(url);
      const rest = pathname.endsWith("/messages") ? { messages: [] } : { rooms: this.rooms, members: [], users: [] };
      return new Response(JSON.stringify({ next: null, epoch: "e", ...rest }));
    },
  };
  globalThis.fetch = async (url) => http.answer(url);
  const model = new Model({ user: "ada", name: "Ada", url: "http://h" });
  test.after(() => {
    model.client.close();
    Object.assign(globalThis, given);
  });
  model.client.connect();
  socket.onopen();
  while (!model.isLoaded) await new Promise((resolve) => setTimeout(resolve, 1));
  const { ref } = socket.frames.find(({ type }) => type === "subscribe");
  const announce = (roomId, more) => socket.say({ type: "subscribed", ref, roomId, epoch: "e", oldest: 1, ...more });
  const marks = () => socket.frames.filter(({ type }) => type === "read").map(({ roomId, seq }) => [roomId, seq]);
  const answer = (frame) => socket.say({ type: "read", ref: socket.frames.at(-1).ref, ...frame });
  return { model, socket, announce, marks, answer, http, newest: () => socket };
}

test("an announced mark is not taken: it is newer than the messages that follow", async (test) => {
  const { model, socket, announce, marks } = await started(test, [{ roomId: "r", head: 0, readSeq: 0, unread: 0 }]);
  announce("r", { readSeq: 1, head: 2 });
  socket.say({ type: "message", roomId: "r", userId: "bob", seq: 1 });
  socket.say({ type: "message", roomId: "r", userId: "ada", seq: 2 });
  assert.deepEqual(states(model.rooms.get("r")), { readSeq: 0, unread: 2, unseen: 2 });
  socket.say({ type: "read", roomId: "r", seq: 1, unread: 1, head: 2 });
  assert.deepEqual(states(model.rooms.get("r")), { readSeq: 1, unread: 1, unseen: 1 });
  assert.deepEqual(marks(), []);
});

test("of a room joined later, mark and count are asked for", async (test) => {
  const { model, socket, announce, marks, answer } = await started(test, []);
  announce("r", { readSeq: 6, head: 7 });
  socket.say({ type: "message", roomId: "r", userId: "bob", seq: 5 });
  assert.deepEqual(marks(), [["r", 0]]);
  answer({ roomId: "r", seq: 6, unread: 1, head: 7 });
  for (const seq of [6, 7, 8]) socket.say({ type: "message", roomId: "r", userId: "bob", seq });
  assert.deepEqual(states(model.rooms.get("r")), { readSeq: 6, unread: 2, unseen: 2 });
});

test("a message of one's own that crossed the mark is marked as well", async (test) => {
  const { model, socket, announce, marks, answer } = await started(test, [{ roomId: "r", head: 0, readSeq: 0, unread: 0 }]);
  model.open("r");
  while (!model.current.log.isReady) await new Promise((resolve) => setTimeout(resolve, 1));
  announce("r", { readSeq: 0, head: 0 });
  const say = (userId, seq) => socket.say({ type: "message", roomId: "r", userId, seq, messageId: `m${seq}` });
  say("bob", 1);
  model.markRead();
  say("ada", 2);
  answer({ roomId: "r", seq: 1, unread: 1, head: 2 });
  model.markRead();
  model.markRead();
  assert.deepEqual(marks(), [["r", 1], ["r", 2]]);
  assert.deepEqual(states(model.current), { readSeq: 1, unread: 1, unseen: 0 });
});

/** A client on sockets by hand, connected. `again` replaces a connection that is lost. */
async function connected(test, subscribed) {
  const sockets = [];
  class ByHand {
    frames = [];
    constructor() { sockets.push(this); }
    send(text) { this.frames.push(JSON.parse(text)); }
    close() {}
    say(frame) { this.onmessage({ data: JSON.stringify(frame) }); }
    get marks() { return this.frames.filter(({ type }) => type === "read").map(({ roomId, seq }) => [roomId, seq]); }
    announce(roomId, epoch) {
      const { ref } = this.frames.findLast(({ type }) => type === "subscribe");
      this.say({ type: "subscribed", ref, roomId, epoch, oldest: 1, head: 9, readSeq: 0 });
    }
  }
  const client = new Hubbub({ user: "ada", url: "http://h", WebSocket: ByHand, backoffFirst: 1 });
  test.after(() => client.close());
  const next = async () => {
    const count = sockets.length;
    while (sockets.length === count) await new Promise((resolve) => setTimeout(resolve, 1));
    sockets.at(-1).onopen();
    return sockets.at(-1);
  };
  client.subscribe(subscribed);
  client.connect();
  sockets[0].onopen();
  const again = async () => {
    const coming = next();
    sockets.at(-1).onclose({ code: 1006, reason: "" });
    return coming;
  };
  return { client, socket: sockets[0], again };
}

test("a mark without an answer goes out again once its room is announced, unless its history was replaced", async (test) => {
  const { client, socket, again } = await connected(test, "*");
  for (const room of ["same", "other"]) socket.announce(room, "e1");
  client.markRead("same", 5);
  client.markRead("other", 6);
  assert.deepEqual(socket.marks, [["same", 5], ["other", 6]]);
  const second = await again();
  assert.deepEqual(second.marks, []);
  second.announce("other", "e2");
  client.markRead("late", 7);
  assert.deepEqual(second.marks, []);
  second.announce("same", "e1");
  assert.deepEqual(second.marks, [["same", 5]]);
  const [{ ref }] = second.frames.filter(({ type }) => type === "subscribe");
  second.say({ type: "subscribed", ref, roomId: "*", rooms: 2 });
  assert.deepEqual(second.marks, [["same", 5], ["late", 7]], "a room that is not announced is none of mine");
  second.say({ type: "reset", roomId: "other", epoch: "e2", oldest: 1, head: 9 });
  client.markRead("other", 1);
  assert.deepEqual(second.marks.at(-1), ["other", 1]);
  second.say({ type: "reset", roomId: "other", epoch: "e3", oldest: 1, head: 0 });
  assert.deepEqual((await again()).marks, []);
});

test("marks of rooms that nothing follows wait for nobody", async (test) => {
  const { client, socket, again } = await connected(test, "followed");
  client.markRead("followed", 1);
  client.markRead("elsewhere", 2);
  assert.deepEqual(socket.marks, [["elsewhere", 2]]);
  socket.announce("followed", "e1");
  assert.deepEqual(socket.marks, [["elsewhere", 2], ["followed", 1]]);
  assert.deepEqual((await again()).marks, [["elsewhere", 2]]);
});

test("a mark waits for no announcement that does not come, nor goes out between one and its reset", async (test) => {
  const { client, socket } = await connected(test, "*");
  client.markRead("left", 1);
  const { unsubscribe } = client.subscribe("left");
  client.markRead("refused", 2);
  client.subscribe("refused");
  unsubscribe();
  assert.deepEqual(socket.marks, [], "with all rooms they may be announced yet");
  const all = socket.frames.find(({ roomId }) => roomId === "*");
  client.on("error", () => {});
  socket.say({ type: "error", ref: all.ref, code: "too_many_subscriptions", retryable: false });
  assert.deepEqual(socket.marks, [["left", 1]]);
  const own = socket.frames.find(({ type, roomId }) => type === "subscribe" && roomId === "refused");
  socket.say({ type: "error", ref: own.ref, code: "invalid", retryable: false });
  assert.deepEqual(socket.marks, [["left", 1], ["refused", 2]]);
  client.subscribe("r", { after: 5, epoch: "e1" });
  socket.announce("r", "e2");
  client.markRead("r", 5);
  socket.say({ type: "reset", roomId: "r", epoch: "e2", oldest: 1, head: 9 });
  client.markRead("r", 3);
  assert.deepEqual(socket.marks.at(-1), ["r", 3]);
});

test("a mark that is answered or refused for good keeps later ones from nothing", async (test) => {
  const { client, socket } = await connected(test, "r");
  socket.announce("r", "e1");
  client.markRead("r", 500);
  socket.say({ type: "read", ref: socket.frames.at(-1).ref, roomId: "r", seq: 9, unread: 0, head: 9 });
  client.markRead("r", 11);
  assert.deepEqual(socket.marks, [["r", 500], ["r", 11]]);
  const errors = [];
  client.on("error", (error) => errors.push(error));
  socket.say({ type: "error", ref: socket.frames.at(-1).ref, code: "not_member", retryable: false });
  client.markRead("r", 0);
  assert.deepEqual(socket.marks.at(-1), ["r", 0]);
  assert.deepEqual(errors, []);
});

test("the list of rooms is asked for again where it could not be had", async (test) => {
  const { model, socket, http, newest } = await started(test, []);
  test.mock.method(console, "warn", () => {});
  let refused = 0;
  const { answer } = http;
  Object.assign(http, {
    rooms: [{ roomId: "r", head: 0, readSeq: 0, unread: 0 }],
    answer(url) {
      if (refused > 0) return answer.call(http, url);
      refused += 1;
      return new Response("<html>Bad Gateway", { status: 502 });
    },
  });
  socket.onclose({ code: 1006, reason: "" });
  while (newest() === socket) await new Promise((resolve) => setTimeout(resolve, 5));
  newest().onopen();
  while (!model.rooms.has("r")) await new Promise((resolve) => setTimeout(resolve, 5));
  assert.equal(refused, 1);
});
