/** Keys with values, and their changes. A key is text, or `{encoded}`: percent-encoded, for bytes that are no text. */

import { HubbubError } from "./hubbub.js";
import { pauseOf, query, sleep, strange } from "./http.js";
import { readEvents } from "./events.js";

/** A key as the server writes it: its bytes, percent-encoded. */
const encodedOf = (key) => typeof key === "string" ? encodeURIComponent(key) : key?.encoded;

/** The path of a key, with slashes as they are. */
function pathOf(key) {
  const encoded = encodedOf(key).replaceAll("%2F", "/").replace(/[?#]/g, encodeURIComponent);
  if (encoded.split("/").some((segment) => /^(\.|%2e){1,2}$/i.test(segment))) {
    const detail = "a path loses segments that are . or ..; use POST /v1/kv";
    const fault = { field: "key", rule: "must have no segment . or .." };
    throw new HubbubError({ code: "invalid", detail, errors: [fault] });
  }
  return `/kv/${encoded}`;
}

/** The key that the server writes so: text, or `{encoded}` if it is none. */
function keyOf(encoded) {
  try { return decodeURIComponent(encoded); } catch { return { encoded }; }
}

/** Most attempts to change a key that others change all the time. */
const CONFLICTS_MAX = 100;

function isSame(stored, value) {
  const bytes = typeof value === "string" ? new TextEncoder().encode(value) : value;
  return stored.length === bytes.length && stored.every((byte, index) => byte === bytes[index]);
}

/** A proxy that compresses what it passes on makes the tag a weak one. */
function revisionOf(response) {
  const tag = response.headers.get("etag");
  const [, revision] = /^(?:W\/)?"(\d+)"$/.exec(tag ?? "") ?? [];
  if (revision === undefined) throw strange(tag === null ? "no ETag" : `ETag: ${tag}`);
  return Number(revision);
}

/** `revision` 0 = only if there is no such key. */
function condition(revision) {
  if (revision === undefined) return {};
  return revision === 0 ? { "if-none-match": "*" } : { "if-match": `"${revision}"` };
}

/** An answer that an earlier attempt of the same call may have caused says nothing. */
function openIfRepeated(error) {
  if (!error.isOpen || error.code !== "condition_failed") return error;
  const detail = "an attempt without an answer may have taken effect; read the key";
  return new HubbubError({ ...error.problem, code: "unconfirmed", detail, retryable: false });
}

export class Keys {
  #http;

  constructor(http) { this.#http = http; }

  /** `{value, text, revision}`, or `undefined` if there is no such key. */
  async get(key, { signal } = {}) {
    try {
      const { response, body } = await this.#http.call("GET", pathOf(key), { signal });
      return new Value(body, revisionOf(response));
    } catch (error) {
      if (error.code === "unknown_key") return undefined;
      throw error;
    }
  }

  /**
   * Stores a value. With `revision` only if the key still has that one (0 = does not exist): otherwise rejects with
   * `condition_failed`. Either way it rejects with `unconfirmed` if an attempt without an answer may have stored it, and
   * somebody else's value is there now.
   */
  async put(key, value, { revision, ttl, signal } = {}) {
    if (revision !== undefined) return this.#putIf(key, value, { revision, ttl, signal });
    return this.#asItIs(key, signal, async (revision) => {
      try {
        return await this.#putIf(key, value, { revision, ttl, signal });
      } catch (error) {
        const found = error.code === "unconfirmed" ? await this.get(key, { signal }) : undefined;
        if (!found || !isSame(found.value, value)) throw error;
        return { revision: found.revision, created: revision === 0 };
      }
    });
  }

  /**
   * Changes a key whatever its revision is, but each attempt names the one it saw: an attempt that got no answer must
   * not take effect behind later changes. Only the absence of a key can come back, after a delete.
   */
  async #asItIs(key, signal, change) {
    for (let attempt = 1; ; attempt++) {
      try {
        return await change(await this.#revision(key, signal));
      } catch (error) {
        // Somebody else was faster.
        if (error.code !== "condition_failed" || attempt === CONFLICTS_MAX) throw error;
      }
    }
  }

  /** 0 if there is no such key. */
  async #revision(key, signal) {
    try {
      return revisionOf((await this.#http.call("HEAD", pathOf(key), { signal })).response);
    } catch (error) {
      // This answer has no body: its type tells the server's from a proxy's.
      if (error.status === 404 && error.problem.contentType?.startsWith("application/problem+json")) return 0;
      if (error.status !== 403) throw error;
      const detail = "the key is read first, as no revision was given: that needs the right to read it";
      throw new HubbubError({ ...error.problem, detail });
    }
  }

  async #putIf(key, value, { revision, ttl, signal }) {
    const headers = { ...condition(revision), ...(ttl === undefined ? {} : { "hubbub-ttl": String(ttl) }) };
    try {
      const { response } = await this.#http.call("PUT", pathOf(key), { body: value, headers, signal });
      if (response.status !== 201 && response.status !== 204) throw strange(`status ${response.status}`);
      return { revision: revisionOf(response), created: response.status === 201 };
    } catch (error) {
      throw openIfRepeated(error);
    }
  }

  /** Whether there was such a key. `revision` and errors as in `put`. */
  async delete(key, { revision, signal } = {}) {
    if (revision !== undefined) return this.#deleteIf(key, { revision, signal });
    return this.#asItIs(key, signal, async (revision) => {
      try {
        return revision !== 0 && await this.#deleteIf(key, { revision, signal });
      } catch (error) {
        if (error.code !== "unconfirmed" || await this.#revision(key, signal) !== 0) throw error;
        return true;
      }
    });
  }

  async #deleteIf(key, { revision, signal }) {
    try {
      await this.#http.done("DELETE", pathOf(key), { headers: condition(revision), signal });
      return true;
    } catch (error) {
      if (error.code === "unknown_key" && error.isOpen) return true;
      if (error.code === "unknown_key") throw new HubbubError({ ...error.problem, code: "condition_failed" });
      throw openIfRepeated(error);
    }
  }

  /** A page of keys in order. Its `revision` is where to watch from. */
  async list({ prefix, after, limit, signal } = {}) {
    const path = `/v1/kv${query({ prefix: encodedOf(prefix), after: encodedOf(after), limit })}`;
    const page = await this.#http.json("keys", "GET", path, undefined, { signal });
    const keys = page.keys.map((entry) => ({ ...entry, key: keyOf(entry.key) }));
    return { ...page, keys, next: page.next === null ? null : keyOf(page.next) };
  }

  /** Follows changes; iterate over what it returns. */
  watch(options = {}) { return new Watch(this.#http, options); }
}

class Value {
  constructor(value, revision) {
    this.value = value;
    this.revision = revision;
  }

  get text() { return new TextDecoder().decode(this.value); }
}

/** Events of keys: `ready`, `put`, `delete`, `expire`, `reset`. They are read when they are asked for. */
export class Watch {
  #http;
  #prefix;
  #abort = new AbortController();
  #events;
  #position;

  constructor(http, { prefix, after, epoch }) {
    this.#http = http;
    http.closing.addEventListener("abort", () => this.close(), { once: true, signal: this.#abort.signal });
    this.#prefix = encodedOf(prefix);
    this.#position = { epoch, revision: after };
    this.#events = this.#follow();
  }

  /** `{epoch, revision}` behind the last event: keep it to continue there. */
  get position() { return this.#position; }

  /** Ends it. */
  close() { this.#abort.abort(); }
  /** The next change. */
  next() { return this.#events.next(); }
  async return() {
    this.close();
    return { value: undefined, done: true };
  }
  [Symbol.asyncIterator]() { return this; }

  async *#follow() {
    const { signal } = this.#abort;
    for (let attempt = 0; !signal.aborted; attempt++) {
      try {
        for await (const event of this.#connection()) {
          attempt = -1;
          if (event) yield event;
        }
        if (signal.aborted) return;
      } catch (error) {
        if (signal.aborted) return;
        if (error.code === "reset" || error.code === "compacted") yield this.#reset(error.problem);
        else if (!error.retryable) throw error;
        else await this.#pause(attempt, error.problem.retryAfter);
        continue;
      }
      await this.#pause(attempt);
    }
  }

  async #pause(attempt, retryAfter) {
    const { signal } = this.#abort;
    const pause = pauseOf(Math.max(attempt, 0), retryAfter, this.#http.options);
    await sleep(pause, [signal]);
  }

  #reset({ epoch, oldest, head }) {
    const historyReplaced = this.#position.epoch !== undefined && this.#position.epoch !== epoch;
    this.#position = { epoch, revision: head };
    return { type: "reset", epoch, oldest, head, historyReplaced };
  }

  async *#connection() {
    const { token } = this.#http.options;
    const { epoch, revision } = this.#position;
    const cursor = revision === undefined ? {} : { after: revision, epoch };
    const path = `/v1/kv/watch${query({ prefix: this.#prefix, ...cursor })}`;
    for await (const { id, event, data } of readEvents(this.#http, path, this.#abort.signal)) {
      const [, epoch, revision] = /^(.*):(\d+)$/.exec(id ?? "") ?? [];
      if (revision !== undefined) this.#position = { epoch, revision: Number(revision) };
      if (event === "watching") {
        this.#position = { epoch: data.epoch, revision: data.after };
        yield { type: "ready", epoch: data.epoch, revision: data.after };
      } else if (event === "error") {
        throw new HubbubError(this.#http.unlessRenewed(data, token));
      } else if (event === "put" || event === "delete" || event === "expire") {
        yield { type: event, key: keyOf(data.key), revision: data.revision };
      } else {
        yield null;
      }
    }
  }
}
