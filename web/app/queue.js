/** The view of one queue: its state, its messages, and actions. */

import { icon, make, setStatus, setText } from "./dom.js";
import { age, amount, exact, isStacked } from "./format.js";
import { idOf, isId } from "./ids.js";
import { sentenceOf } from "./request.js";
import { deleteQueue, getQueue, peek, redrive, removeMessage, send } from "./queues-api.js";

/** Most characters of a text shown in the list, and in a question. */
const TEXT_MAX = 400;
const ASKED_MAX = 60;
const FIGURES = ["Ready", "Delayed", "Leased", "Sent", "Done", "Dropped"];

export class QueueView {
  #model;
  #queue = null;
  #subtitle = make("p");
  #status = make("p", { class: "board-status", role: "status" });
  #figures = make("dl", { class: "figures" });
  #list = make("ol", { class: "waiting", "aria-label": "Messages of the queue" });
  #more = make("button", { type: "button", click: () => this.#act(() => this.#page()) }, "More");
  #redrive = make("button", { type: "button", click: () => this.#act(() => this.#redriveAll()) }, "Redrive all");
  #next = "0";

  constructor(model) {
    this.#model = model;
  }

  /** @returns the elements, filled when answers come */
  open(queue) {
    this.#queue = queue;
    for (const list of [this.#list, this.#figures]) list.replaceChildren();
    setText(this.#subtitle, "");
    setStatus(this.#status, "");
    this.#more.hidden = this.#redrive.hidden = true;
    const fragment = document.createDocumentFragment();
    fragment.append(
      make("header", { class: "room-head" },
        make("a", { class: "icon-link", href: "#queues", "aria-label": "Back to all queues" }, icon("back")),
        make("div", { class: "room-title" }, make("h1", {}, queue), this.#subtitle),
        make("div", { class: "board-actions" }, this.#redrive,
          make("button", { type: "button", click: () => this.#act(() => this.#refresh()) }, "Refresh"),
          make("button", { class: "danger", type: "button", click: () => this.#act(() => this.#delete()) }, "Delete"))),
      make("div", { class: "board-body" }, this.#figures, this.#form(), this.#status, this.#list, this.#more));
    this.#act(() => this.#refresh());
    return fragment;
  }

  close() {
    this.#queue = null;
  }

  /** Runs an action and shows its error. */
  async #act(action) {
    const queue = this.#queue;
    try {
      setStatus(this.#status, "");
      await action();
    } catch (error) {
      if (this.#queue === queue) setStatus(this.#status, sentenceOf(error), true);
    }
  }

  #form() {
    const text = make("input", { id: "queue-text", placeholder: "Send a message", "aria-label": "Message", dir: "auto", required: true, autocomplete: "off" });
    const receiver = make("input", { id: "queue-receiver", placeholder: "anybody", "aria-label": "Receiver", dir: "auto", maxlength: 64, spellcheck: "false", autocomplete: "off" });
    const all = make("input", { id: "queue-all", type: "checkbox", change: () => { receiver.disabled = all.checked; } });
    const delay = make("input", { id: "queue-delay", type: "number", min: 0, value: 0, "aria-label": "Delay in seconds" });
    const submit = (event) => {
      event.preventDefault();
      this.#act(async () => {
        const message = { sender: this.#model.user, message: text.value, delayMs: Math.round(Number(delay.value) * 1_000) };
        if (all.checked) message.audience = "all";
        else if (receiver.value.trim()) message.receiver = receiverOf(receiver.value.trim());
        const { copies } = await send(this.#queue, message);
        text.value = "";
        await this.#refresh();
        if (copies !== 1) setText(this.#status, copies === 0 ? "Nobody else is registered: no copy was made." : `${copies} copies wait.`);
      });
    };
    return make("form", { id: "queue-send", class: "board-form", submit },
      make("div", { class: "field grow" }, text),
      make("label", {}, "To", make("div", { class: "field" }, receiver)),
      make("label", { class: "check" }, all, "All clients"),
      make("label", {}, "Delay (s)", make("div", { class: "field number" }, delay)),
      make("button", { class: "primary", type: "submit" }, "Send"));
  }

  async #refresh() {
    const name = this.#queue;
    const [queue, page] = await Promise.all([getQueue(name), peek(name, "0")]);
    if (this.#queue !== name) return;
    const limit = queue.maxDeliveries > 0 ? `, ${times(queue.maxDeliveries)}, then ${queue.deadLetter}` : "";
    setText(this.#subtitle, `lease ${queue.leaseMs / 1_000} s${limit}`);
    this.#figures.replaceChildren(...FIGURES.map((name) => make("div", {}, make("dt", {}, name), make("dd", {}, amount(queue[name.toLowerCase()])))));
    this.#redrive.hidden = !queue.isDeadLetter || queue.messages === 0;
    this.#list.replaceChildren();
    this.#append(page);
    this.#nameSenders(page);
    if (page.messages.length === 0) this.#list.append(make("li", { class: "empty" }, "Nothing waits here."));
  }

  async #page() {
    const name = this.#queue;
    const page = await peek(name, this.#next);
    if (this.#queue !== name) return;
    this.#append(page);
    this.#nameSenders(page);
  }

  #append(page) {
    this.#list.append(...page.messages.map((message) => this.#item(message)));
    this.#next = page.next;
    this.#more.hidden = page.next === null;
  }

  #item(message) {
    const sentAt = new Date(message.sentAt);
    const { text, isCut } = cut(message.message);
    const remove = () => this.#act(async () => {
      if (!window.confirm(`Delete this message?\n\n${excerpt(message.message)}`)) return;
      await removeMessage(this.#queue, message.id);
      await this.#refresh();
    });
    const again = () => this.#act(async () => {
      await redrive(this.#queue, message.id);
      await this.#refresh();
    });
    return make("li", { "data-id": message.id },
      make("div", { class: "waiting-head" },
        this.#person("b", message.sender), make("span", {}, "→ ", message.receiver ? this.#person("bdi", message.receiver) : "anybody"),
        message.groupId && make("span", { class: "tag" }, `group ${message.groupId}`),
        make("span", { class: `tag ${message.state}` }, stateOf(message)),
        message.dead && make("span", { class: "tag dead" }, deadOf(message.dead)),
        make("time", { datetime: message.sentAt, title: exact(sentAt) }, `${age(sentAt)} ago`),
        message.dead && make("button", { class: "link", type: "button", click: again }, "Redrive"),
        make("button", { class: "icon", type: "button", title: "Delete this message", "aria-label": `Delete message ${message.id}`, click: remove }, icon("close"))),
      make("p", { class: isStacked(text) ? "waiting-text stacked" : "waiting-text", dir: "auto" }, text, isCut && make("em", {}, " …")));
  }

  #person(tag, userId) {
    return make(tag, { title: userId, "data-user": userId }, this.#model.nameOf(userId));
  }

  /** Writes the names that ids do not tell, once they are found. */
  async #nameSenders({ messages }) {
    await this.#model.names.lookUp(messages.flatMap(({ sender, receiver }) => [sender, receiver].filter(Boolean)));
    for (const element of this.#list.querySelectorAll("[data-user]")) setText(element, this.#model.nameOf(element.dataset.user));
  }

  async #redriveAll() {
    const name = this.#queue;
    let moved = 0;
    for (;;) {
      const answer = await redrive(name);
      moved += answer.moved;
      if (!answer.more) break;
    }
    if (this.#queue !== name) return;
    await this.#refresh();
    setText(this.#status, `${amount(moved)} ${moved === 1 ? "message waits" : "messages wait"} again where they came from.`);
  }

  async #delete() {
    const name = this.#queue;
    if (!window.confirm(`Delete the queue ${name}?`)) return;
    try {
      await deleteQueue(name, false);
    } catch (error) {
      if (error.code !== "queue_not_empty" || !window.confirm(`${name} holds messages. Delete them too?`)) throw error;
      await deleteQueue(name, true);
    }
    if (this.#queue === name) location.hash = "#queues";
  }
}

function cut(text) {
  return text.length > TEXT_MAX ? { text: text.slice(0, TEXT_MAX), isCut: true } : { text, isCut: false };
}

/** The beginning of a text, on one line. */
function excerpt(text) {
  const line = text.replace(/\s+/g, " ");
  return line.length > ASKED_MAX ? `${line.slice(0, ASKED_MAX)}…` : line;
}

/** A client's id is taken as it is. Everything else is somebody's name. */
const receiverOf = (text) => (isId(text) ? text : idOf(text));

function stateOf(message) {
  const left = message.until ? ` ${age(new Date(), new Date(message.until))}` : "";
  if (message.state === "delayed") return `delayed${left}`;
  if (message.state === "leased") return `leased${left}, delivery ${message.deliveries}`;
  return message.deliveries > 0 ? `ready, ${times(message.deliveries)}` : "ready";
}

const times = (deliveries) => (deliveries === 1 ? "1 delivery" : `${deliveries} deliveries`);

function deadOf(dead) {
  const why = dead.reason === "rejected" ? "given back" : "lease expired";
  return `from ${dead.origin}: ${why}, ${times(dead.deliveries)}`;
}
