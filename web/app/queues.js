/** The Queues view: all queues, redrawn every other second, and one queue in detail. */

import { $, icon, make, setStatus, setText } from "./dom.js";
import { age, amount } from "./format.js";
import { sentenceOf } from "./request.js";
import { boardRow, boardTable } from "./table.js";
import { listQueues, putQueue } from "./queues-api.js";
import { QueueView } from "./queue.js";

const LOOK_EVERY = 2_000;
const COLUMNS = ["Queue", "Ready", "Delayed", "Leased", "In/s", "Out/s", "Oldest"];

/** `#queues` and `#queues/NAME`. @returns null elsewhere, "" for the list */
function queueInAddress(hash) {
  const match = /^#queues(?:\/([^/]+))?$/.exec(hash);
  try {
    return match && decodeURIComponent(match[1] ?? "");
  } catch {
    return null;
  }
}

export const addressOf = (queue) => `#queues/${encodeURIComponent(queue)}`;

export class QueuesView {
  #element = $("queues");
  #detail;
  #isAdministrator;
  #isListed = false;
  #timer = null;
  /** The previous counters, for rates. */
  #before = null;
  #rows = new Map();
  #body = make("tbody");
  #status = make("p", { class: "board-status", role: "status" });
  #empty = make("p", { class: "empty", hidden: true }, "There is no queue yet.");
  /** Whether the status says that the list cannot be loaded. */
  #isFailing = false;

  /** `isAdministrator()`: whether the user may make queues. */
  constructor(model, isAdministrator) {
    this.#isAdministrator = isAdministrator;
    this.#detail = new QueueView(model);
    document.addEventListener("visibilitychange", () => this.#look());
  }

  /** Shows what the address names, if it belongs to this view. @returns its title, or null */
  show(hash) {
    const queue = queueInAddress(hash);
    this.#element.hidden = queue === null;
    this.#isListed = queue === "";
    clearTimeout(this.#timer);
    if (queue === null) {
      this.#detail.close();
      this.#element.replaceChildren();
    } else if (queue === "") {
      this.#detail.close();
      this.#open();
    } else {
      this.#element.replaceChildren(this.#detail.open(queue));
    }
    return queue === "" ? "Queues" : queue;
  }

  #open() {
    this.#before = null;
    this.#rows.clear();
    this.#body.replaceChildren();
    setStatus(this.#status, "");
    this.#empty.hidden = true;
    this.#element.replaceChildren(
      make("header", { class: "room-head" },
        make("a", { class: "icon-link only-narrow", href: "#/", "aria-label": "Back to rooms" }, icon("back")),
        make("div", { class: "room-title" }, make("h1", {}, "Queues"),
          make("p", {}, "Messages that wait until somebody takes them"))),
      make("div", { class: "board-body" },
        this.#isAdministrator() ? this.#form() : "",
        this.#status,
        boardTable(COLUMNS, this.#body),
        this.#empty));
    this.#look();
  }

  #form() {
    const name = make("input", { id: "queue-name", placeholder: "Name of a new queue", "aria-label": "Name of a new queue", maxlength: 64, required: true, spellcheck: "false", autocomplete: "off" });
    const lease = make("input", { id: "queue-lease", type: "number", min: 1, value: 30, "aria-label": "Lease in seconds" });
    const deliveries = make("input", { id: "queue-deliveries", type: "number", min: 0, value: 5, "aria-label": "Deliveries before a message is a dead letter" });
    const submit = async (event) => {
      event.preventDefault();
      try {
        const settings = { leaseMs: Math.round(Number(lease.value) * 1_000), maxDeliveries: Number(deliveries.value) };
        const queue = await putQueue(name.value.trim(), settings);
        location.hash = addressOf(queue.queue);
      } catch (error) {
        this.#isFailing = false;
        setStatus(this.#status, sentenceOf(error), true);
      }
    };
    return make("form", { id: "new-queue", class: "board-form", submit },
      make("div", { class: "field grow" }, name),
      make("label", {}, "Lease (s)", make("div", { class: "field number" }, lease)),
      make("label", {}, "Deliveries", make("div", { class: "field number" }, deliveries)),
      make("button", { class: "primary", type: "submit" }, "Create"));
  }

  async #look() {
    clearTimeout(this.#timer);
    if (!this.#isListed || document.visibilityState !== "visible") return;
    const mine = this.#timer = setTimeout(() => this.#look(), LOOK_EVERY);
    // The view was left, or reloaded, while the answer was on its way.
    const isWanted = () => this.#isListed && this.#timer === mine;
    try {
      const queues = await listQueues();
      if (isWanted()) this.#draw(queues);
    } catch (error) {
      if (!isWanted()) return;
      this.#isFailing = true;
      setStatus(this.#status, sentenceOf(error), true);
    }
  }

  #draw(queues) {
    const now = performance.now();
    const before = this.#before;
    this.#before = { now, queues: new Map(queues.map((queue) => [queue.queue, queue])) };
    if (this.#isFailing) setStatus(this.#status, "");
    this.#isFailing = false;
    this.#empty.hidden = queues.length > 0;
    const rows = queues.map((queue) => {
      const row = this.#rows.get(queue.queue) ?? this.#row(queue);
      const last = before?.queues.get(queue.queue);
      const rate = (name) => last && queue[name] >= last[name]
        ? amount((queue[name] - last[name]) / (now - before.now) * 1_000) : "–";
      const cells = [amount(queue.ready), amount(queue.delayed), amount(queue.leased), rate("sent"), rate("done"),
        queue.oldestSentAt ? age(new Date(queue.oldestSentAt)) : "–"];
      cells.forEach((text, index) => setText(row.cells[index + 1], text));
      row.classList.toggle("dead", queue.isDeadLetter && queue.messages > 0);
      return [queue.queue, row];
    });
    const isSame = rows.length === this.#body.children.length && rows.every(([, row], index) => this.#body.children[index] === row);
    this.#rows = new Map(rows);
    if (!isSame) this.#body.replaceChildren(...this.#rows.values());
  }

  #row(queue) {
    return boardRow(COLUMNS, { "data-queue": queue.queue }, make("a", { href: addressOf(queue.queue) }, queue.queue),
      queue.isDeadLetter && make("span", { class: "tag" }, "dead letters"));
  }
}
