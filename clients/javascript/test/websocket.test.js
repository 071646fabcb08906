/** Frames of the WebSocket for Node. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { test } from "node:test";
import { FrameReader, WebSocket, writeFrame } from "../websocket.js";

const frame = (first, text, length = [text.length]) => Buffer.concat([Buffer.from([first, ...length]), Buffer.from(text)]);

function read(bytes, step) {
  const messages = [];
  const reader = new FrameReader((opcode, payload) => messages.push([opcode, payload.toString()]));
  for (let at = 0; at < bytes.length; at += step) reader.push(bytes.subarray(at, at + step));
  return messages;
}

test("messages, fragments and control frames between them, however the bytes arrive", () => {
  const long = "x".repeat(70_000);
  const bytes = Buffer.concat([
    frame(0x81, "one"), frame(0x01, "tw"), frame(0x89, "p"), frame(0x00, ""), frame(0x80, "o"),
    frame(0x81, "y".repeat(200), [126, 0, 200]), frame(0x81, long, [127, 0, 0, 0, 0, 0, 1, 0x11, 0x70]), frame(0x8a, ""),
  ]);
  const wanted = [[1, "one"], [9, "p"], [1, "two"], [1, "y".repeat(200)], [1, long], [10, ""]];
  for (const step of [1, 7, 4_096, bytes.length]) assert.deepEqual(read(bytes, step), wanted);
});

test("what is no frame of a server is refused with its code", () => {
  const refused = [
    [frame(0xc1, "x"), 1002], [frame(0x81, "x", [0x81]), 1002], [frame(0x80, "x"), 1002],
    [Buffer.concat([frame(0x01, "x"), frame(0x81, "x")]), 1002], [frame(0x09, "x"), 1002],
    [frame(0x89, "", [126, 0, 200]), undefined], [frame(0x81, "", [127, 0, 0, 1, 0, 0, 0, 0, 0]), 1009],
  ];
  for (const [bytes, code] of refused) {
    if (code === undefined) assert.deepEqual(read(bytes, 100), [], "a control frame is checked when it is whole");
    else assert.throws(() => read(bytes, 100), { code });
  }
});

test("what a client sends is masked, with the length in as few bytes as will do", () => {
  for (const [length, header] of [[0, 2], [125, 2], [126, 4], [65_535, 4], [65_536, 10]]) {
    const payload = Buffer.alloc(length, "ab");
    const bytes = writeFrame(1, payload);
    assert.equal(bytes.length, header + 4 + length);
    assert.deepEqual([bytes[0], bytes[1] & 0x80], [0x81, 0x80]);
    const mask = bytes.subarray(header, header + 4);
    const plain = bytes.subarray(header + 4).map((byte, index) => byte ^ mask[index & 3]);
    assert.ok(Buffer.from(plain).equals(payload));
  }
});

async function upgrading(test, onSocket) {
  const server = createServer((request, response) => response.writeHead(404).end());
  server.on("upgrade", (request, socket) => {
    socket.on("error", () => {});
    const key = `${request.headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`;
    onSocket(socket, createHash("sha1").update(key).digest("base64"));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  test.after(() => { server.closeAllConnections(); server.close(); });
  return `ws://127.0.0.1:${server.address().port}/v1/ws`;
}

const closed = (socket) => new Promise((resolve) => { socket.onclose = resolve; });
const accept = (socket, answer) =>
  socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${answer}\r\n\r\n`);

test("messages that come with the handshake are read, pings answered, a lost connection told", async (test) => {
  const heard = [];
  const url = await upgrading(test, (socket, answer) => {
    accept(socket, answer);
    socket.write(Buffer.concat([frame(0x81, "hello"), frame(0x89, "!")]));
    socket.once("data", (bytes) => {
      heard.push(bytes[0]);
      socket.destroy();
    });
  });
  const socket = new WebSocket(url);
  socket.onmessage = ({ data }) => heard.push(data);
  const { code } = await closed(socket);
  assert.deepEqual(heard, ["hello", 0x8a]);
  assert.equal(code, 1006);
});

test("a close frame has its code and reason", async (test) => {
  const url = await upgrading(test, (socket, answer) => {
    accept(socket, answer);
    socket.write(Buffer.concat([Buffer.from([0x88, 6, 0x11, 0x39]), Buffer.from("slow")]));
  });
  const { code, reason } = await closed(new WebSocket(url));
  assert.deepEqual([code, reason], [4409, "slow"]);
});

test("what this side does not take is no answer to what it sent", async (test) => {
  const url = await upgrading(test, (socket, answer) => {
    accept(socket, answer);
    socket.write(frame(0x81, "", [127, 0, 0, 0, 0, 7, 0, 0, 0]));
  });
  assert.equal((await closed(new WebSocket(url))).code, 1006);
});

test("what does not accept the handshake is no connection", async (test) => {
  const wrong = await upgrading(test, (socket) => accept(socket, "d3Jvbmc="));
  assert.equal((await closed(new WebSocket(wrong))).code, 1006);
  for (const [status, code] of [[401, 4401], [403, 4403], [503, 1013], [404, 4400], [408, 1006], [502, 1006]]) {
    const refusing = await upgrading(test, (socket) => socket.end(`HTTP/1.1 ${status} No\r\nContent-Length: 0\r\n\r\n`));
    assert.equal((await closed(new WebSocket(refusing))).code, code);
  }
  const busy = await upgrading(test, (socket) => socket.end("HTTP/1.1 503 No\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"));
  assert.equal((await closed(new WebSocket(busy))).retryAfter, 7);
  const other = new WebSocket(wrong.replace("ws:", "http:").replace("/v1/ws", "/x"));
  assert.equal((await closed(other)).code, 1006);
  assert.equal((await closed(new WebSocket("ws://127.0.0.1:1/"))).code, 1006);
});

test("what sends the caller elsewhere is no connection, later either if that is for good, and is named", async (test) => {
  for (const [status, code] of [[301, 4400], [308, 4400], [302, 1006], [303, 1006], [307, 1006]]) {
    const answer = `HTTP/1.1 ${status} No\r\nLocation: https://chat.example/v1/ws\r\nContent-Length: 0\r\n\r\n`;
    const end = await closed(new WebSocket(await upgrading(test, (socket) => socket.end(answer))));
    assert.deepEqual([end.code, end.problem.code, end.problem.retryable], [code, "unexpected", code === 1006]);
    assert.match(end.reason, /redirects to https:\/\/chat\.example\/v1\/ws/);
  }
});

test("what is sent behind the server's close is dropped, also while something before it has not gone", async (test) => {
  const url = await upgrading(test, (socket, answer) => {
    accept(socket, answer);
    // It reads nothing.
    setTimeout(() => socket.write(Buffer.from([0x88, 2, 0x03, 0xe9])), 50);
  });
  const socket = new WebSocket(url);
  socket.onopen = () => socket.send("x".repeat(32 * 1024 * 1024));
  assert.equal((await closed(socket)).code, 1001);
  const amount = socket.bufferedAmount;
  assert.ok(amount > 0);
  socket.send("late");
  socket.close();
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(socket.bufferedAmount, amount);
});

test("while a slow reader takes a large message, it is seen to go out", async (test) => {
  const length = 32 * 1024 * 1024;
  let taken = 0;
  const url = await upgrading(test, (socket, answer) => {
    accept(socket, answer);
    socket.on("data", (chunk) => {
      taken += chunk.length;
      socket.pause();
      setTimeout(() => socket.resume(), 1);
    });
  });
  const socket = new WebSocket(url);
  await new Promise((resolve) => { socket.onopen = resolve; });
  socket.send("x".repeat(length));
  const amounts = [socket.bufferedAmount];
  while (amounts.at(-1) > 0) {
    await new Promise((resolve) => setTimeout(resolve, 5));
    amounts.push(socket.bufferedAmount);
  }
  assert.ok(amounts[0] > length / 2);
  assert.ok(new Set(amounts).size > 5, amounts.join());
  while (taken < length) await new Promise((resolve) => setTimeout(resolve, 5));
  socket.close();
});
