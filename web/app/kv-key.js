/** The view of one key: its value as text or bytes; changing and deleting it. */

import { icon, make, setStatus, setText } from "./dom.js";
import { sentenceOf } from "./request.js";
import { deleteKey, getKey, putKey, readable, revisionNow, watchKeys } from "./kv-api.js";

/** Most bytes shown of a binary value. */
const HEX_MAX = 4_096;
/** Pause before the key is read again after that failed, in ms. */
const AGAIN_AFTER = 2_000;

/** A hex dump of Base64: address, sixteen bytes, and their printable characters. */
function hexOf(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, HEX_MAX); at += 16) {
    const part = [...bytes.subarray(at, at + 16)];
    const hex = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = part.map((byte) => (byte > 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(47)}  ${text}`);
  }
  if (bytes.length > HEX_MAX) lines.push("…");
  return { bytes: bytes.length, text: lines.join("\n") };
}

export class KeyView {
  #key = null;
  /** The last answer; `revision` is 0 if there is no such key, `undefined` before the first. */
  #found = { text: "" };
  #isSaving = false;
  #unwatch = () => {};
  #again;
  #subtitle = make("p");
  #status = make("p", { class: "board-status", role: "status" });
  #value = make("textarea", { id: "kv-value", dir: "auto", spellcheck: "false" });
  #hex = make("pre", { class: "hex", role: "region", "aria-label": "Value in bytes", tabindex: 0 });
  #ttl = make("input", { id: "kv-ttl", type: "number", min: 0, step: "any", placeholder: "never", "aria-label": "Seconds until it expires" });
  #form = make("form", { id: "kv-edit", class: "board-form", submit: (event) => this.#submit(event) },
    make("label", { class: "value-label", for: "kv-value" }, "Value"),
    make("div", { class: "field value" }, this.#value),
    make("label", {}, "Expires in (s)", make("div", { class: "field number" }, this.#ttl)),
    make("button", { class: "primary", type: "submit" }, "Save"));
  #delete = make("button", { class: "danger", type: "button", click: () => this.#act(() => this.#remove()) }, "Delete");

  /** @returns the elements, filled when answers come */
  open(key) {
    this.#key = key;
    this.#found = { text: "" };
    this.#isSaving = false;
    this.#value.value = this.#ttl.value = "";
    this.#hex.hidden = this.#delete.hidden = true;
    this.#form.hidden = false;
    setText(this.#subtitle, "");
    setStatus(this.#status, "");
    const fragment = document.createDocumentFragment();
    fragment.append(
      make("header", { class: "room-head" },
        make("a", { class: "icon-link", href: "#kv", "aria-label": "Back to all keys" }, icon("back")),
        make("div", { class: "room-title" }, make("h1", {}, readable(key)), this.#subtitle),
        this.#delete),
      make("div", { class: "board-body" }, this.#hex, this.#form, this.#status));
    this.#keepUp();
    return fragment;
  }

  close() {
    this.#key = null;
    this.#stop();
  }

  #stop() {
    clearTimeout(this.#again);
    this.#unwatch();
  }

  /** Runs an action and shows its error. */
  async #act(action) {
    const key = this.#key;
    try {
      setStatus(this.#status, "");
      await action();
    } catch (error) {
      if (this.#key === key) setStatus(this.#status, sentenceOf(error), true);
    }
  }

  get #isChanged() {
    return this.#value.value !== this.#found.text;
  }

  /** Shows the key and its changes by others from now on. Where that fails, or the changes are lost, it is tried again. */
  async #keepUp() {
    const key = this.#key;
    this.#stop();
    try {
      await this.#read();
    } catch (error) {
      if (this.#key !== key) return;
      setStatus(this.#status, sentenceOf(error), true);
      if (error.retryable) this.#keepUpLater(key);
    }
  }

  #keepUpLater(key, pause = AGAIN_AFTER) {
    if (this.#key !== key) return;
    clearTimeout(this.#again);
    this.#again = setTimeout(() => this.#keepUp(), pause);
  }

  async #read() {
    const key = this.#key;
    // Watching from before it was read misses nothing.
    const after = await revisionNow(key);
    const found = await getKey(key);
    if (this.#key !== key) return;
    const revision = found.revision && !found.code ? found.revision : 0;
    const known = this.#found.revision;
    if (this.#isChanged && (known ?? 0) !== revision) this.#tellChanged();
    else this.#show(found, revision);
    this.#follow(key, after);
  }

  #tellChanged() {
    setStatus(this.#status, "It has changed meanwhile. Open it again before you save.", true);
  }

  #show(found, revision) {
    setStatus(this.#status, "");
    const edited = this.#isChanged ? this.#value.value : null;
    const hex = found.base64 === undefined ? null : hexOf(found.base64);
    const bytes = hex?.bytes ?? new TextEncoder().encode(found.value ?? "").length;
    this.#value.value = found.value ?? "";
    // As the field has it: with its own line ends.
    this.#found = { revision, text: this.#value.value };
    if (edited !== null) this.#value.value = edited;
    setText(this.#hex, hex?.text ?? "");
    // Binary values are not saved as text.
    this.#form.hidden = Boolean(hex);
    this.#hex.hidden = !hex;
    this.#delete.hidden = this.#found.revision === 0;
    const until = found.expiresAt ? `, expires ${new Date(found.expiresAt).toLocaleString()}` : "";
    setText(this.#subtitle, this.#found.revision ? `${bytes.toLocaleString()} bytes, revision ${found.revision}${until}` : "Not there yet");
  }

  /** Shows changes by others, unless the user is editing. */
  #follow(key, after) {
    this.#stop();
    const changed = (which, revision) => {
      // What is saved is read again anyway.
      if (this.#key !== key || which !== key || revision <= this.#found.revision || this.#isSaving) return;
      if (this.#isChanged) this.#tellChanged();
      else this.#keepUp();
    };
    this.#unwatch = watchKeys(key, after, changed, (pause) => this.#keepUpLater(key, pause));
  }

  async #submit(event) {
    event.preventDefault();
    const { key, ttl } = { key: this.#key, ttl: Number(this.#ttl.value) };
    await this.#act(async () => {
      this.#isSaving = true;
      const put = { key, value: this.#value.value, ifRevision: this.#found.revision ?? 0, ...(ttl > 0 ? { ttl } : {}) };
      const { revision } = await putKey(put).finally(() => { if (this.#key === key) this.#isSaving = false; });
      if (this.#key !== key) return;
      this.#found = { revision, text: put.value };
      this.#ttl.value = "";
      await this.#keepUp();
      if (this.#key === key && !this.#status.textContent) setStatus(this.#status, "Saved.");
    });
  }

  async #remove() {
    if (!window.confirm(`Delete ${readable(this.#key)}?`)) return;
    await deleteKey(this.#key);
    location.hash = "#kv";
  }
}
