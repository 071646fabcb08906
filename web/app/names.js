/** Names of people by their ids: as they gave them, or as the id tells. Other names are looked up in what they sent. */

import { isEncoded, nameOfId } from "./ids.js";
import { ask } from "./request.js";

const NAMES_MAX = 5_000;

export class Names {
  #changed;
  #names;
  /** Ids that were looked up, with or without success. */
  #wanted = new Set();

  /** @param changed called when a name was found */
  constructor(user, name, changed) {
    this.#names = new Map([[user, name]]);
    this.#changed = changed;
  }

  of(userId) { return this.#names.get(userId) ?? nameOfId(userId); }

  learn({ userId, username }) {
    if (!username) return;
    if (this.#names.size > NAMES_MAX) this.#names.clear();
    this.#names.set(userId, username);
  }

  /** Looks up names that the ids do not tell, one after another, each id once. A server may refuse: then it is the id. */
  async lookUp(userIds) {
    for (const userId of userIds) {
      if (!isEncoded(userId) || this.#names.has(userId) || this.#wanted.has(userId)) continue;
      this.#wanted.add(userId);
      try {
        const { messages } = await ask("GET", `users/${encodeURIComponent(userId)}/messages?limit=1`);
        messages.forEach((message) => this.learn(message));
        if (this.#names.has(userId)) this.#changed();
      } catch (error) {
        if (error.retryable) this.#wanted.delete(userId);
      }
    }
  }
}
