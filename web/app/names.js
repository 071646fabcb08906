/** Names of people by their ids: as they gave them, or as the id tells. Other names are looked up in what they sent. */

import { isEncoded, nameOfId } from "./ids.js";
import { ask } from "./request.js";

const NAMES_MAX = 5_000;

export class Names {
  #changed;
  #own;
  /** User → {name, at}: the newest name of others, and when it was used. Longest unused first. */
  #names = new Map();
  /** Ids that were looked up, with or without success. */
  #wanted = new Set();

  /** @param changed called when a name was found */
  constructor(user, name, changed) {
    this.#own = { user, name };
    this.#changed = changed;
  }

  of(userId) {
    if (userId === this.#own.user) return this.#own.name;
    return this.#names.get(userId)?.name ?? nameOfId(userId);
  }

  /** Takes the name from a message, unless a newer one told another. */
  learn({ userId, username, receivedAt = "" }) {
    if (!username || receivedAt < (this.#names.get(userId)?.at ?? "")) return;
    this.#names.delete(userId);
    this.#names.set(userId, { name: username, at: receivedAt });
    dropOldest(this.#names);
  }

  /** Looks up names that the ids do not tell, one after another, each id once. A server may refuse: then it is the id. */
  async lookUp(userIds) {
    for (const userId of userIds) {
      const isKnown = userId === this.#own.user || this.#names.has(userId) || this.#wanted.has(userId);
      if (!isEncoded(userId) || isKnown) continue;
      this.#wanted.add(userId);
      dropOldest(this.#wanted);
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

function dropOldest(collection) {
  if (collection.size > NAMES_MAX) collection.delete(collection.keys().next().value);
}
