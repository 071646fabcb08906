/** HTTP requests, repeated until there is a final answer. Pauses have a random part, and heed `Retry-After`. */

import { HubbubError } from "./hubbub.js";

/** Codes after which nobody knows whether the request took effect. */
const OPEN_CODES = new Set(["unconfirmed", "internal", "unreachable"]);

export const sleep = (ms, signal) => new Promise((resolve, reject) => {
  if (signal?.aborted) return reject(canceled());
  const stop = () => { clearTimeout(timer); reject(canceled()); };
  const timer = setTimeout(() => { signal?.removeEventListener("abort", stop); resolve(); }, ms);
  signal?.addEventListener("abort", stop, { once: true });
});

export const canceled = () =>
  new HubbubError({ code: "canceled", detail: "given up by the caller; it may have taken effect" });

export const closed = () => new HubbubError({ code: "closed", detail: "the client was closed" });

/**
 * The pause before another attempt, in ms: a random part of an exponentially growing time, and never less than the
 * server asks for.
 * @param {number} attempt  from 0
 * @param {number} [retryAfter]  seconds
 */
export function pauseOf(attempt, retryAfter, { backoffFirst, backoffMax }, random = Math.random) {
  const most = Math.min(backoffMax, backoffFirst * 2 ** Math.min(attempt, 20));
  // Those who are told the same second do not come back at the same moment.
  return (retryAfter ?? 0) * 1_000 + random() * most;
}

async function problemOf(response) {
  const text = await response.text();
  let problem = { detail: text.slice(0, 200) };
  try { problem = JSON.parse(text); } catch { /* a proxy's words */ }
  const isOverload = response.status === 429 || response.status === 503;
  const retryAfter = Number(response.headers.get("retry-after") ?? (isOverload ? 1 : 0));
  return {
    code: "unexpected", retryable: response.status >= 500, ...problem, status: response.status,
    retryAfter: Number.isFinite(retryAfter) ? retryAfter : 1,
  };
}

export class Http {
  #closing = new AbortController();

  constructor(options) { this.options = options; }

  /** Aborted when the client is closed. */
  get closing() { return this.#closing.signal; }

  /** Ends what is under way, and refuses what comes. */
  close() { this.#closing.abort(); }

  headers(given = {}) {
    const { user, token } = this.options;
    return {
      ...(user === undefined ? {} : { "hubbub-user": user }),
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      ...given,
    };
  }

  /** One attempt: the response of a success. Rejects with a {@link HubbubError}. */
  async once(method, path, { body, headers, signal } = {}) {
    let response;
    let problem;
    try {
      const init = { method, body, headers: this.headers(headers), signal };
      response = await this.options.fetch(this.options.url + path, init);
      problem = response.ok ? null : await problemOf(response);
    } catch (error) {
      throw new HubbubError({ code: "unreachable", detail: error.cause?.message ?? error.message, retryable: true });
    }
    if (problem) throw new HubbubError(problem);
    return response;
  }

  /**
   * Repeats a request for up to `patience`. Returns `{response, body, isOpen}`: `isOpen` says that an attempt before
   * the last one may have taken effect, too. An error has it as `error.isOpen`.
   * @param {{body?: any, headers?: object, signal?: AbortSignal, waitMs?: number}} [request]  `waitMs`: how long the
   *   server may wait before it answers
   */
  async call(method, path, { waitMs = 0, signal, ...request } = {}) {
    const { patience, answerMax } = this.options;
    const given = signal ? AbortSignal.any([signal, this.closing]) : this.closing;
    const end = Date.now() + patience;
    let isOpen = false;
    for (let attempt = 0; ; attempt++) {
      const limit = AbortSignal.timeout(answerMax + waitMs);
      try {
        const response = await this.once(method, path, { ...request, signal: AbortSignal.any([given, limit]) });
        return { response, body: await readBody(response), isOpen };
      } catch (error) {
        if (this.closing.aborted) throw closed();
        if (signal?.aborted) throw canceled();
        const pause = pauseOf(attempt, error.problem.retryAfter, this.options);
        if (!error.retryable || Date.now() + pause > end) throw Object.assign(error, { isOpen });
        isOpen ||= OPEN_CODES.has(error.code);
        await sleep(pause, given);
      }
    }
  }

  /** A request with JSON, and the JSON of its answer. */
  async json(method, path, value, request = {}) {
    const body = value === undefined ? undefined : JSON.stringify(value);
    const headers = value === undefined ? {} : { "content-type": "application/json" };
    const answer = await this.call(method, path, { body, headers, ...request });
    return answer.body.length === 0 ? null : JSON.parse(new TextDecoder().decode(answer.body));
  }
}

async function readBody(response) {
  try {
    return new Uint8Array(await response.arrayBuffer());
  } catch (error) {
    throw new HubbubError({ code: "unreachable", detail: error.message, retryable: true });
  }
}

/** `?a=1` of the parameters that have a value. */
export function query(parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null);
  return given.length === 0 ? "" : `?${new URLSearchParams(given)}`;
}
