/** How the chat page counts: its model in Node, against frames and answers by hand. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Room } from "../../web/app/room.js";
import { started } from "./by-hand.mjs";

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

test("what was told of an older head comes too late, and is not taken", () => {
  const room = new Room("r");
  room.takeMark(1, 5, 6);
  room.takeMark(1, 0, 1);
  assert.deepEqual(states(room), { readSeq: 1, unread: 5, unseen: 5 });
  // Some of them were erased.
  room.takeMark(1, 3, 6);
  assert.deepEqual(states(room), { readSeq: 1, unread: 3, unseen: 3 });
});

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
