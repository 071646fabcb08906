/**
 * Client for a Hubbub server: rooms, queues and keys. See README.md; the promise it keeps is in docs/protocol.md.
 * @module hubbub-client
 */

import { WebSocket } from "#websocket";
import { Http, closed } from "./http.js";
import { Hubbub, HubbubError, State } from "./hubbub.js";
import { Keys } from "./keys.js";
import { Queue } from "./queue.js";
import { Room, closedBy } from "./room.js";

export { HubbubError, makeId } from "./hubbub.js";

const DEFAULTS = {
  backoffFirst: 300,
  backoffMax: 10_000,
  answerMax: 15_000,
  silenceMax: 40_000,
  patience: 60_000,
  waitingMax: 1_000,
};

const invalid = (field, rule) => new HubbubError({ code: "invalid", errors: [{ field, rule }] });

/** Without this, what can never work would be tried again and again. */
function checkUrl(url) {
  let protocol;
  try { ({ protocol } = new URL(url)); } catch { /* none at all */ }
  if (protocol === "http:" || protocol === "https:") return;
  throw invalid("url", "must be a URL such as http://127.0.0.1:8080 or https://chat.example");
}

function checkToken(token) {
  if (token !== undefined && !/^[!-~]*$/.test(token)) throw invalid("token", "must be printable ASCII without spaces");
}

export class Client {
  #options;
  #socket = null;
  #http;

  /** @param {string} url of the server, such as `http://127.0.0.1:8080`. Throws `invalid` if it or the token is none. */
  constructor(url, options = {}) {
    checkUrl(url);
    checkToken(options.token);
    const given = Object.entries(options).filter(([, value]) => value !== undefined);
    const fetch = globalThis.fetch.bind(globalThis);
    this.#options = { ...DEFAULTS, WebSocket, fetch, ...Object.fromEntries(given), url: url.replace(/\/+$/, "") };
    this.#http = new Http(this.#options);
    /** Keys with values. */
    this.keys = new Keys(this.#http);
  }

  room(name) { return new Room(name, () => this.#connected(), this.#http); }
  queue(name) { return new Queue(name, this.#http, this.#options.user); }

  /** Goes on with another token of the same user, on the open socket, too. */
  setToken(token) {
    checkToken(token);
    this.#options.token = token;
    this.#socket?.setToken(token);
  }

  /** How the socket is: `{state, attempt, code?, reason?}`, with the last cause while there is no connection. */
  get connection() {
    const { state, attempt, code, reason } = this.#socket?.connection ?? { state: State.IDLE, attempt: 0 };
    return { state, attempt, code, reason };
  }

  /** Ends everything. Messages without a receipt are refused with code `closed`. */
  close() {
    this.#http.close();
    this.#socket?.close();
  }

  /** The socket; the first use opens it. */
  #connected() {
    if (this.#http.closing.aborted) throw closed();
    if (!this.#socket) {
      this.#socket = new Hubbub({ ...this.#options, attemptsMax: Infinity });
      this.#socket.on("state", (state) => {
        // Nobody is told of what waits for a token that may never come.
        if (state.state === State.CLOSED) for (const outgoing of this.#socket.outgoing) outgoing.cancel(closedBy(state));
      });
    }
    const { state } = this.#socket.connection;
    if (state === State.IDLE || state === State.CLOSED) this.#socket.connect();
    return this.#socket;
  }
}
