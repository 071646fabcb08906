/**
 * Client for a Hubbub server: one socket for any number of rooms, in pages and Node 20.3 and later. No dependencies.
 *
 * What it does for you:
 * - **A message is stored once.** Each has an id from the moment it is made; until its receipt has come it is sent
 *   again with that id, over any number of connections, in order within its room.
 * - **No message is missed.** A subscription keeps (epoch, seq) and continues from there after each reconnect. If the
 *   server cannot honour that cursor, it sends `reset`, and the subscription reports it.
 * - **Everything is bounded**: messages waiting to be sent, frames waiting for an answer, the time between attempts.
 *
 * @example
 * import { Hubbub } from "./hubbub.js";
 * const hubbub = new Hubbub({ url: "http://127.0.0.1:8080", user: "ada" });
 * hubbub.subscribe("lobby", { last: 50, onMessage: (message) => console.log(message.userId, message.message) });
 * hubbub.connect();
 * const receipt = await hubbub.send("lobby", "hello").done;   // durable now; receipt.seq is its position
 *
 * Node before 22 has no WebSocket: pass one as `options.WebSocket`, such as that of `ws`.
 *
 * @module hubbub
 */

/**
 * @typedef {object} Message
 * @property {string} messageId
 * @property {string} roomId
 * @property {string} userId
 * @property {string} [username]
 * @property {string} message  the text
 * @property {"TEXT"|"JOIN"|"LEAVE"} messageType
 * @property {string} timestamp  the sender's clock
 * @property {number} seq  its position in the room
 * @property {string} receivedAt  the server's clock; never decreases within a room
 */
/**
 * With a broker as the server's log, a receipt has only the id: the message is durable there, and gets its seq later.
 * @typedef {{messageId: string, seq?: number, epoch?: string, receivedAt?: string, duplicate?: boolean}} Receipt
 */
/** @typedef {{epoch: string, oldest: number, head: number}} Position */
/**
 * With `historyReplaced` the server has another history (a restored backup); without it, retention deleted messages.
 * @typedef {Position & {historyReplaced: boolean}} Reset
 */

/**
 * @typedef {object} Options
 * @property {string} [url]  of the server; in a page, the default is the page's origin
 * @property {string} [user]  who calls; without it the caller may speak for anybody and names `userId` with each send
 * @property {string} [token]  a token or an API key, where the server asks for one; it says who calls, so leave out
 *   `user`. Renew it with {@link Hubbub#setToken} before it expires
 * @property {string} [username]  shown beside the user's messages
 * @property {Function} [WebSocket]  a WebSocket constructor; by default the global one
 * @property {Function} [fetch]  by default the global one
 * @property {number} [waitingMax=1000]  most messages that wait for their receipt; further ones are refused
 * @property {number} [inFlightMax=32]  most messages of one room sent without waiting for receipts. With 1, the order
 *   in a room holds even if the server fails between two of them
 * @property {number} [attemptsMax=8]  retryable refusals before a message counts as failed
 * @property {number} [backoffFirst=300]  milliseconds before the first reconnect; doubles with each failure
 * @property {number} [backoffMax=10000]
 * @property {number} [silenceMax=25000]  milliseconds without a frame before the connection is probed
 * @property {number} [answerMax=15000]  milliseconds for an answer before the connection counts as dead
 */

/** States of the connection. `waiting`: for the next attempt. `closed`: it does not reconnect by itself. */
export const State = Object.freeze({
  IDLE: "idle", CONNECTING: "connecting", OPEN: "open", WAITING: "waiting", CLOSED: "closed",
});

/** States of an outgoing message. Only `durable` and `failed` are final, and `failed` can be retried. */
export const Delivery = Object.freeze({ QUEUED: "queued", SENT: "sent", DURABLE: "durable", FAILED: "failed" });

/** Close codes after which reconnecting is pointless; see docs/api.md. */
const FINAL_CLOSE_CODES = new Set([1002, 1003, 1007, 1008, 4400, 4401, 4403]);
const CLOSE_NORMAL = 1000;
const CLOSE_GOING_AWAY = 1001;
const CLOSE_TOO_BIG = 1009;
const CLOSE_UNAUTHORIZED = 4401;
/** Close codes of a server that has too much to do, with the number of failures from which on the backoff counts. */
const OVERLOAD_CLOSE_CODES = new Set([1013, 4429]);
const OVERLOAD_FAILURES = 4;
/** Most unanswered frames, over all rooms; the server stops reading a socket at 1,024. */
const UNANSWERED_MAX = 256;
/** Longest wait that a server may ask for, in ms. */
const RECONNECT_AFTER_MAX = 60_000;
/** A connection that lived this long, in ms, resets the backoff. */
const STABLE_AFTER = 3_000;
const TYPING_EVERY = 2_500;
const CHECK_EVERY = 2_000;

/** What the ref of a read mark begins with, and of nothing else. */
const MARK = "r";
const CLOSED = { code: "closed", detail: "the client was closed" };
const CANCELED = { code: "canceled", detail: "the message was given up; it may be stored", retryable: true };

/** The wait that a server which shuts down gives each client, in ms, so that they do not return all at once. */
function reconnectAfter(code, reason) {
  const given = code === CLOSE_GOING_AWAY && /reconnect after (\d+) ms/.exec(reason);
  return given ? Math.min(Number(given[1]), RECONNECT_AFTER_MAX) : undefined;
}

/**
 * Calls somebody else's code. What it throws is no reason to stop in the middle of something: it goes to where the platform
 * reports what nobody catches.
 */
function tell(call) {
  try {
    call();
  } catch (error) {
    queueMicrotask(() => { throw error; });
  }
}

/** A refusal by the server, or a failure to reach it. `code` is stable; see docs/api.md. */
export class HubbubError extends Error {
  /** @param {{code: string, detail?: string, retryable?: boolean, status?: number, errors?: object[]}} problem */
  constructor(problem) {
    const faults = problem.errors?.map((fault) => `${fault.field} ${fault.rule}`).join("; ");
    super(faults || problem.detail || problem.title || problem.code);
    this.name = "HubbubError";
    this.code = problem.code;
    this.retryable = problem.retryable === true;
    this.status = problem.status;
    this.errors = problem.errors ?? [];
    /** The whole answer, for fields that only some codes have. */
    this.problem = problem;
  }
}

/** A unique id. `crypto.randomUUID` exists only on secure origins, so not on http://192.168.… */
export function makeId() {
  if (globalThis.crypto.randomUUID) return globalThis.crypto.randomUUID();
  const bytes = globalThis.crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** A name as a part of a path. Throws `invalid` for those that no path keeps, however they are written. */
export function segmentOf(name) {
  if (name !== "." && name !== "..") return encodeURIComponent(name);
  const fault = { field: "name", rule: "must not be . or .., which a path loses" };
  throw new HubbubError({ code: "invalid", errors: [fault] });
}

/** Redirections for good. Others, and those of which a browser tells no status, may be over later. */
const MOVED = new Set([301, 308]);

/** The problem of an answer that sends the caller elsewhere. The token is not for others, and a POST would become a GET. */
export function redirection(status, location) {
  const where = location ? `to ${location.slice(0, 200)}` : "elsewhere";
  const detail = `the server redirects ${where}; only the address that answers itself will do`;
  return { code: "unexpected", detail, status, retryable: !MOVED.has(status) };
}

/** Whether the answer of a `fetch` with `redirect: "manual"` is a redirection. Browsers say no more than that it is. */
export const isRedirected = ({ type, status }) => type === "opaqueredirect" || (status >= 300 && status < 400);

/** An outgoing message; created by {@link Hubbub#send}. */
class Outgoing {
  constructor(frame, retry, cancel) {
    /** Retryable refusals so far. */
    this.attempts = 0;
    /** One of {@link Delivery}. */
    this.state = Delivery.QUEUED;
    /** @type {Receipt|null} */
    this.receipt = null;
    /** @type {HubbubError|null} why it failed */
    this.error = null;
    this.frame = frame;
    this.sentAt = 0;
    this.ref = "";
    /** Sends a failed message again, with the same id. If it was stored after all, it is not stored twice. */
    this.retry = () => retry(this);
    /** Gives the message up: it fails with `problem`. What is on the way may be stored nevertheless. */
    this.cancel = (problem) => cancel(this, problem);
    this.renew();
  }

  get messageId() { return this.frame.messageId; }
  get roomId() { return this.frame.roomId; }
  get message() { return this.frame.message; }
  get messageType() { return this.frame.messageType; }
  get timestamp() { return this.frame.timestamp; }

  renew() {
    this.attempts = 0;
    this.error = null;
    /** Resolves with the receipt once the message is durable; rejects with a {@link HubbubError} when it failed. */
    this.done = new Promise((resolve, reject) => Object.assign(this, { resolve, reject }));
    // Callers may use the state instead of the promise.
    this.done.catch(() => {});
  }
}

/** One subscription and its cursors; created by {@link Hubbub#subscribe}. */
class Subscription {
  constructor(roomId, options) {
    this.roomId = roomId;
    this.options = options;
    this.ref = "";
    /**
     * Room → {epoch, seq}: where to continue. `isAssumed`: the first message decides. `isLeft`: of an older history, and
     * the room is none of mine.
     * @type {Map<string, {epoch?: string, seq?: number, isAssumed?: boolean, isLeft?: boolean}>}
     */
    this.cursors = new Map();
    /** The newest one the server named. */
    this.epoch = undefined;
    /** Rooms whose `subscribed` came on this connection. Frames of other rooms belong to an older subscription. */
    this.announced = new Set();
    /** With `"*"`: whether all rooms are announced. */
    this.isLive = false;
    /**
     * Before the first of the `last` messages, once it is known. Goes out until a message came; filters nothing, since
     * positions may have gaps.
     */
    this.resume = undefined;
    this.isEnded = false;
    if (roomId === "*") {
      for (const [room, seq] of Object.entries(options.cursors ?? {})) {
        this.cursors.set(room, { epoch: options.epoch, seq });
      }
    } else if (options.after !== undefined) {
      this.cursors.set(roomId, { epoch: options.epoch, seq: options.after });
    }
  }

  get isAll() { return this.roomId === "*"; }

  /** Nothing is announced any more. */
  forgetAnnounced() {
    this.announced.clear();
    this.isLive = false;
  }

  /** Where the one room continues. */
  get position() {
    const cursor = this.cursors.get(this.roomId);
    return cursor && { epoch: cursor.epoch, seq: cursor.seq ?? this.resume };
  }

  /** The `subscribe` frame that continues from the cursors. */
  frame() {
    const { last, resetTo } = this.options;
    const frame = { type: "subscribe", ref: this.ref, roomId: this.roomId, onReset: resetTo };
    if (this.isAll) {
      for (const cursor of this.cursors.values()) if (cursor.isLeft) cursor.seq = undefined;
      const known = [...this.cursors].filter(([, cursor]) => cursor.seq !== undefined);
      frame.cursors = Object.fromEntries(known.map(([room, cursor]) => [room, cursor.seq]));
      // One epoch goes out for all. While some cursors are older, an older one: rather too many resets than one too few.
      const epochs = known.map(([, cursor]) => cursor.epoch).filter(Boolean);
      frame.epoch = epochs.find((epoch) => epoch !== this.epoch) ?? epochs[0];
    } else {
      const { epoch, seq: after } = this.position ?? {};
      if (after !== undefined) Object.assign(frame, { after, epoch });
      else if (last) frame.last = last;
    }
    return frame;
  }

  /** Handles a `subscribed`. Without `last`, the first message is the next after the head. */
  onSubscribed(room, position) {
    this.announced.add(room);
    this.epoch = position.epoch;
    const cursor = this.cursors.get(room) ?? {};
    // No cursor went out for it, so that no `reset` comes.
    const isReplaced = this.isAll && cursor.seq === undefined && (cursor.epoch ?? position.epoch) !== position.epoch;
    if (isReplaced) Object.assign(cursor, { epoch: undefined, isLeft: false });
    const isLive = !this.isAll && !this.options.last;
    if (cursor.seq === undefined && (isLive || position.head === 0)) cursor.seq = position.head;
    if (cursor.seq === undefined && position.readSeq !== undefined) {
      // The mark may have moved since the room was joined; messages come from where it stood then.
      Object.assign(cursor, { seq: position.readSeq, isAssumed: true });
    }
    // Asking for the newest ones again would leave out what came meanwhile.
    if (cursor.seq === undefined && !this.isAll) {
      this.resume ??= Math.max(position.head - this.options.last, position.oldest - 1, 0);
    }
    // A cursor of another epoch is answered by a `reset` next, which carries the new epoch.
    if (cursor.epoch === undefined || (cursor.seq ?? this.resume) === 0) cursor.epoch = position.epoch;
    this.cursors.set(room, cursor);
    tell(() => this.options.onSubscribed?.(room, position));
    if (isReplaced) tell(() => this.options.onReset?.(room, { ...position, historyReplaced: true }));
  }

  /** A cursor of an older history of a room that is not mine now would make all others begin anew at each connection. */
  onLive(rooms) {
    this.isLive = true;
    for (const [room, cursor] of this.cursors) {
      cursor.isLeft = !this.announced.has(room) && cursor.epoch !== undefined && cursor.epoch !== this.epoch;
    }
    tell(() => this.options.onLive?.(rooms));
  }

  onReset(room, position) {
    if (!this.announced.has(room)) return;
    this.epoch = position.epoch;
    const known = this.cursors.get(room)?.epoch;
    // 0 is never answered with another reset.
    const seq = this.options.resetTo === "live" ? position.head : 0;
    this.cursors.set(room, { epoch: position.epoch, seq });
    const historyReplaced = known !== undefined && known !== position.epoch;
    tell(() => this.options.onReset?.(room, { ...position, historyReplaced }));
  }

  onMessage(message) {
    const cursor = this.cursors.get(message.roomId);
    if (!this.announced.has(message.roomId) || !cursor || (!cursor.isAssumed && message.seq <= cursor.seq)) return;
    cursor.isAssumed = false;
    cursor.seq = message.seq;
    tell(() => this.options.onMessage?.(message));
  }
}

/** The unacknowledged messages of one room, oldest first. The first `sent` of them are in flight. */
class Lane {
  constructor(roomId) { this.roomId = roomId; }

  waiting = [];
  sent = 0;
  /** Set after a refusal: nothing is sent until all answers have come and the pause is over. */
  isHeld = false;
  holdTimer;
  failures = 0;
  /** Most messages in flight: one after a refusal, doubled by each receipt, so that a busy server is asked gently. */
  window = Infinity;
}

export class Hubbub {
  #options;
  #socket = null;
  /** What the handshake of the socket said. */
  #socketToken;
  #state = { state: State.IDLE, attempt: 0 };
  #listeners = new Map();
  #subscriptions = new Map();
  /** Rooms that are left on this connection, each with the ref of the frame. A new subscription waits for the answer. */
  #leaving = new Map();
  #lanes = new Map();
  #unanswered = new Map();
  /** A ping came, and may precede a refusal: what goes out behind its pong must wait for the next answer. */
  #isGated = false;
  /** Read marks without an answer: room → {seq, epoch, ref}. */
  #marks = new Map();
  #markTimer;
  #markFailures = 0;
  #unsupported = new Set();
  #typedAt = new Map();
  #reconnectTimer;
  #checkTimer;
  #openedAt = 0;
  #heardAt = 0;
  #probedAt = 0;
  /** What the socket said at the last look: bytes that wait to go out, and bytes that came. */
  #unsentBytes = 0;
  #bytesRead = 0;
  #refs = 0;
  #waiting = 0;
  #failures = 0;

  /** @param {Options} [options] */
  constructor(options = {}) {
    this.#options = {
      url: globalThis.location?.origin,
      WebSocket: globalThis.WebSocket,
      fetch: globalThis.fetch?.bind(globalThis),
      waitingMax: 1_000,
      inFlightMax: 32,
      attemptsMax: 8,
      backoffFirst: 300,
      backoffMax: 10_000,
      silenceMax: 25_000,
      answerMax: 15_000,
      ...Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)),
    };
    if (!this.#options.url) throw new TypeError("options.url is required outside a page");
    this.#options.url = this.#options.url.replace(/\/+$/, "");
  }

  get user() { return this.#options.user; }
  /** One of {@link State}, with details: `{state, attempt, retryAt?, code?, reason?}`. While connecting, why it last was not. */
  get connection() { return this.#state; }
  /** Number of messages without a receipt, not counting failed ones. */
  get waiting() { return this.#waiting; }
  /** Messages without a receipt, in order, room by room. @returns {Outgoing[]} */
  get outgoing() { return [...this.#lanes.values()].flatMap((lane) => lane.waiting); }

  /**
   * Adds a listener. Events: `state` (see {@link connection}), `outgoing` (a message's delivery changed), `read`,
   * `presence`, `typing` (as the server sends them), `removed` (`{roomId, code}`: the room is followed no more, because
   * the user is no longer a member, or because a newer token may not read it: `forbidden`), `error` (a
   * {@link HubbubError} that no promise or callback reports).
   * @returns {() => void} stops listening
   */
  on(event, listener) {
    if (!this.#listeners.has(event)) this.#listeners.set(event, new Set());
    this.#listeners.get(event).add(listener);
    return () => this.#listeners.get(event).delete(listener);
  }

  #emit(event, value) {
    for (const listener of this.#listeners.get(event) ?? []) tell(() => listener(value));
  }

  // ---- The connection ----

  /** Connects, and keeps reconnecting. If it is waiting for the next attempt, it tries at once. */
  connect() {
    if ([State.OPEN, State.CONNECTING].includes(this.#state.state)) return;
    if (!this.#options.WebSocket) throw new TypeError("there is no WebSocket here: pass options.WebSocket");
    clearTimeout(this.#reconnectTimer);
    const { token } = this.#options;
    const url = `${this.#options.url.replace(/^http/, "ws")}/v1/ws${search({ user: this.user })}`;
    // Pages can set no header here, and an address is logged: so it is a subprotocol.
    const socket = token === undefined
      ? new this.#options.WebSocket(url)
      : new this.#options.WebSocket(url, ["hubbub", `hubbub.bearer.${token}`]);
    this.#socket = socket;
    this.#socketToken = token;
    const ifCurrent = (action) => (event) => { if (this.#socket === socket) action(event); };
    socket.onopen = ifCurrent(() => this.#onOpened());
    socket.onmessage = ifCurrent((event) => this.#receive(event.data));
    // Only a WebSocket that is none of the platform's tells of pings, and why a handshake was refused.
    socket.onping = ifCurrent(() => { this.#isGated = this.#unanswered.size > 0; });
    socket.onclose = ifCurrent((event) => this.#onClosed(event));
    // A close event follows, and tells more.
    socket.onerror = () => {};
    this.#probedAt = this.#unsentBytes = this.#bytesRead = 0;
    this.#heardAt = performance.now();
    clearInterval(this.#checkTimer);
    const { silenceMax, answerMax } = this.#options;
    this.#checkTimer = setInterval(() => this.#check(), Math.min(CHECK_EVERY, silenceMax / 2, answerMax / 2));
    this.#checkTimer.unref?.();
    const { code, reason } = this.#state;
    this.#setState({ state: State.CONNECTING, code, reason });
  }

  /**
   * Goes on with another token of the same user, on the open socket if there is one. Connects again if the server closes
   * it for the last one before it has taken this one, or had closed it (state `closed`, code 4401).
   */
  setToken(token) {
    this.#options.token = token;
    if (this.#state.state === State.OPEN) this.#transmit({ type: "auth", ref: "auth", token });
    else if (this.#state.state === State.CLOSED && this.#state.code === CLOSE_UNAUTHORIZED) this.connect();
  }

  /** Ends the connection for good. Messages without a receipt, and further ones, fail with code `closed`. */
  close() {
    const socket = this.#socket;
    this.#socket = null;
    this.#disconnected();
    this.#state = { ...this.#state, state: State.CLOSED, code: CLOSE_NORMAL };
    this.#failAll(CLOSED);
    this.#setState({ state: State.CLOSED, code: CLOSE_NORMAL });
    socket?.close(CLOSE_NORMAL);
  }

  #failAll(problem) { for (const outgoing of this.outgoing) this.#fail(outgoing, problem); }

  /** Why nothing is sent any more, if so. After the end of a token another one may be given: until then messages wait. */
  get #ending() {
    const { state, code, reason } = this.#state;
    if (state !== State.CLOSED || code === CLOSE_UNAUTHORIZED) return undefined;
    if (code === CLOSE_NORMAL) return CLOSED;
    return { code: "closed", detail: `the server closed the connection for good: ${reason || code}` };
  }

  #setState(state) {
    this.#state = { attempt: this.#failures, ...state };
    this.#emit("state", this.#state);
  }

  #onOpened() {
    this.#openedAt = this.#heardAt = performance.now();
    this.#setState({ state: State.OPEN });
    const { token } = this.#options;
    if (token !== undefined && token !== this.#socketToken) this.#transmit({ type: "auth", ref: "auth", token });
    for (const subscription of this.#subscriptions.values()) this.#sendSubscribe(subscription);
    this.#sendMarks();
    this.#flushAll();
  }

  /** Clears the state of the connection. Unanswered messages will be sent again. */
  #disconnected() {
    clearTimeout(this.#reconnectTimer);
    clearTimeout(this.#markTimer);
    this.#markTimer = undefined;
    clearInterval(this.#checkTimer);
    this.#unanswered.clear();
    this.#isGated = false;
    this.#leaving.clear();
    for (const subscription of this.#subscriptions.values()) subscription.forgetAnnounced();
    for (const lane of this.#lanes.values()) {
      for (const outgoing of lane.waiting.slice(0, lane.sent)) this.#setDelivery(outgoing, Delivery.QUEUED);
      clearTimeout(lane.holdTimer);
      Object.assign(lane, { sent: 0, isHeld: false });
    }
  }

  #onClosed({ code, reason, retryAfter = 0, problem }) {
    this.#socket = null;
    const largest = code === CLOSE_TOO_BIG && [...this.#unanswered.values()].sort((a, b) => b.message.length - a.message.length)[0];
    this.#disconnected();
    if (largest && !largest.isGivenUp) this.#fail(largest, { code: "too_large", detail: "the server takes no frame as big as this" });
    // A newer token than the handshake's came too late, or was refused on this socket: it gets one of its own.
    const isRenewed = code === CLOSE_UNAUTHORIZED && this.#options.token !== this.#socketToken;
    if (FINAL_CLOSE_CODES.has(code) && !isRenewed) {
      this.#setState({ state: State.CLOSED, code, reason, problem });
      // A listener may have connected again.
      return this.#ending && this.#failAll(this.#ending);
    }
    if (this.#openedAt && performance.now() - this.#openedAt > STABLE_AFTER) this.#failures = 0;
    this.#openedAt = 0;
    this.#failures += 1;
    if (OVERLOAD_CLOSE_CODES.has(code)) this.#failures = Math.max(this.#failures, OVERLOAD_FAILURES);
    const asked = Math.min(retryAfter * 1_000, RECONNECT_AFTER_MAX);
    const wait = reconnectAfter(code, reason) ?? asked + this.#backoff(this.#failures);
    this.#reconnectTimer = setTimeout(() => this.connect(), wait);
    this.#setState({ state: State.WAITING, retryAt: Date.now() + wait, code, reason });
  }

  /** Exponential backoff; half of it is random, so that clients do not return all at once. */
  #backoff(attempt) {
    const { backoffFirst, backoffMax } = this.#options;
    const most = Math.min(backoffMax, backoffFirst * 2 ** Math.min(attempt - 1, 20));
    return most / 2 + Math.random() * (most / 2);
  }

  /** Detects dead connections: probes a silent one, and drops one that does not answer. */
  #check() {
    this.#noteTraffic();
    const now = performance.now();
    const { silenceMax, answerMax } = this.#options;
    const oldest = this.#unanswered.values().next().value;
    const isDead = this.#state.state === State.CONNECTING
      ? now - this.#heardAt > answerMax
      : (this.#probedAt > this.#heardAt && now - this.#probedAt > answerMax) ||
        (oldest && now - Math.max(oldest.sentAt, this.#heardAt) > answerMax);
    if (isDead) this.#giveUp();
    else if (now - this.#heardAt > silenceMax) this.#ping(now);
  }

  /** One at a time: {@link #check} sees whether anything comes. */
  #ping(now) {
    if (!this.#isOpen || this.#probedAt > this.#heardAt) return;
    this.#probedAt = now;
    this.#transmit({ type: "ping" });
  }

  #giveUp() {
    const socket = this.#socket;
    this.#onClosed({ code: 1006, reason: "no answer" });
    socket?.close();
  }

  /**
   * A large message takes its time, in either direction: while its bytes move, the connection lives. Browsers tell of those
   * that go out only. What is sent counts as waiting until the end of the task, at least: that it goes is no sign of life,
   * so only what still waits at a later look is remembered.
   */
  #noteTraffic() {
    const { bufferedAmount = 0, bytesRead = 0 } = this.#socket ?? {};
    if (bufferedAmount < this.#unsentBytes || bytesRead > this.#bytesRead) this.#heardAt = performance.now();
    this.#unsentBytes = bufferedAmount;
    this.#bytesRead = bytesRead;
  }

  /**
   * Finds out now whether the connection still lives, within `answerMax`: call it when the machine wakes, or is in another
   * network. A shorter time would cut connections on which one large message is coming. If it waits for the next attempt, it
   * tries at once.
   */
  probe() {
    if (this.#state.state === State.WAITING) this.connect();
    else this.#ping(performance.now());
  }

  /** Not while listeners are told that a socket is gone. */
  get #isOpen() { return this.#socket !== null && this.#state.state === State.OPEN; }

  #transmit(frame) {
    if (!this.#isOpen) return false;
    const { bufferedAmount: before = 0 } = this.#socket;
    this.#socket.send(typeof frame === "string" ? frame : JSON.stringify(frame));
    // Behind a backlog: what is added must not hide that this one moves.
    if (this.#unsentBytes > 0) this.#unsentBytes += (this.#socket.bufferedAmount ?? 0) - before;
    return true;
  }

  #receive(data) {
    this.#heardAt = performance.now();
    const frame = parse(data);
    switch (frame.type) {
      case "message": return this.#subscriptionOf(frame.roomId)?.onMessage(frame);
      case "subscribed": return this.#onSubscribed(frame);
      case "unsubscribed": return this.#onLeft(frame.roomId);
      case "reset":
        this.#dropMarkOfOther(frame.roomId, frame.epoch);
        return this.#subscriptionOf(frame.roomId)?.onReset(frame.roomId, frame);
      case "ack": return this.#onAck(frame);
      case "error": return this.#onError(frame);
      case "read":
        this.#onRead(frame);
        return this.#emit("read", frame);
      case "presence": case "typing": return this.#emit(frame.type, frame);
    }
  }

  // ---- Receiving ----

  /**
   * Follows a room, or with `"*"` all rooms the user is a member of, present and future. Starts after `after`, or with
   * the newest `last` messages, or with the next one. After a reconnect it continues where it was.
   * @param {string} roomId
   * @param {object} options
   * @param {number} [options.after]  a seq; 0 = from the oldest
   * @param {string} [options.epoch]  the history `after` belongs to
   * @param {number} [options.last]
   * @param {Object<string, number>} [options.cursors]  with `"*"`: room → `after`; other rooms start at the read mark
   * @param {"replay"|"live"} [options.resetTo="replay"]  where to continue if the cursor cannot be honoured
   * @param {(message: Message) => void} [options.onMessage]  in order, without gap or repeat
   * @param {(roomId: string, reset: Reset) => void} [options.onReset]  discard what was received before
   * @param {(roomId: string, position: Position) => void} [options.onSubscribed]  at every connection; with `"*"` for
   *   each room, including those joined later, with its `readSeq`
   * @param {(rooms: number) => void} [options.onLive]  with `"*"`: all rooms are announced, and all missed messages came
   * @param {(error: HubbubError) => void} [options.onError]  the subscription has ended
   * @returns {{roomId: string, unsubscribe: () => void}}
   */
  subscribe(roomId, options = {}) {
    if (this.#subscriptions.has(roomId)) throw new TypeError(`${roomId} is subscribed already`);
    const subscription = new Subscription(roomId, { resetTo: "replay", ...options });
    this.#subscriptions.set(roomId, subscription);
    this.#sendSubscribe(subscription);
    return {
      roomId,
      /** The current cursor. */
      get cursor() { return subscription.position; },
      unsubscribe: () => {
        if (subscription.isEnded) return;
        this.#end(subscription);
        this.#leave(roomId);
      },
    };
  }

  #leave(roomId) {
    const ref = `u${++this.#refs}`;
    if (this.#transmit({ type: "unsubscribe", ref, roomId })) this.#leaving.set(roomId, ref);
  }

  #onLeft(roomId) {
    this.#leaving.delete(roomId);
    const subscription = this.#subscriptions.get(roomId);
    if (subscription) this.#sendSubscribe(subscription);
  }

  #onLeaveRefused(roomId, frame) {
    if (!frame.retryable) return this.#onLeft(roomId);
    const timer = setTimeout(() => { if (this.#leaving.get(roomId) === frame.ref) this.#leave(roomId); }, this.#backoff(3));
    timer.unref?.();
  }

  #sendSubscribe(subscription) {
    if (this.#leaving.has(subscription.roomId)) return;
    subscription.ref = `s${++this.#refs}`;
    subscription.forgetAnnounced();
    this.#transmit(subscription.frame());
  }

  #end(subscription) {
    subscription.isEnded = true;
    if (this.#subscriptions.get(subscription.roomId) === subscription) this.#subscriptions.delete(subscription.roomId);
    // Marks that waited for its announcement wait for nothing now.
    this.#sendMarks((roomId) => subscription.isAll || roomId === subscription.roomId);
  }

  #subscriptionOf(room) { return this.#subscriptions.get(room) ?? this.#subscriptions.get("*"); }

  #onSubscribed(frame) {
    const own = this.#subscriptions.get(frame.roomId);
    const all = this.#subscriptions.get("*");
    if (frame.roomId === "*") {
      if (!all || all.ref !== frame.ref) return;
      all.onLive(frame.rooms);
      // The rest are of rooms that are not mine.
      return this.#sendMarks((roomId) => !all.announced.has(roomId));
    }
    const isOwn = own && own.ref === frame.ref;
    // Another ref answers a subscription that was replaced since.
    if (!isOwn && frame.ref !== undefined && frame.ref !== all?.ref) return;
    this.#dropMarkOfOther(frame.roomId, frame.epoch);
    const mark = this.#marks.get(frame.roomId);
    (isOwn ? own : all)?.onSubscribed(frame.roomId, frame);
    this.#sendMarks((roomId) => roomId === frame.roomId && this.#marks.get(roomId) === mark);
  }

  // ---- Sending ----

  /**
   * Sends a text, now or once connected. It is stored once, after the messages sent to the room before it. Once the
   * connection is closed for good it fails with code `closed`; for want of a token (4401) it waits for another one.
   * @param {string} roomId
   * @param {string} text
   * @param {{messageId?: string, messageType?: string, timestamp?: string, userId?: string, username?: string}} [options]
   * @returns {Outgoing} with its `state`, and `done`, a promise of the receipt
   */
  send(roomId, text, options = {}) {
    const outgoing = new Outgoing({
      type: "send",
      roomId,
      userId: options.userId ?? this.user,
      username: options.username ?? this.#options.username,
      message: text,
      messageType: options.messageType ?? "TEXT",
      messageId: options.messageId ?? makeId(),
      timestamp: options.timestamp ?? new Date().toISOString(),
    }, (outgoing) => this.#retry(outgoing), (outgoing, problem) => this.#cancel(outgoing, problem));
    this.#enqueue(outgoing);
    return outgoing;
  }

  #retry(outgoing) {
    if (outgoing.state !== Delivery.FAILED) return;
    outgoing.renew();
    this.#enqueue(outgoing);
  }

  #cancel(outgoing, problem = this.#canceled) {
    if (outgoing.state === Delivery.DURABLE || outgoing.state === Delivery.FAILED) return;
    if (this.#unanswered.has(outgoing.ref)) {
      // Its answer is still to come: until then it counts among what is on the way, and a ping's gate stays.
      const { attempts, message, ref, roomId, sentAt } = outgoing;
      this.#unanswered.set(ref, { attempts, message, ref, roomId, sentAt, isGivenUp: true });
    }
    this.#fail(outgoing, problem);
  }

  get #canceled() {
    const { reason } = this.#state;
    return this.#isOpen || !reason ? CANCELED : { ...CANCELED, detail: `${CANCELED.detail}; not connected: ${reason}` };
  }

  #enqueue(outgoing) {
    if (this.#ending) return this.#fail(outgoing, this.#ending);
    if (this.#waiting >= this.#options.waitingMax) {
      const detail = `${this.#waiting} messages wait already`;
      return this.#fail(outgoing, { code: "queue_full", detail, retryable: true });
    }
    if (!this.#lanes.has(outgoing.roomId)) this.#lanes.set(outgoing.roomId, new Lane(outgoing.roomId));
    const lane = this.#lanes.get(outgoing.roomId);
    lane.waiting.push(outgoing);
    this.#waiting += 1;
    this.#setDelivery(outgoing, Delivery.QUEUED);
    this.#flush(lane);
  }

  #flush(lane) {
    while (
      !lane.isHeld && !this.#isGated && lane.sent < Math.min(lane.waiting.length, this.#options.inFlightMax, lane.window) &&
      this.#unanswered.size < UNANSWERED_MAX && this.#isOpen
    ) {
      const outgoing = lane.waiting[lane.sent++];
      // The next free slot is another room's.
      this.#lanes.delete(lane.roomId);
      this.#lanes.set(lane.roomId, lane);
      outgoing.ref = `m${++this.#refs}`;
      outgoing.sentAt = performance.now();
      this.#unanswered.set(outgoing.ref, outgoing);
      this.#transmit({ ...outgoing.frame, ref: outgoing.ref });
      this.#setDelivery(outgoing, Delivery.SENT);
    }
  }

  #setDelivery(outgoing, state) {
    outgoing.state = state;
    this.#emit("outgoing", outgoing);
  }

  /** Removes a message from its lane. */
  #removeFromLane(outgoing) {
    const lane = this.#lanes.get(outgoing.roomId);
    const index = lane?.waiting.indexOf(outgoing) ?? -1;
    if (index < 0) return;
    lane.waiting.splice(index, 1);
    this.#waiting -= 1;
    if (index < lane.sent) lane.sent -= 1;
    if (lane.waiting.length === 0) this.#lanes.delete(outgoing.roomId);
  }

  #fail(outgoing, problem) {
    this.#removeFromLane(outgoing);
    outgoing.error = new HubbubError(problem);
    this.#setDelivery(outgoing, Delivery.FAILED);
    outgoing.reject(outgoing.error);
  }

  #onAck(frame) {
    const outgoing = this.#unanswered.get(frame.ref);
    this.#isGated = false;
    if (!outgoing) return;
    this.#unanswered.delete(frame.ref);
    if (outgoing.isGivenUp) return this.#continueLane(this.#lanes.get(outgoing.roomId));
    const { messageId, seq, epoch, receivedAt, duplicate } = frame;
    outgoing.receipt = { messageId, seq, epoch, receivedAt, duplicate };
    this.#removeFromLane(outgoing);
    this.#setDelivery(outgoing, Delivery.DURABLE);
    outgoing.resolve(outgoing.receipt);
    const lane = this.#lanes.get(outgoing.roomId);
    if (lane && !lane.isHeld) Object.assign(lane, { failures: 0, window: lane.window * 2 });
    this.#continueLane(lane);
  }

  #onSendRefused(outgoing, frame) {
    this.#unanswered.delete(frame.ref);
    const lane = this.#lanes.get(outgoing.roomId);
    outgoing.attempts += 1;
    if (!frame.retryable || outgoing.attempts >= this.#options.attemptsMax) {
      if (!outgoing.isGivenUp) this.#fail(outgoing, frame);
    } else if (lane) {
      lane.isHeld = true;
      lane.window = 1;
    }
    this.#isGated = false;
    this.#continueLane(this.#lanes.get(outgoing.roomId));
  }

  /** Continues after an answer. After a refusal it first waits for all answers, to keep the order. */
  #continueLane(lane) {
    if (lane?.isHeld && ![...this.#unanswered.values()].some(({ roomId }) => roomId === lane.roomId)) {
      for (const outgoing of lane.waiting.slice(0, lane.sent)) this.#setDelivery(outgoing, Delivery.QUEUED);
      lane.sent = 0;
      lane.failures += 1;
      lane.holdTimer = setTimeout(() => {
        lane.isHeld = false;
        this.#flush(lane);
      }, this.#backoff(lane.failures));
      lane.holdTimer.unref?.();
    }
    // Rooms that the common limit or a ping's gate blocked may use a free slot.
    this.#flushAll();
  }

  #flushAll() { for (const lane of [...this.#lanes.values()]) this.#flush(lane); }

  #onError(frame) {
    const outgoing = this.#unanswered.get(frame.ref);
    if (outgoing) return this.#onSendRefused(outgoing, frame);
    const subscription = [...this.#subscriptions.values()].find((candidate) => candidate.ref === frame.ref);
    if (subscription) return this.#onSubscribeRefused(subscription, frame);
    const [left] = [...this.#leaving].find(([, ref]) => ref === frame.ref) ?? [];
    if (left !== undefined) return this.#onLeaveRefused(left, frame);
    const [marked] = [...this.#marks].find(([, { ref }]) => ref === frame.ref) ?? [];
    if (marked !== undefined) return this.#onMarkRefused(marked, frame);
    if (frame.code === "unknown_type" && frame.ref) return void this.#unsupported.add(frame.ref);
    // What answers no frame has ended a subscription.
    if (frame.ref === undefined && frame.roomId !== undefined) {
      this.#marks.delete(frame.roomId);
      const own = this.#subscriptions.get(frame.roomId);
      // One that has not asked yet waits for the end of the one before, which this concerns.
      if (own?.ref === "") return;
      if (own) this.#end(own);
      const all = this.#subscriptions.get("*");
      all?.cursors.delete(frame.roomId);
      all?.announced.delete(frame.roomId);
      return this.#emit("removed", frame);
    }
    // A refused typing sign needs no attention, nor does a mark that another has replaced.
    if (frame.ref !== "typing" && !frame.ref?.startsWith(MARK)) this.#emit("error", new HubbubError(frame));
  }

  #onSubscribeRefused(subscription, frame) {
    if (frame.retryable) {
      // Another connection has subscribed already, with another ref.
      const again = () => { if (!subscription.isEnded && subscription.ref === frame.ref) this.#sendSubscribe(subscription); };
      const timer = setTimeout(again, this.#backoff(3));
      return void timer.unref?.();
    }
    this.#end(subscription);
    const error = new HubbubError(frame);
    if (subscription.options.onError) tell(() => subscription.options.onError(error));
    else this.#emit("error", error);
  }

  /**
   * Marks everything up to `seq` as read. Sent again until the server has accepted it: after a reconnect, and after a
   * refusal that may get better. 0 moves nothing: the `read` that answers it tells the mark, and what is unread.
   */
  markRead(roomId, seq) {
    if (this.#unsupported.has("read") || seq <= (this.#marks.get(roomId)?.seq ?? -1)) return;
    const subscription = this.#subscriptionOf(roomId);
    const epoch = subscription?.cursors.get(roomId)?.epoch;
    // What was seen is of a history that the room has no longer; its reset is on the way.
    if (subscription?.announced.has(roomId) && (epoch ?? subscription.epoch) !== subscription.epoch && seq > 0) return;
    this.#marks.set(roomId, { seq, epoch, ref: `${MARK}${++this.#refs}` });
    this.#sendMarks((marked) => marked === roomId);
  }

  /** Sends those marks of which it is known that they are of the history that the server has now. */
  #sendMarks(isWanted = () => true) {
    for (const [roomId, { seq, ref }] of this.#marks) {
      if (isWanted(roomId) && !this.#isToBeAnnounced(roomId)) this.#transmit({ type: "read", ref, roomId, seq });
    }
  }

  /** Whether a `subscribed` of the room is to come, which tells its history. */
  #isToBeAnnounced(roomId) {
    const subscription = this.#subscriptionOf(roomId);
    return subscription !== undefined && !subscription.isLive && !subscription.announced.has(roomId);
  }

  /** A seq of another history says nothing in this one. */
  #dropMarkOfOther(roomId, epoch) {
    if ((this.#marks.get(roomId)?.epoch ?? epoch) !== epoch) this.#marks.delete(roomId);
  }

  /** One beyond the head is answered with the head. */
  #onRead({ roomId, ref, seq }) {
    const mark = this.#marks.get(roomId);
    if (ref !== undefined) this.#markFailures = 0;
    if (mark && (mark.ref === ref || mark.seq <= seq)) this.#marks.delete(roomId);
  }

  /** One pause for all, a longer one than for messages: what has no answer by then goes out again. */
  #onMarkRefused(roomId, frame) {
    if (frame.code === "unknown_type") this.#unsupported.add("read");
    if (!frame.retryable) return void this.#marks.delete(roomId);
    if (this.#markTimer !== undefined) return;
    this.#markFailures += 1;
    this.#markTimer = setTimeout(() => {
      this.#markTimer = undefined;
      this.#sendMarks();
    }, this.#backoff(this.#markFailures + 2));
    this.#markTimer.unref?.();
  }

  /** Tells that the user is typing. Call it at every keystroke: it is sent every few seconds at most. */
  typing(roomId) {
    const now = performance.now();
    if (this.#unsupported.has("typing") || now - (this.#typedAt.get(roomId) ?? -Infinity) < TYPING_EVERY) return;
    if (this.#typedAt.size > 100) this.#typedAt.clear();
    this.#typedAt.set(roomId, now);
    this.#transmit({ type: "typing", ref: "typing", roomId });
  }

  // ---- Requests over HTTP ----

  /** A request under `/v1`, on behalf of the user. Rejects with a {@link HubbubError}. @returns {Promise<any>} */
  async request(method, path, body) {
    const headers = { accept: "application/json" };
    if (this.user !== undefined) headers["hubbub-user"] = this.user;
    if (this.#options.token !== undefined) headers.authorization = `Bearer ${this.#options.token}`;
    if (body !== undefined) headers["content-type"] = "application/json";
    const signal = AbortSignal.timeout(this.#options.answerMax);
    let response;
    let text;
    try {
      const init = { method, headers, body: JSON.stringify(body), signal, redirect: "manual" };
      response = await this.#options.fetch(`${this.#options.url}/v1${path}`, init);
      text = await response.text();
    } catch (error) {
      throw new HubbubError({ code: "unreachable", detail: error.message, retryable: true });
    }
    if (isRedirected(response)) throw new HubbubError(redirection(response.status, response.headers.get("location")));
    const answer = text === "" && [201, 204].includes(response.status) ? undefined : parse(text);
    if (response.ok && !answer?.isStrange) return answer;
    // A proxy's answer does not say whether it may get better.
    throw new HubbubError({ code: "unexpected", retryable: response.ok || response.status >= 500, ...answer, status: response.status });
  }

  /** A page of history, newest last. @param {{after?: number, before?: number, limit?: number, epoch?: string}} [query] */
  history(roomId, query) { return this.#ask("GET", ["rooms", roomId, "messages"], query); }
  /** A page of all rooms. @param {{after?: string, limit?: number}} [query] */
  rooms(query) { return this.#ask("GET", ["rooms"], query); }
  /** A page of the rooms the user is a member of, with unread counts. */
  async myRooms(query) { return this.#ask("GET", ["users", await this.#me(), "rooms"], query); }
  room(roomId) { return this.#ask("GET", ["rooms", roomId]); }
  /** Creates a room or changes it. @param {{title?: string, membersOnly?: boolean}} [settings] */
  putRoom(roomId, settings = {}) { return this.#ask("PUT", ["rooms", roomId], {}, settings); }
  deleteRoom(roomId) { return this.#ask("DELETE", ["rooms", roomId]); }
  members(roomId, query) { return this.#ask("GET", ["rooms", roomId, "members"], query); }
  async addMember(roomId, user) { return this.#ask("PUT", ["rooms", roomId, "members", user ?? await this.#me()]); }
  async removeMember(roomId, user) { return this.#ask("DELETE", ["rooms", roomId, "members", user ?? await this.#me()]); }
  /** Who is connected and follows the room. */
  presence(roomId) { return this.#ask("GET", ["rooms", roomId, "presence"]); }

  async #ask(method, path, query, body) {
    return this.request(method, path.map((part) => `/${segmentOf(part)}`).join("") + search(query), body);
  }

  /** The user, or whose token it is. */
  async #me() {
    const user = this.user ?? (await this.request("GET", "/auth/me"))?.userId;
    if (user) return user;
    throw new HubbubError({ code: "invalid", detail: "no user is named" });
  }
}

function search(query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return { detail: text.slice(0, 200), isStrange: true };
  }
}
