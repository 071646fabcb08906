/** Rules of the socket's code that a healthy server shows rarely, with a WebSocket by hand. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Hubbub } from "../hubbub.js";

function engine(options = {}) {
  const sockets = [];
  class Socket {
    frames = [];
    constructor(url, protocols) {
      this.protocols = protocols;
      sockets.push(this);
    }
    send(text) { this.frames.push(JSON.parse(text)); }
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
