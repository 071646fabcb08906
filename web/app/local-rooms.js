/** Stands in for members and read marks where a server does not keep them: they are kept in this browser instead. */

export class LocalRooms {
  #client;
  #key;
  #marks;

  constructor(client) {
    this.#client = client;
    this.#key = `hubbub.rooms.${client.user}`;
    try {
      this.#marks = new Map(JSON.parse(localStorage.getItem(this.#key) ?? "[]"));
    } catch {
      this.#marks = new Map();
    }
  }

  has(roomId) { return this.#marks.has(roomId); }

  /** The same answer as `GET /v1/users/{user}/rooms`. */
  async rooms() {
    const entries = [...this.#marks].map(async ([roomId, readSeq]) => {
      const page = await this.#client.history(roomId, { limit: 1 }).catch(() => ({ head: 0, messages: [] }));
      const unread = Math.max(0, page.head - readSeq);
      return { roomId, title: "", head: page.head, readSeq, unread, lastMessage: page.messages[0] ?? null };
    });
    return { rooms: await Promise.all(entries), next: null };
  }

  mark(roomId, seq) {
    this.#marks.set(roomId, Math.max(seq, this.#marks.get(roomId) ?? 0));
    this.#keep();
  }

  remove(roomId) {
    this.#marks.delete(roomId);
    this.#keep();
  }

  #keep() {
    try {
      localStorage.setItem(this.#key, JSON.stringify([...this.#marks]));
    } catch {
      // Only as long as this page is open, then.
    }
  }
}
