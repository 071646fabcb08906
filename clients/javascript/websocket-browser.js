/** Browsers have a WebSocket. */
export const WebSocket = globalThis.WebSocket;
