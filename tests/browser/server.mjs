/** The real server as a process of its own, on a port and a data directory that outlive it. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createInterface } from "node:readline";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const BINARY = process.env.HUBBUB_BIN ?? fileURLToPath(new URL("../../target/release/hubbub", import.meta.url));

/** What is around it, but for variables of this program: they are the tests', and the server would take or refuse them. */
const ENVIRONMENT = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("HUBBUB_")));

export class Server {
  #process = null;
  #listen = "127.0.0.1:0";

  /** Starts one; `test.after` takes it down. `settings` go to its environment. */
  static async start(test, settings) {
    const server = new Server();
    server.data = await mkdtemp(join(tmpdir(), "hubbub-page-"));
    test?.after(() => server.remove());
    await server.up(settings);
    return server;
  }

  /** Starts the process, again on the same port, and waits until it is ready. `settings` go to its environment. */
  async up(settings = {}) {
    const options = ["serve", "--listen", this.#listen, "--data", this.data];
    this.#process = spawn(BINARY, options, {
      env: { ...ENVIRONMENT, ...settings },
      stdio: ["ignore", "pipe", process.env.HUBBUB_TEST_LOG ? "inherit" : "ignore"],
    });
    const lines = createInterface({ input: this.#process.stdout });
    const [line] = await Promise.race([
      once(lines, "line"),
      once(this.#process, "exit").then(([code]) => { throw new Error(`the server ended with ${code} before it was ready`); }),
    ]);
    this.url = line.replace(/^ready /, "");
    this.#listen = new URL(this.url).host;
  }

  /** As a power failure would: nothing gets a chance to finish. */
  async kill() {
    if (!this.#process || this.#process.exitCode !== null || this.#process.signalCode !== null) return;
    const gone = once(this.#process, "exit");
    this.#process.kill("SIGKILL");
    await gone;
  }

  async remove() {
    await this.kill();
    await rm(this.data, { recursive: true, force: true });
  }

  /** Everything a room holds. */
  async history(room) {
    const messages = [];
    let after = 0;
    do {
      const response = await fetch(`${this.url}/v1/rooms/${room}/messages?after=${after}&limit=1000`);
      if (response.status === 404) return [];
      const page = await response.json();
      messages.push(...page.messages);
      after = page.next;
    } while (after);
    return messages;
  }

  /** Many messages at once, as lines. */
  async fill(room, count, text = (n) => `message ${n}`, users = ["ada", "bob", "cleo"]) {
    for (let from = 1; from <= count; from += 1000) {
      const lines = [];
      for (let n = from; n < from + 1000 && n <= count; n++) {
        lines.push(JSON.stringify({ roomId: room, userId: users[n % users.length], message: text(n) }));
      }
      const response = await fetch(`${this.url}/v1/messages`, { method: "POST", body: lines.join("\n") });
      const answer = await response.text();
      if (!response.ok || answer.includes('"code"')) throw new Error(answer.slice(0, 300));
    }
  }
}
