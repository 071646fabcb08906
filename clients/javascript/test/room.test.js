/** Subscriptions: bounded, and continued behind the last event. The rules of the socket have tests beside the page's. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { HubbubError } from "../hubbub.js";
import { Room } from "../room.js";

/** What `Room` uses of the socket's client, by hand. */
class Engine {
  asked = [];
  listeners = new Map();

  on(event, listener) {
    this.listeners.set(event, listener);
    return () => this.listeners.delete(event);
  }

  subscribe(room, options) {
    this.asked.push({ after: options.after, epoch: options.epoch, last: options.last, resetTo: options.resetTo });
    const current = { options, cursor: { epoch: options.epoch, seq: options.after }, unsubscribe: () => { this.current = null; } };
    this.current = current;
    return { get cursor() { return current.cursor; }, unsubscribe: current.unsubscribe };
  }

  ready() { this.current.options.onSubscribed("lobby", { epoch: "e", oldest: 1, head: 9 }); }
  message(seq) {
    this.current.cursor = { epoch: "e", seq };
    this.current.options.onMessage({ seq });
  }
}

const follow = (options) => {
  const engine = new Engine();
  return { engine, subscription: new Room("lobby", () => engine).subscribe(options) };
};
const kindOf = ({ value }) => value.type === "message" ? value.message.seq : value.type;

test("events come in order, and the position is behind the last one taken", async () => {
  const { engine, subscription } = follow({ after: 4, epoch: "d" });
  assert.deepEqual(engine.asked, [{ after: 4, epoch: "d", last: undefined, resetTo: "replay" }]);
  const first = subscription.next();
  engine.ready();
  engine.message(5);
  engine.message(7);
  assert.deepEqual([kindOf(await first), kindOf(await subscription.next())], ["ready", 5]);
  assert.deepEqual(subscription.position, { epoch: "e", seq: 5 });
  assert.equal(kindOf(await subscription.next()), 7);
});

test("a reader that takes nothing pauses the subscription, and goes on behind what it has", async () => {
  const { engine, subscription } = follow({ after: 0, bufferMax: 4 });
  for (let seq = 1; engine.current; seq++) engine.message(seq);
  assert.equal(engine.asked.length, 1);
  assert.deepEqual([kindOf(await subscription.next()), kindOf(await subscription.next())], [1, 2]);
  assert.deepEqual(engine.asked[1], { after: 4, epoch: "e", last: undefined, resetTo: "replay" });
  engine.message(5);
  const rest = [];
  for (let i = 0; i < 3; i++) rest.push(kindOf(await subscription.next()));
  assert.deepEqual(rest, [3, 4, 5]);
});

test("what is buffered can be taken when somebody else follows the room after a pause", async () => {
  const { engine, subscription } = follow({ after: 0, bufferMax: 4 });
  for (let seq = 1; engine.current; seq++) engine.message(seq);
  engine.subscribe = () => { throw new TypeError("lobby is subscribed already"); };
  const taken = [];
  for (let i = 0; i < 4; i++) taken.push(kindOf(await subscription.next()));
  assert.deepEqual(taken, [1, 2, 3, 4]);
  await assert.rejects(subscription.next(), TypeError);
});

test("what the server ends is an error behind what came before, once", async () => {
  const { engine, subscription } = follow({ after: 0 });
  engine.message(1);
  engine.listeners.get("removed")({ roomId: "another", code: "removed" });
  engine.listeners.get("removed")({ roomId: "lobby", code: "removed" });
  assert.equal(kindOf(await subscription.next()), 1);
  await assert.rejects(subscription.next(), (error) => error instanceof HubbubError && error.code === "removed");
  assert.equal((await subscription.next()).done, true);
});

test("a subscription that is refused at once leaves no listener behind", () => {
  const engine = new Engine();
  engine.subscribe = () => { throw new TypeError("lobby is subscribed already"); };
  assert.throws(() => new Room("lobby", () => engine).subscribe(), TypeError);
  assert.equal(engine.listeners.size, 0);
});

test("a token that ended is an error, a client that was closed is the end", async () => {
  for (const [code, expected] of [[4401, "unauthorized"], [4403, "forbidden"], [1002, "protocol"]]) {
    const { engine, subscription } = follow({});
    const waiting = subscription.next();
    engine.listeners.get("state")({ state: "closed", code });
    await assert.rejects(waiting, { code: expected });
  }
  const { engine, subscription } = follow({});
  const waiting = subscription.next();
  engine.listeners.get("state")({ state: "closed", code: 1000 });
  assert.equal((await waiting).done, true);
});
