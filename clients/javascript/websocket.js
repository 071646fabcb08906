/**
 * A WebSocket client (RFC 6455) for Node: text frames, no compression. Node before 22 has none that is stable, and
 * later ones do not tell of pings, which the order after a refusal depends on (docs/protocol.md). It has the members of
 * a browser's WebSocket that `hubbub.js` uses, `onping`, `bytesRead`, and of a close `retryAfter`, in seconds, and `problem`.
 */

import { createHash, randomBytes } from "node:crypto";
import { request as requestHttp } from "node:http";
import { request as requestHttps } from "node:https";
import { PassThrough } from "node:stream";
import { redirection } from "./hubbub.js";
import { problemOf } from "./problem.js";

const GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const OPCODE = { CONTINUATION: 0, TEXT: 1, CLOSE: 8, PING: 9, PONG: 10 };
/** Longest message, in bytes: 16 MiB of text with every byte escaped, and its envelope. */
const MESSAGE_BYTES_MAX = 100 * 1024 * 1024;
/** Longest part of a refusal that is read, in characters. */
const REFUSAL_MAX = 64 * 1024;
/** What is sent goes to the system in pieces of so many bytes: of each it is known when it has gone. */
const PIECE_BYTES = 64 * 1024;
/** Time for the other side to answer a close, in ms. */
const CLOSE_MAX = 2_000;
const PROTOCOL_ERROR = 1002;
const TOO_BIG = 1009;
const NO_STATUS = 1005;
const LOST = 1006;
/** Answers to the handshake, and the close codes that mean the same. */
const REFUSALS = new Map([[401, 4401], [403, 4403], [408, LOST], [429, 4429], [503, 1013]]);
/** The close code of other answers that blame the client, or send it elsewhere for good: the next attempt would get the same. */
const REFUSED = 4400;

/** Splits a stream of bytes into the frames a server sends, and their fragments into messages. */
export class FrameReader {
  #chunks = [];
  #length = 0;
  #fragments = null;

  /** @param {(opcode: number, payload: Buffer) => void} onMessage  whole messages, and control frames */
  constructor(onMessage) { this.onMessage = onMessage; }

  /** Takes bytes. @throws {{code: number}} what the connection is to be closed with */
  push(chunk) {
    this.#chunks.push(chunk);
    this.#length += chunk.length;
    while (this.#next());
  }

  /** The first bytes in one piece, if there are so many. */
  #peek(count) {
    if (this.#length < count) return null;
    if (this.#chunks[0].length < count) this.#chunks = [Buffer.concat(this.#chunks)];
    return this.#chunks[0];
  }

  #next() {
    let header = this.#peek(2);
    if (!header) return false;
    const [first, second] = header;
    if (first & 0x70 || second & 0x80) throw { code: PROTOCOL_ERROR };
    let [size, length] = [2, second & 0x7f];
    if (length >= 126) {
      size = length === 126 ? 4 : 10;
      if (!(header = this.#peek(size))) return false;
      length = size === 4 ? header.readUInt16BE(2) : Number(header.readBigUInt64BE(2));
    }
    if (length > MESSAGE_BYTES_MAX) throw { code: TOO_BIG };
    const frame = this.#peek(size + length);
    if (!frame) return false;
    this.#chunks[0] = frame.subarray(size + length);
    this.#length -= size + length;
    this.#take((first & 0x80) !== 0, first & 0x0f, frame.subarray(size, size + length));
    return true;
  }

  #take(isLast, opcode, payload) {
    if (opcode >= OPCODE.CLOSE) {
      if (!isLast || payload.length > 125) throw { code: PROTOCOL_ERROR };
      return this.onMessage(opcode, payload);
    }
    if ((opcode === OPCODE.CONTINUATION) !== (this.#fragments !== null)) throw { code: PROTOCOL_ERROR };
    if (isLast && !this.#fragments) return this.onMessage(opcode, payload);
    this.#fragments ??= { opcode, parts: [], length: 0 };
    this.#fragments.parts.push(payload);
    this.#fragments.length += payload.length;
    if (this.#fragments.length > MESSAGE_BYTES_MAX) throw { code: TOO_BIG };
    if (!isLast) return;
    const whole = this.#fragments;
    this.#fragments = null;
    this.onMessage(whole.opcode, Buffer.concat(whole.parts));
  }
}

/** A frame as a client sends it: whole, and masked. */
export function writeFrame(opcode, payload) {
  const extra = payload.length < 126 ? 0 : payload.length < 65_536 ? 2 : 8;
  const frame = Buffer.alloc(6 + extra + payload.length);
  frame[0] = 0x80 | opcode;
  frame[1] = 0x80 | (extra === 0 ? payload.length : extra === 2 ? 126 : 127);
  if (extra === 2) frame.writeUInt16BE(payload.length, 2);
  if (extra === 8) frame.writeBigUInt64BE(BigInt(payload.length), 2);
  const mask = randomBytes(4);
  mask.copy(frame, 2 + extra);
  for (let i = 0; i < payload.length; i++) frame[6 + extra + i] = payload[i] ^ mask[i & 3];
  return frame;
}

class NodeWebSocket {
  onopen = null;
  onmessage = null;
  onclose = null;
  onerror = null;
  onping = null;
  #socket = null;
  /** What is on its way to the socket. */
  #unsent = new PassThrough();
  #request;
  #isClosing = false;
  #isOver = false;

  constructor(url, protocols = []) {
    const key = randomBytes(16).toString("base64");
    const address = new URL(url.replace(/^ws/, "http"));
    const headers = {
      connection: "Upgrade", upgrade: "websocket", "sec-websocket-version": "13", "sec-websocket-key": key,
      ...(protocols.length > 0 ? { "sec-websocket-protocol": protocols.join(", ") } : {}),
    };
    const request = address.protocol === "https:" ? requestHttps : requestHttp;
    // An agent would keep the connection for other requests.
    this.#request = request(address, { headers, agent: false });
    this.#request.on("upgrade", (response, socket, head) => this.#onUpgrade(response, socket, head, key));
    this.#request.on("response", (response) => this.#onRefused(response));
    this.#request.on("error", (error) => this.#end(LOST, error.message));
    this.#request.end();
  }

  /** Bytes that the system has not taken yet. */
  get bufferedAmount() {
    return this.#unsent.writableLength + this.#unsent.readableLength + (this.#socket?.writableLength ?? 0);
  }

  get bytesRead() { return this.#socket?.bytesRead ?? 0; }

  send(text) { this.#write(OPCODE.TEXT, Buffer.from(text)); }

  #write(opcode, payload) {
    // Behind the server's close nothing goes.
    if (!this.#socket || this.#socket.destroyed || this.#unsent.writableEnded) return;
    const frame = writeFrame(opcode, payload);
    for (let at = 0; at < frame.length; at += PIECE_BYTES) this.#unsent.write(frame.subarray(at, at + PIECE_BYTES));
  }

  close(code = 1000, reason = "") {
    if (!this.#socket) {
      this.#request.destroy();
      return this.#end(LOST, "closed before it was open");
    }
    if (this.#isClosing) return;
    this.#isClosing = true;
    const payload = Buffer.concat([Buffer.from([code >> 8, code & 255]), Buffer.from(reason)]);
    this.#write(OPCODE.CLOSE, payload);
    setTimeout(() => this.#socket.destroy(), CLOSE_MAX).unref();
  }

  async #onRefused(response) {
    let text = "";
    try {
      for await (const chunk of response.setEncoding("utf8")) if ((text += chunk).length > REFUSAL_MAX) break;
    } catch { /* cut off: the status says enough */ }
    const { statusCode: status, headers } = response;
    const isElsewhere = status >= 300 && status < 400;
    const problem = isElsewhere ? redirection(status, headers.location) : problemOf(status, text);
    const isFinal = isElsewhere ? !problem.retryable : status >= 400 && status < 500;
    const code = REFUSALS.get(status) ?? (isFinal ? REFUSED : LOST);
    const more = { retryAfter: Number(headers["retry-after"]) || 0, problem };
    this.#end(code, isElsewhere ? problem.detail : `the server answered ${status}`, more);
    this.#request.destroy();
  }

  #onUpgrade(response, socket, head, key) {
    const accepted = createHash("sha1").update(key + GUID).digest("base64");
    if (this.#isOver || response.headers["sec-websocket-accept"] !== accepted) {
      socket.destroy();
      return this.#end(LOST, "the server did not accept the handshake");
    }
    this.#socket = socket;
    socket.setNoDelay(true);
    socket.setTimeout(0);
    // Whatever it has, the socket's end tells more.
    this.#unsent.once("error", () => {});
    this.#unsent.pipe(socket);
    const reader = new FrameReader((opcode, payload) => this.#onFrame(opcode, payload));
    const read = (chunk) => {
      try {
        if (!this.#isOver) reader.push(chunk);
      } catch (fault) {
        // What a listener threw is not the connection's.
        if (fault instanceof Error) throw fault;
        this.close(fault.code);
        // From the server, 1009 says that what was sent is too big.
        this.#end(fault.code === TOO_BIG ? LOST : fault.code, "the server sent what is no WebSocket frame");
        this.#unsent.end();
      }
    };
    socket.on("data", read);
    socket.on("error", (error) => this.#end(LOST, error.message));
    socket.on("close", () => this.#end(LOST, "the connection was lost"));
    this.onopen?.({});
    if (head.length > 0) read(head);
  }

  #onFrame(opcode, payload) {
    if (this.#isOver) return;
    if (opcode === OPCODE.TEXT) this.onmessage?.({ data: payload.toString() });
    if (opcode === OPCODE.PING) {
      this.onping?.();
      this.#write(OPCODE.PONG, payload);
    }
    if (opcode !== OPCODE.CLOSE) return;
    const code = payload.length >= 2 ? payload.readUInt16BE(0) : NO_STATUS;
    if (!this.#isClosing) this.#write(OPCODE.CLOSE, payload.subarray(0, 2));
    this.#end(code, payload.subarray(2).toString());
    this.#unsent.end();
    setTimeout(() => this.#socket.destroy(), CLOSE_MAX).unref();
  }

  #end(code, reason, more) {
    if (this.#isOver) return;
    this.#isOver = true;
    // Never inside the constructor or `close`: the caller has set no listener yet, or is in the middle of something.
    queueMicrotask(() => this.onclose?.({ code, reason, ...more }));
  }
}

export { NodeWebSocket as WebSocket };
