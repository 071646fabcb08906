/** HTTP requests, repeated until there is a final answer. Pauses have a random part, and heed `Retry-After`. */

import { HubbubError, isRedirected, redirection } from "./hubbub.js";
import { problemOf } from "./problem.js";

/** Codes after which nobody knows whether the request took effect. */
const OPEN_CODES = new Set(["unconfirmed", "internal", "unreachable", "unexpected"]);

/** Signal → the controllers to abort with it. It has one listener for all: Node warns of more than ten. */
const followers = new WeakMap();

function followersOf(signal) {
  if (!followers.has(signal)) {
    const controllers = new Set();
    followers.set(signal, controllers);
    signal.addEventListener("abort", () => { for (const controller of controllers) controller.abort(); });
  }
  return followers.get(signal);
}

/**
 * Runs `action` with a signal that is aborted after `ms`, or with one of `signals`, and leaves nothing of it behind at
 * these. Some versions of Node keep what `AbortSignal.any` makes for as long as its sources live.
 */
async function within(ms, signals, action) {
  const controller = new AbortController();
  const given = signals.filter((signal) => signal);
  const timer = setTimeout(() => controller.abort(), ms);
  if (given.some(({ aborted }) => aborted)) controller.abort();
  for (const signal of given) followersOf(signal).add(controller);
  try {
    return await action(controller.signal);
  } finally {
    clearTimeout(timer);
    for (const signal of given) followersOf(signal).delete(controller);
  }
}

/** Resolves after `ms`, or with the first of `signals` that is aborted. */
export const sleep = (ms, signals) => within(ms, signals, (over) => new Promise((resolve) => {
  if (over.aborted) resolve();
  over.addEventListener("abort", resolve);
}));

/** `last`: the error of the attempt before, if that ended by itself. */
function canceled(last) {
  const why = last ? `; the last attempt: ${last.message}` : "";
  return new HubbubError({ code: "canceled", detail: `given up by the caller; it may have taken effect${why}` });
}

/** An answer that is not the server's, whatever its status: a proxy's page, for instance. */
export const strange = (why) =>
  new HubbubError({ code: "protocol", detail: `the server's answer is not what is expected: ${why}` });

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

async function refusalOf(response) {
  const contentType = response.headers.get("content-type") ?? "";
  // Also where it says nothing: the connection is free again then.
  const text = await response.text();
  const problem = isRedirected(response)
    ? redirection(response.status, response.headers.get("location"))
    : problemOf(response.status, text, contentType);
  const isOverload = response.status === 429 || response.status === 503;
  const retryAfter = Number(response.headers.get("retry-after") ?? (isOverload ? 1 : 0));
  return { ...problem, retryAfter: Number.isFinite(retryAfter) ? retryAfter : 1 };
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

  /** `problem` of an attempt with `token`: retryable if a newer token has replaced that one since. */
  unlessRenewed(problem, token) {
    return problem.status === 401 && token !== this.options.token ? { ...problem, retryable: true } : problem;
  }

  /** One attempt: the response of a success. Rejects with a {@link HubbubError}. */
  async once(method, path, { body, headers, signal } = {}) {
    const { token } = this.options;
    let response;
    let problem;
    try {
      const init = { method, body, headers: this.headers(headers), signal, redirect: "manual" };
      response = await this.options.fetch(this.options.url + path, init);
      problem = response.ok ? null : await refusalOf(response);
    } catch (error) {
      throw new HubbubError({ code: "unreachable", detail: error.cause?.message ?? error.message, retryable: true });
    }
    if (problem) throw new HubbubError(this.unlessRenewed(problem, token));
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
    const signals = [signal, this.closing];
    const end = performance.now() + patience;
    let isOpen = false;
    let last;
    for (let attempt = 0; ; attempt++) {
      try {
        return await within(answerMax + waitMs, signals, async (limited) => {
          const response = await this.once(method, path, { ...request, signal: limited });
          return { response, body: await readBody(response), isOpen };
        });
      } catch (error) {
        this.#throwIfOver(signal, last);
        last = error;
        const pause = pauseOf(attempt, error.problem.retryAfter, this.options);
        if (!error.retryable || performance.now() + pause > end) throw Object.assign(error, { isOpen });
        isOpen ||= OPEN_CODES.has(error.code);
        await sleep(pause, signals);
        this.#throwIfOver(signal, last);
      }
    }
  }

  #throwIfOver(signal, last) {
    if (this.closing.aborted) throw closed();
    if (signal?.aborted) throw canceled(last);
  }

  /** A request with JSON, and the JSON of its answer, which has this member. */
  async json(member, method, path, value, request) {
    const { body } = await this.call(method, path, { ...withJson(value), ...request });
    let found;
    try {
      found = JSON.parse(new TextDecoder().decode(body));
    } catch (error) {
      throw strange(error.message);
    }
    if (found?.[member] === undefined) throw strange(`no ${member}`);
    return found;
  }

  /** A request whose success has nothing to say, and the status for that. */
  async done(method, path, request) {
    const { response } = await this.call(method, path, request);
    if (response.status !== 204) throw strange(`status ${response.status}`);
  }
}

/** What a request with this JSON, if any, consists of. */
export function withJson(value) {
  if (value === undefined) return {};
  return { body: JSON.stringify(value), headers: { "content-type": "application/json" } };
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
