/** The text field for messages. */

import { $, setText } from "./dom.js";

/** The server's default. The server refuses longer texts itself if its limit is lower. */
const TEXT_BYTES_MAX = 64 * 1024;
/** For browsers whose text fields do not grow with their text. */
const mustGrow = !CSS.supports("field-sizing", "content");
const isTouch = matchMedia("(pointer: coarse)").matches;

export class Composer {
  #model;
  #text = $("text");
  #room = null;

  constructor(model) {
    this.#model = model;
    model.on("room", () => this.#onRoom());
    $("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    this.#text.addEventListener("input", () => this.#onInput());
    this.#text.addEventListener("keydown", (event) => {
      // On a touch keyboard, Enter starts a new line. While a character is composed, it belongs to the input method.
      if (event.key !== "Enter" || event.shiftKey || event.isComposing || isTouch) return;
      event.preventDefault();
      this.#send();
    });
  }

  focus() {
    if (!isTouch) this.#text.focus({ preventScroll: true });
  }

  #onRoom() {
    const room = this.#model.current;
    if (room === this.#room) return void this.#label(room);
    if (this.#room) this.#room.draft = this.#text.value;
    this.#room = room;
    if (!room) return;
    this.#text.value = room.draft;
    this.#label(room);
    this.#resize();
    this.focus();
  }

  #label(room) {
    if (room) this.#text.placeholder = `Message ${room.name}`;
  }

  #onInput() {
    this.#resize();
    if (!this.#room) return;
    this.#room.draft = this.#text.value;
    if (this.#text.value.trim()) this.#model.client.typing(this.#room.roomId);
  }

  #resize() {
    if (mustGrow) {
      this.#text.style.height = "auto";
      this.#text.style.height = this.#text.value ? `${this.#text.scrollHeight}px` : "";
    }
    const isTooLong = this.#isTooLong();
    $("send").disabled = this.#text.value.trim() === "" || isTooLong;
    this.#text.setAttribute("aria-invalid", String(isTooLong));
    setText($("too-long"), isTooLong ? "This text is too long to be sent as one message." : "");
  }

  #isTooLong() {
    const { value } = this.#text;
    return value.length * 3 > TEXT_BYTES_MAX && new TextEncoder().encode(value).length > TEXT_BYTES_MAX;
  }

  #send() {
    const text = this.#text.value.trim();
    if (!text || this.#isTooLong() || !this.#room?.log) return;
    this.#text.value = "";
    this.#model.send(text);
    this.#resize();
    this.focus();
  }
}
