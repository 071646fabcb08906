/** Server-Sent Events over `fetch`, so that they carry a token and end when nothing comes. */

import { HubbubError } from "./hubbub.js";

/** Longest event, in characters. */
const EVENT_MAX = 1024 * 1024;

/** The fields of an event; `data` is parsed. `null` for a comment. */
export function parseEvent(text) {
  const event = {};
  for (const line of text.split("\n")) {
    const [, name, value] = /^(id|event|data): ?(.*)$/.exec(line) ?? [];
    if (name) event[name] = name === "data" ? JSON.parse(value) : value;
  }
  return event;
}

/** Yields the events of one connection. Ends without an error when the server ends it; rejects when it is lost. */
export async function* readEvents(http, path, signal) {
  const { silenceMax, answerMax } = http.options;
  const silent = new AbortController();
  let timer = setTimeout(() => silent.abort(), answerMax);
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silent.abort(), silenceMax);
  };
  signal.addEventListener("abort", () => silent.abort(), { signal: silent.signal });
  try {
    const response = await http.once("GET", path, { headers: { accept: "text/event-stream" }, signal: silent.signal });
    const decoder = new TextDecoder();
    let text = "";
    const reader = response.body.getReader();
    for (;;) {
      heard();
      const { value, done } = await reader.read().catch((error) => {
        throw new HubbubError({ code: "unreachable", detail: error.message, retryable: true });
      });
      // While the caller works on an event nobody reads: that is no silence.
      clearTimeout(timer);
      if (done) return;
      text += decoder.decode(value, { stream: true });
      for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) yield parseEvent(text.slice(0, end));
      if (text.length > EVENT_MAX) throw new HubbubError({ code: "protocol", detail: "an event without an end" });
    }
  } finally {
    clearTimeout(timer);
    // Ends the connection, also when the caller stopped in the middle.
    silent.abort();
  }
}
