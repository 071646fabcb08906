/** What the chat page's model makes of news, late answers and failures: in Node, by hand. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Log } from "../../web/app/log.js";
import { Names } from "../../web/app/names.js";
import { ask, sentenceOf } from "../../web/app/request.js";
import { started } from "./by-hand.mjs";

const message = (seq) => ({ seq, messageId: `m${seq}`, roomId: "r", userId: "bob", messageType: "TEXT", message: `${seq}`, receivedAt: "" });
const mine = { roomId: "r", head: 0, readSeq: 0, unread: 0 };

async function until(isSo) {
  while (!isSo()) await sleep(2);
}

/** A log of one message whose history `fails` as long as it is set, and what it asked for. */
function logThat(error) {
  const state = { error, asked: 0, changes: [] };
  state.log = new Log(async () => {
    state.asked += 1;
    if (state.error) throw state.error;
    return { messages: [message(state.asked)], next: 7 };
  }, (change) => state.changes.push(change));
  return state;
}

test("a page of history that failed is not asked for again before a pause, which grows", async (test) => {
  test.mock.timers.enable({ apis: ["setTimeout"] });
  const state = logThat(null);
  await state.log.reload();
  state.error = { code: "unavailable", retryable: true };
  for (const pause of [1_000, 2_000, 4_000]) {
    state.asked = 0;
    await state.log.older();
    for (let frame = 0; frame < 60; frame++) await state.log.older();
    assert.equal(state.asked, 1);
    state.changes.length = 0;
    test.mock.timers.tick(pause - 1);
    assert.deepEqual(state.changes, []);
    test.mock.timers.tick(1);
    assert.deepEqual(state.changes, ["pause over"]);
    state.log.retry();
  }
  state.error = null;
  await state.log.older();
  assert.equal(state.log.length, 2);
});

test("history that is refused for good is not asked for at each frame", async () => {
  const state = logThat(null);
  await state.log.reload();
  state.error = { code: "forbidden", retryable: false };
  for (let frame = 0; frame < 60; frame++) await state.log.older();
  assert.equal(state.asked, 2);
});

test("the first page of a room's history is asked for again where it failed", async (test) => {
  const { model, http } = await started(test, [mine]);
  const { answer } = http;
  let failures = 0;
  http.answer = (url) => {
    if (!url.includes("/rooms/r/messages")) return answer.call(http, url);
    return failures++ === 0 ? new Response("{}", { status: 503 }) : new Response(JSON.stringify({ messages: [message(1)], next: null }));
  };
  model.open("r");
  await until(() => model.current.log.isReady);
  assert.deepEqual([failures, model.current.log.length], [2, 1]);
});

test("what was said between being removed and added again is loaded", async (test) => {
  const { model, socket, announce, http } = await started(test, [mine]);
  const { answer } = http;
  let said = [message(1)];
  http.answer = (url) => (url.includes("/rooms/r/messages") ? new Response(JSON.stringify({ messages: said, next: null })) : answer.call(http, url));
  announce("r", { head: 0, readSeq: 0 });
  model.open("r");
  await until(() => model.current.log.isReady);
  socket.say({ type: "error", code: "removed", roomId: "r" });
  said = [1, 2, 3].map(message);
  announce("r", { head: 3, readSeq: 3 });
  socket.say({ type: "message", ...message(4) });
  await until(() => model.current.log.length >= 3 && !model.current.log.isLoading);
  assert.deepEqual([1, 2, 3].map((seq) => model.current.log.holds(`m${seq}`)), [true, true, true]);
});

test("who is removed from the open room looks on as a guest, and misses nothing when added again", async (test) => {
  const { model, socket, announce, http } = await started(test, [mine]);
  const { answer } = http;
  let said = { messages: [message(1)], next: null };
  let status = 200;
  http.answer = (url) => (url.includes("/rooms/r/messages") ? new Response(JSON.stringify(said), { status }) : answer.call(http, url));
  model.open("r");
  await until(() => model.current.log.isReady);
  [said, status] = [{ code: "not_member", status: 403, detail: "" }, 403];
  socket.say({ type: "error", code: "removed", roomId: "r" });
  const named = socket.frames.filter(({ type, roomId }) => type === "subscribe" && roomId === "r");
  assert.equal(named.length, 1);
  socket.say({ type: "error", code: "not_member", roomId: "r", ref: named[0].ref });
  await until(() => model.current.log.error);
  [said, status] = [{ messages: [1, 2, 3].map(message), next: null }, 200];
  announce("r", { head: 3, readSeq: 3 });
  socket.say({ type: "message", ...message(4) });
  await until(() => model.current.log.isReady && !model.current.log.isLoading);
  assert.deepEqual([1, 2, 3].map((seq) => model.current.log.holds(`m${seq}`)), [true, true, true]);
});

test("a membership that the list told first leaves no gap", async (test) => {
  const { model, socket, announce, http } = await started(test, [mine]);
  const { answer } = http;
  let said = [message(1)];
  http.answer = (url) => (url.includes("/rooms/r/messages") ? new Response(JSON.stringify({ messages: said, next: null })) : answer.call(http, url));
  model.open("r");
  await until(() => model.current.log.isReady);
  socket.say({ type: "error", code: "removed", roomId: "r" });
  await until(() => model.current.log.isReady);
  said = [1, 2, 3].map(message);
  await model.roomList.load();
  assert.equal(model.current.isMember, true);
  announce("r", { head: 3, readSeq: 3 });
  socket.say({ type: "message", ...message(4) });
  await until(() => model.current.log.length >= 3 && !model.current.log.isLoading);
  assert.deepEqual([1, 2, 3].map((seq) => model.current.log.holds(`m${seq}`)), [true, true, true]);
});

test("of what is on the way only texts are kept, for their user", async (test) => {
  const kept = new Map();
  globalThis.sessionStorage = {
    getItem: (key) => kept.get(key) ?? null, setItem: (key, text) => kept.set(key, text), removeItem: (key) => kept.delete(key),
  };
  test.after(() => { delete globalThis.sessionStorage; });
  const { model } = await started(test, [mine]);
  model.client.send("r", "left", { messageType: "LEAVE" }).done.catch(() => {});
  model.client.send("r", "text").done.catch(() => {});
  assert.deepEqual([...kept.keys()], ["hubbub.outbox.ada"]);
  assert.deepEqual(JSON.parse(kept.get("hubbub.outbox.ada")).map(({ message }) => message), ["text"]);
});

test("a guest whose following was ended follows again, and is told if that is refused", async (test) => {
  const { model, socket } = await started(test, []);
  model.open("r");
  const subscribes = () => socket.frames.filter(({ type, roomId }) => type === "subscribe" && roomId === "r");
  socket.say({ type: "subscribed", ref: subscribes()[0].ref, roomId: "r", epoch: "e", oldest: 1, head: 0 });
  socket.say({ type: "error", code: "removed", roomId: "r" });
  assert.equal(subscribes().length, 2);
  socket.say({ type: "error", code: "not_member", roomId: "r", ref: subscribes()[1].ref });
  assert.equal(model.current.isClosed, true);
  assert.equal(model.current.subscription, null);
});

test("the list of rooms does not undo what the socket told meanwhile", async (test) => {
  const { model, socket, announce, http } = await started(test, [mine]);
  const { answer } = http;
  let release;
  const held = new Promise((resolve) => { release = resolve; });
  // Answered as things stood when it was asked: with r, without s.
  let asked = 0;
  http.answer = async (url) => {
    const now = answer.call(http, url);
    if (!url.includes("/users/ada/rooms")) return now;
    asked += 1;
    await held;
    return now;
  };
  // A room of no list: whoever joins asks for the list.
  model.join("t").catch(() => {});
  await until(() => asked > 0);
  socket.say({ type: "error", code: "removed", roomId: "r" });
  announce("s", { head: 0, readSeq: 0 });
  release();
  await sleep(50);
  assert.deepEqual(model.list.map((room) => room.roomId), ["s"]);
});

test("a title that is removed is shown no longer, and a name from the address is kept", async (test) => {
  const { model, socket, http, newest } = await started(test, [{ ...mine, title: "Tea" }]);
  assert.equal(model.rooms.get("r").name, "Tea");
  http.rooms = [mine];
  model.open("n--o", "N O");
  socket.onclose({ code: 1006, reason: "" });
  await until(() => newest() !== socket);
  newest().onopen();
  await sleep(50);
  assert.equal(model.rooms.get("r").name, "r");
  assert.equal(model.current.name, "N O");
});

test("of a large room all members are counted", async (test) => {
  const { model, http, announce } = await started(test, [mine]);
  const { answer } = http;
  http.answer = (url) => {
    const { pathname } = new URL(url);
    if (pathname === "/v1/rooms/r") return new Response(JSON.stringify({ roomId: "r", members: 1_234 }));
    if (pathname !== "/v1/rooms/r/members") return answer.call(http, url);
    const members = Array.from({ length: 500 }, (_, index) => ({ userId: `user-${index}` }));
    return new Response(JSON.stringify({ members, next: "user-499" }));
  };
  announce("r", { head: 0, readSeq: 0 });
  model.open("r");
  await until(() => model.current.members);
  assert.equal(model.current.memberCount, 1_234);
  model.people.note(model.current, { userId: "user-900", messageType: "LEAVE" });
  model.people.note(model.current, { userId: "new", messageType: "JOIN" });
  model.people.note(model.current, { userId: "user-3", messageType: "LEAVE" });
  assert.equal(model.current.memberCount, 1_233);
});

test("the newest name of a person is shown, whatever page of history comes last, and one's own stays", () => {
  const names = new Names("ada", "Ada", () => {});
  names.learn({ userId: "x", username: "Ann Old", receivedAt: "2025-01-01T00:00:00Z" });
  names.learn({ userId: "x", username: "Ann New", receivedAt: "2026-01-01T00:00:00Z" });
  names.learn({ userId: "x", username: "Ann Older", receivedAt: "2024-01-01T00:00:00Z" });
  names.learn({ userId: "ada", username: "Somebody", receivedAt: "2026-01-01T00:00:00Z" });
  for (let n = 0; n < 4_900; n++) names.learn({ userId: `u${n}`, username: "U", receivedAt: "2026-01-01T00:00:00Z" });
  assert.equal(names.of("x"), "Ann New");
  for (let n = 4_900; n < 6_000; n++) names.learn({ userId: `u${n}`, username: "U", receivedAt: "2026-01-01T00:00:00Z" });
  assert.equal(names.of("x"), "x");
  assert.equal(names.of("u5999"), "U");
  assert.equal(names.of("ada"), "Ada");
});

test("an answer that is no JSON is said in a sentence", async (test) => {
  const given = globalThis.fetch;
  test.after(() => { globalThis.fetch = given; });
  for (const status of [200, 502]) {
    globalThis.fetch = async () => new Response("<html>Bad Gateway", { status });
    const error = await ask("GET", "kv").catch((error) => error);
    assert.deepEqual([error.code, error.retryable], ["unexpected", true]);
    assert.equal(sentenceOf(error), `Something that is not the server answered (status ${status}). Try again in a moment.`);
  }
});
