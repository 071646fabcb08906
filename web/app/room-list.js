/** Asks for the list of my rooms, and again where it could not be had. */

import { State } from "../hubbub.js";

const PAGE = 500;
/** The list is asked for again after this time if it could not be had, and after twice that next time, in ms. */
const AGAIN_FIRST = 1_000;
const AGAIN_MAX = 30_000;

export class RoomList {
  #client;
  #take;
  /** Number of the newest request: it takes the place of one under way. */
  #number = 0;
  #failures = 0;
  #timer;
  /** What became known since the request: room → whether I am a member. The answer may be older. */
  #news = null;

  /**
   * @param take called with each list: `{entries, epoch, news}`; `news`, room → whether I am a member, overrules the entries
   */
  constructor(client, take) {
    this.#client = client;
    this.#take = take;
  }

  /** I became a member, or am none any more. */
  note(roomId, isMember) { this.#news?.set(roomId, isMember); }

  stop() {
    this.#number++;
    clearTimeout(this.#timer);
  }

  loadIn(wait) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.load(), wait);
  }

  async load() {
    clearTimeout(this.#timer);
    const number = ++this.#number;
    const news = this.#news = new Map();
    const isNewest = () => this.#number === number;
    try {
      const list = await this.#pages(isNewest);
      if (!isNewest()) return;
      this.#news = null;
      this.#failures = 0;
      this.#take({ ...list, news });
    } catch (error) {
      console.warn("hubbub: rooms:", error.code, error.message);
      if (!isNewest()) return;
      this.#news = null;
      if (!error.retryable || this.#client.connection.state !== State.OPEN) return;
      this.loadIn(Math.min(AGAIN_FIRST * 2 ** this.#failures++, AGAIN_MAX));
    }
  }

  async #pages(isNewest) {
    const entries = [];
    let after;
    let epoch;
    do {
      const page = await this.#client.myRooms({ limit: PAGE, after });
      // Of the first page: where a later one is of another history, following begins with resets.
      epoch ??= page.epoch;
      entries.push(...page.rooms);
      after = page.next;
    } while (after && isNewest());
    return { entries, epoch };
  }
}
