/**
 * The part of a room's history in memory: one range without a gap, of bounded length.
 *
 * Positions are absolute. `start` is that of the oldest message held and may be negative. Positions stay valid while
 * messages are added and dropped at either end. While `atHead`, the range ends with the room's newest message, and live
 * messages are appended. Otherwise live messages are dropped; the reader fetches them later.
 */

/** Most messages held, give or take a page. */
export const HELD_MAX = 2_000;
const SLACK = 500;
const PAGE = 100;
/** Most live messages kept while a page is loading. */
const ARRIVED_MAX = 5_000;
/** Pause before a page that could not be had may be asked for again, in ms; twice that after the next failure, and so on. */
const PAUSE_FIRST = 1_000;
const PAUSE_MAX = 30_000;

/**
 * `history(roomId, query)` for a server that may allow pages no longer than some that are asked for here
 * (`limits.page_messages`): where it refuses one for that, pages are as long as it likes from then on.
 */
export function withinLimits(history) {
  let areShort = false;
  return async function ask(roomId, query) {
    try {
      return await history(roomId, areShort ? { ...query, limit: undefined } : query);
    } catch (error) {
      if (areShort || !error.errors?.some(({ field }) => field === "limit")) throw error;
      areShort = true;
      return ask(roomId, query);
    }
  };
}

export class Log {
  #history;
  #changed;
  #messages = [];
  #arrived = [];
  #run = 0;
  #loading = null;
  #limit = PAGE;
  #failures = 0;
  #isPausing = false;
  #timer;

  /**
   * @param history `(query) => Promise<page>`
   * @param changed called after each change with its kind; `pause over` after a failure: whoever still wants the page calls
   *   {@link retry}
   */
  constructor(history, changed) {
    this.#history = history;
    this.#changed = changed;
    this.start = 0;
    this.atHead = false;
    this.atOldest = false;
    this.isReady = false;
    /** Why the last page could not be loaded. */
    this.error = null;
    /** Number of resets of the positions. */
    this.generation = 0;
  }

  get end() { return this.start + this.#messages.length; }
  get length() { return this.#messages.length; }
  get newest() { return this.#messages.at(-1); }
  get oldest() { return this.#messages[0]; }
  get isLoading() { return this.#loading !== null; }
  at(position) { return this.#messages[position - this.start]; }

  /** Whether a message is among those held. */
  holds(messageId) { return this.#messages.some((message) => message.messageId === messageId); }

  /** Position of the first message after `seq`. */
  positionBehind(seq) {
    let low = 0;
    let high = this.#messages.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#messages[middle].seq > seq) high = middle;
      else low = middle + 1;
    }
    return this.start + low;
  }

  /** Restarts with the newest messages. */
  async reload(limit = PAGE) {
    this.#limit = limit;
    this.#run += 1;
    this.#loading = null;
    this.#arrived = [];
    this.isReady = false;
    await this.#page({ limit }, (page) => {
      this.#messages = page.messages;
      this.start = 0;
      this.generation += 1;
      this.atOldest = page.next === null;
      this.isReady = true;
      this.#joinLive();
    });
  }

  /** After a failure: what could not be had may be asked for again at once. */
  retry() {
    if (!this.isReady) return this.isLoading ? undefined : this.reload(this.#limit);
    this.#endPause();
    this.error = null;
    this.#changed("page");
  }

  older() {
    if (!this.isReady || this.atOldest || this.isLoading || this.#isPausing) return;
    return this.#page({ before: this.oldest?.seq, limit: PAGE }, (page) => {
      this.#messages = [...page.messages, ...this.#messages];
      this.start -= page.messages.length;
      this.atOldest = page.next === null;
      if (this.#messages.length > HELD_MAX + SLACK) {
        this.#messages.length = HELD_MAX;
        this.atHead = false;
      }
    });
  }

  newer() {
    if (!this.isReady || this.atHead || this.isLoading || this.#isPausing) return;
    return this.#page({ after: this.newest?.seq ?? 0, limit: PAGE }, (page) => {
      this.#messages.push(...page.messages);
      this.#dropOldest(Infinity);
      if (page.next === null) this.#joinLive();
    });
  }

  /** Adds a live message. `shownFrom` is the position of the oldest visible one, which is not dropped. */
  append(message, shownFrom = Infinity) {
    if (this.isLoading || !this.isReady) {
      if (this.#arrived.length < ARRIVED_MAX) this.#arrived.push(message);
    }
    if (!this.isReady || !this.atHead || message.seq <= (this.newest?.seq ?? 0)) return;
    this.#messages.push(message);
    this.#dropOldest(shownFrom);
    this.#changed("append");
  }

  #dropOldest(shownFrom) {
    if (this.#messages.length <= HELD_MAX + SLACK) return;
    const surplus = Math.min(this.#messages.length - HELD_MAX, shownFrom - this.start);
    if (surplus >= SLACK) {
      this.#messages.splice(0, surplus);
      this.start += surplus;
      this.atOldest = false;
    } else if (this.#messages.length > HELD_MAX + 2 * SLACK) {
      // The reader is at the oldest part. Stop following instead of dropping it.
      this.#messages.length -= SLACK;
      this.atHead = false;
    }
  }

  /** The page reached the head: appends the live messages that came meanwhile. */
  #joinLive() {
    const newest = this.newest?.seq ?? 0;
    this.atHead = this.#arrived.length < ARRIVED_MAX;
    if (this.atHead) this.#messages.push(...this.#arrived.filter((message) => message.seq > newest));
  }

  #endPause() {
    clearTimeout(this.#timer);
    this.#isPausing = false;
  }

  /** What is refused for good is not asked for again before a {@link retry} or {@link reload}. */
  #pause(error) {
    this.error = error;
    this.#isPausing = true;
    if (!error.retryable) return;
    const wait = Math.min(PAUSE_FIRST * 2 ** this.#failures++, PAUSE_MAX);
    this.#timer = setTimeout(() => this.#changed("pause over"), wait);
  }

  #page(query, take) {
    const run = this.#run;
    this.#endPause();
    this.#arrived = [];
    this.error = null;
    const loading = this.#history(query).then(
      (page) => {
        if (run !== this.#run) return;
        this.#failures = 0;
        take(page);
      },
      (error) => {
        if (run !== this.#run) return;
        // A room without a message has no history yet.
        if (error.code === "unknown_room") take({ messages: [], next: null });
        else this.#pause(error);
      },
    ).finally(() => {
      if (run !== this.#run) return;
      this.#loading = null;
      this.#arrived = [];
      this.#changed("page");
    });
    this.#loading = loading;
    this.#changed("loading");
    return loading;
  }
}
