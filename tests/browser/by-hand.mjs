/** The model of the chat page in Node, against frames and answers by hand. */

import { Model } from "../../web/app/model.js";

/** A model of ada, a member of `rooms`, and the socket that it opened. */
export async function started(test, rooms) {
  let socket;
  const given = { WebSocket: globalThis.WebSocket, fetch: globalThis.fetch };
  globalThis.WebSocket = class {
    frames = [];
    constructor() { socket = this; }
    send(text) { this.frames.push(JSON.parse(text)); }
    close() {}
    say(frame) { this.onmessage({ data: JSON.stringify(frame) }); }
  };
  const http = {
    rooms,
    answer(url) {
      const { pathname } = new URL(url);
      const rest = pathname.endsWith("/messages") ? { messages: [] } : { rooms: this.rooms, members: [], users: [] };
      return new Response(JSON.stringify({ next: null, epoch: "e", ...rest }));
    },
  };
  globalThis.fetch = async (url) => http.answer(url);
  const model = new Model({ user: "ada", name: "Ada", url: "http://h" });
  test.after(() => {
    model.client.close();
    Object.assign(globalThis, given);
  });
  model.client.connect();
  socket.onopen();
  while (!model.isLoaded) await new Promise((resolve) => setTimeout(resolve, 1));
  const { ref } = socket.frames.find(({ type }) => type === "subscribe");
  const announce = (roomId, more) => socket.say({ type: "subscribed", ref, roomId, epoch: "e", oldest: 1, ...more });
  const marks = () => socket.frames.filter(({ type }) => type === "read").map(({ roomId, seq }) => [roomId, seq]);
  const answer = (frame) => socket.say({ type: "read", ref: socket.frames.at(-1).ref, ...frame });
  return { model, socket, announce, marks, answer, http, newest: () => socket };
}
